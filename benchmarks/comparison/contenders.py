"""Contenders as processes: each loads once, and is stopped whenever it is not its turn."""

import json
import os
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
LIMIT_S = 120.0
OURS = ("radiance", "radiance int8")


class ContenderError(Exception):
    """A contender that does not run; the text is its own last word."""


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
        self._process = subprocess.Popen(
            [*command, json.dumps(options)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        try:
            loaded = self._answer()
        except BaseException:
            self.close()
            raise
        self.load_s: float = loaded["load_s"]
        self.facts: dict[str, Any] = loaded["facts"]
        self._pause()

    def run(self, prompt: list[int], tokens: int) -> tuple[float, float]:
        """Return seconds of a prompt, and of the tokens after its first."""
        answer = self._order({"prompt": prompt, "tokens": tokens})
        return answer["prompt_s"], answer["decode_s"]

    def run_all(self, prompts: list[list[int]], tokens: int) -> float:
        """Return seconds of the tokens after the first of all prompts together."""
        seconds: float = self._order({"prompts": prompts, "tokens": tokens})["decode_s"]
        return seconds

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(30)
        self._errors.close()

    def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        os.kill(self._process.pid, signal.SIGCONT)
        assert self._process.stdin is not None, "standard input is a pipe"
        try:
            print(json.dumps(order), file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise ContenderError(self._last_word()) from error
        answer = self._answer()
        self._pause()
        return answer

    def _pause(self) -> None:
        # Threads that spin while they wait would take the processors from the next one.
        os.kill(self._process.pid, signal.SIGSTOP)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "standard output is a pipe"
        # A busy machine makes programs that spin while they wait very slow.
        limit = threading.Timer(LIMIT_S, self._process.kill)
        limit.start()
        line = self._process.stdout.readline()
        limit.cancel()
        if not line:
            raise ContenderError(self._last_word())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_word(self) -> str:
        """Return the last line of what it said that is no trace."""
        self._process.wait(30)
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").splitlines()
        lines = [line.strip() for line in said if line.strip()]
        if self._process.returncode == -signal.SIGKILL:
            return f"it took longer than {LIMIT_S:.0f} s and was ended"
        return lines[-1][:200] if lines else f"ended with status {self._process.returncode}"
