"""Interleaved rounds: in each, every contender does the same, one after the other."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from comparison.contenders import Contender, ContenderError, Running
from comparison.model_files import ModelFile
from comparison.quiet import Rests

Series = dict[str, list[float]]
"""Measured values by what was measured."""


@dataclass(slots=True)
class Compared:
    """What one file gave: series by contender, and who is missing because of what."""

    file: str
    series: dict[str, Series] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, what: str, value: float) -> None:
        """Note one value."""
        self.series.setdefault(name, {}).setdefault(what, []).append(value)


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured."""

    rounds: int
    tokens: int
    prompt: int


class Lane:
    """The contenders of one file, loaded; those that cannot run are noted and left out."""

    def __init__(self, compared: Compared, rests: Rests) -> None:
        self.compared, self._rests = compared, rests
        self.running: list[Running] = []
        self._stack = ExitStack()

    def load(self, chosen: list[Contender], file: ModelFile, shared: dict[str, Any]) -> None:
        """Start all, with options that are the same for each."""
        assert file.path is not None, "files that are missing are not compared"
        for contender in chosen:
            try:
                running = Running(contender, file.path, shared)
            except (ContenderError, OSError) as error:
                self.compared.missing[contender.name] = str(error)
                continue
            self._stack.callback(running.close)
            self.running.append(running)
            self.compared.facts[contender.name] = running.facts

    def each(self, job: Callable[[Running], None], kind: str = "") -> None:
        """Let each in turn do a job, with a rest before it; who fails is left out from then on.

        ``kind``: only the contenders of this kind.
        """
        for running in [r for r in self.running if kind in ("", r.kind)]:
            self._rests.rest()
            try:
                job(running)
            except ContenderError as error:
                self.compared.missing[running.name] = str(error)
                self.running.remove(running)

    def close(self) -> None:
        """End all."""
        self._stack.close()


def prompt(rng: np.random.Generator, length: int) -> list[int]:
    """Draw token ids that no contender has seen: some keep what they computed of a prompt."""
    return [int(i) for i in rng.integers(100, 20_000, length)]


def decode_and_prefill(lane: Lane, amounts: Amounts, seed: int = 7) -> None:
    """Measure tokens a second of one stream and of prompts, after a round that does not count."""
    rng = np.random.default_rng(seed)
    for turn in range(amounts.rounds + 1):
        short, long = prompt(rng, 16), prompt(rng, amounts.prompt)

        def job(running: Running, short=short, long=long, counts=turn > 0) -> None:
            _, decode_s = running.run(short, amounts.tokens)
            prompt_s, _ = running.run(long, 0)
            if counts:
                lane.compared.add(running.name, "decode", amounts.tokens / decode_s)
                lane.compared.add(running.name, "prefill", len(long) / prompt_s)

        lane.each(job)


def together(lane: Lane, rounds: int, tokens: int, seed: int = 6) -> None:
    """Measure eight prompts in one call of the library that has such a call; it has no server."""
    rng = np.random.default_rng(seed)
    for turn in range(rounds + 1):
        prompts = [prompt(rng, 16) for _ in range(8)]

        def job(running: Running, prompts=prompts, counts=turn > 0) -> None:
            seconds = running.run_all(prompts, tokens)
            if counts:
                lane.compared.add(running.name, "8 streams", len(prompts) * tokens / seconds)

        lane.each(job, "openvino-genai")


def long_context(lane: Lane, rounds: int, length: int, tokens: int, seed: int = 8) -> None:
    """Measure decode and prompts at a long context and at short ones, in turn."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        cases = {n: prompt(rng, n) for n in (128, 512, length)}

        def job(running: Running, cases=cases) -> None:
            for n, ids in cases.items():
                prompt_s, decode_s = running.run(ids, tokens)
                lane.compared.add(running.name, f"decode at {n}", tokens / decode_s)
                lane.compared.add(running.name, f"prompt of {n}", n / prompt_s)

        lane.each(job)
