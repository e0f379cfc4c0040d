"""Contenders as processes: each loads once, and is stopped whenever it is not its turn."""

import json
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
LIMIT_S, LEAST_TOKENS_PER_S = 120.0, 20.0
"""An order may take that long, and longer for the tokens of its prompt."""

_END_S = 30.0
OURS = ("radiance", "radiance int8")


class ContenderError(Exception):
    """A contender or server that does not do its part; the text says why, at best in its words."""


@dataclass(frozen=True, slots=True)
class Contender:
    """How a contender is called: the environment it runs in, and its options."""

    name: str
    kind: str
    python: Path
    options: dict[str, Any] = field(default_factory=dict)


def contenders(ours: Path, peers: Path) -> list[Contender]:
    """Return all of them, by the interpreters that have them."""
    return [
        Contender("radiance", "radiance", ours, {"activations": "int16"}),
        Contender("radiance int8", "radiance", ours, {"activations": "int8"}),
        Contender("llama.cpp", "llama.cpp", peers, {"flash": False}),
        Contender("llama.cpp flash", "llama.cpp", peers, {"flash": True}),
        Contender("openvino-genai", "openvino-genai", peers),
    ]


class Running:
    """A contender's process with one file loaded; stopped between orders."""

    def __init__(self, contender: Contender, file: Path, shared: dict[str, Any]) -> None:
        self.name, self.kind = contender.name, contender.kind
        options = contender.options | shared
        command = [str(contender.python), str(WORKER), contender.kind, str(file)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        self._late = ""
        try:
            self._process = subprocess.Popen(
                [*command, json.dumps(options)], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise ContenderError(f"{contender.python} does not run: {error}") from error
        try:
            loaded = self._answer(LIMIT_S)
        except BaseException:
            self.close()
            raise
        self.facts: dict[str, Any] = loaded["facts"]
        self._pause()

    def run(self, prompt: list[int], tokens: int) -> tuple[float, float]:
        """Return seconds of a prompt, and of the tokens after its first."""
        answer = self._order({"prompt": prompt, "tokens": tokens}, len(prompt))
        return answer["prompt_s"], answer["decode_s"]

    def run_all(self, prompts: list[list[int]], tokens: int) -> float:
        """Return seconds of the tokens after the first of all prompts together."""
        order = {"prompts": prompts, "tokens": tokens}
        seconds: float = self._order(order, sum(map(len, prompts)))["decode_s"]
        return seconds

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(_END_S)
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(BrokenPipeError):  # an order that it did not take
                pipe.close()

    def _order(self, order: dict[str, Any], prompt_tokens: int) -> dict[str, Any]:
        self._process.send_signal(signal.SIGCONT)
        assert self._process.stdin is not None, "standard input is a pipe"
        try:
            print(json.dumps(order), file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise ContenderError(self._last_word()) from error
        answer = self._answer(LIMIT_S + prompt_tokens / LEAST_TOKENS_PER_S)
        self._pause()
        return answer

    def _pause(self) -> None:
        # Threads that spin while they wait would take the processors from the next one.
        self._process.send_signal(signal.SIGSTOP)

    def _answer(self, limit_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None, "standard output is a pipe"

        def end() -> None:
            self._late = f"it took longer than {limit_s:.0f} s and was ended"
            self._process.kill()

        # A busy machine makes programs that spin while they wait very slow.
        limit = threading.Timer(limit_s, end)
        limit.start()
        try:
            line = self._process.stdout.readline()
        finally:
            limit.cancel()
        if not line:
            raise ContenderError(self._last_word())
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise ContenderError(f"expected a line of JSON, got {line[:80]!r}") from error
        return answer

    def _last_word(self) -> str:
        """Return the last line of what it said that is no trace, or how it ended."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "it closed its output and goes on"
        self._errors.seek(0)
        return self._late or last_word(self._errors.read(), self._process.returncode)


def last_word(said: bytes, status: int) -> str:
    """Return how a process ended, and the last line of what it said."""
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines()]
    last = next((line[:200] for line in reversed(lines) if line), "")
    if status >= 0:
        return last or f"ended with status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    return f"ended by {name}{f', after: {last}' if last else ''}"
