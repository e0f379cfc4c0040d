"""Interleaved rounds: in each, every contender does the same, one after the other."""

import traceback
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from comparison.contenders import ContenderError, Running
from comparison.quiet import Rests

Series = dict[str, list[float]]
"""Measured values by what was measured."""

SHORT_DECODE, SHORT_PROMPT = 128, 512
"""What a long context is held against: decode after so many tokens, a prompt of so many."""


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

    def attempt(self, name: str, job: Callable[[], object]) -> bool:
        """Do a part of the work; whatever goes wrong is noted as why ``name`` is missing.

        Returns whether it went well. Nothing that one contender does ends a run of many minutes.
        """
        try:
            job()
        except ContenderError as error:
            self.missing[name] = one_line(str(error))
        except Exception as error:
            # Not foreseen, so that its place is worth knowing.
            traceback.print_exc()
            self.missing[name] = one_line(f"{type(error).__name__}: {error}")
        else:
            return True
        return False


def one_line(text: str) -> str:
    """Return a reason as it stands in a line of a page."""
    return " ".join(text.split())[:200]


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured."""

    rounds: int
    tokens: int
    prompt: int


class Rival(Protocol):
    """A process that takes its turns: a library or a server with one file loaded."""

    name: str
    kind: str

    def close(self) -> None:
        """End it; also when it has ended."""


R = TypeVar("R", bound=Rival)


class Lane(Generic[R]):
    """The rivals of one file, loaded; those that cannot go on are noted, ended and left out."""

    def __init__(self, compared: Compared, rests: Rests) -> None:
        self.compared, self._rests = compared, rests
        self.running: list[R] = []
        self._stack = ExitStack()

    def __enter__(self) -> "Lane[R]":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def load(self, name: str, start: Callable[[], R]) -> None:
        """Start one."""

        def begin() -> None:
            rival = start()
            self._stack.callback(rival.close)
            self.running.append(rival)

        self.compared.attempt(name, begin)

    def each(self, job: Callable[[R], object], kind: str = "") -> None:
        """Let each in turn do a job, with a rest before it; who fails is left out from then on.

        ``kind``: only those of this kind.
        """
        for rival in [r for r in self.running if kind in ("", r.kind)]:
            self._rests.rest()
            if not self.compared.attempt(rival.name, lambda rival=rival: job(rival)):
                self.running.remove(rival)
                # Nobody stopped it, and it would take from the others.
                self.compared.attempt(f"{rival.name}, to end it", rival.close)


def prompt(rng: np.random.Generator, length: int) -> list[int]:
    """Draw token ids that no contender has seen: some keep what they computed of a prompt."""
    return [int(i) for i in rng.integers(100, 20_000, length)]


def decode_and_prefill(lane: Lane[Running], amounts: Amounts, seed: int = 7) -> None:
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


def together(lane: Lane[Running], rounds: int, tokens: int, seed: int = 6) -> None:
    """Measure eight prompts in one call of the library that has such a call; it has no server."""
    rng = np.random.default_rng(seed)
    for turn in range(rounds + 1):
        prompts = [prompt(rng, 16) for _ in range(8)]

        def job(running: Running, prompts=prompts, counts=turn > 0) -> None:
            seconds = running.run_all(prompts, tokens)
            if counts:
                lane.compared.add(running.name, "8 streams", len(prompts) * tokens / seconds)

        lane.each(job, "openvino-genai")


def long_context(lane: Lane[Running], rounds: int, length: int, tokens: int, seed: int = 8) -> None:
    """Measure decode and prompts at a long context and at short ones, in turn.

    The round that does not count is one of the short ones alone: a long prompt in it would take as
    long as all else of a round.
    """
    rng = np.random.default_rng(seed)
    short = (SHORT_DECODE, SHORT_PROMPT)
    for turn in range(rounds + 1):
        job = at_lengths(lane.compared, rng, (*short, length) if turn else short, tokens, turn > 0)
        lane.each(job)


def at_lengths(
    compared: Compared, rng: np.random.Generator, lengths: Iterable[int], tokens: int, counts: bool
) -> Callable[[Running], None]:
    """Return one round: prompts of these lengths, and tokens after each."""
    cases = {n: prompt(rng, n) for n in lengths}

    def job(running: Running) -> None:
        for n, ids in cases.items():
            prompt_s, decode_s = running.run(ids, tokens)
            if counts:
                compared.add(running.name, f"decode at {n}", tokens / decode_s)
                compared.add(running.name, f"prompt of {n}", n / prompt_s)

    return job
