"""Tries constraints out in a process that can be killed, before they are compiled in this one.

llguidance bounds most of its work itself, but not all: a schema of twenty patterns compiles for
minutes and a chain of some thousand rules overflows the stack (ADR 0008).
"""

import json
import select
import signal
import subprocess
import sys
import threading
import time

from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.native import TOO_HARD, PlainVocabulary

_START_SECONDS = 30.0
_LAST_SECONDS = 5.0
_WALL_SECONDS = 30.0
"""Far over the processor time that a trial may take: a busy machine is no fault of a constraint."""


class TrialProcess:
    """One killable process with the model's vocabulary; started by the first trial.

    Args:
        vocabulary: of the model.
    """

    def __init__(self, vocabulary: PlainVocabulary) -> None:
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the child, None while there is none."""
        return None if self._child is None else self._child.pid

    def attempt(self, grammar: str, subject: str) -> None:
        """Compile a grammar out there; blocks, and calls from several threads take turns.

        Raises:
            ConstraintError: it is no grammar, nothing satisfies it, or it takes too much.
        """
        with self._lock:
            answer = self._ask(grammar)
        if self._closed:
            raise ConstraintError(f"{subject}: expected a server that goes on, it is stopping.")
        if answer is None:
            raise ConstraintError(f"{subject}: {TOO_HARD}.")
        if error := json.loads(answer)["error"]:
            raise ConstraintError(f"{subject}: expected one that can be enforced, got: {error}.")

    def close(self) -> None:
        """End the process, with what it tries at the moment; later trials fail."""
        self._closed = True
        # Whoever waits for an answer has the lock, and gets the end of the process for one.
        if (child := self._child) is not None:
            child.kill()
        with self._lock:
            self._kill()

    def _ask(self, grammar: str) -> bytes | None:
        """Return the answer about a grammar; None when the process ended of it."""
        line = json.dumps({"grammar": grammar}).encode() + b"\n"
        for _ in range(2):
            if self._closed:
                return None
            if self._child is None:
                self._start()
            if self._child is None:
                return None
            answer = self._exchange(line, _WALL_SECONDS)
            if answer is not None:
                return answer
            if not self._kill():
                return None
        return None

    def _start(self) -> None:
        # -P keeps the working directory off the path of a process that reads strangers' texts;
        # a process group of its own keeps the terminal's Ctrl-C from it.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "radiance_core.constrain.trial_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        if self._closed:  # by another thread, which saw no process to end
            self._child.kill()
        told = {
            "tokens": [token.decode("latin-1") for token in self._vocabulary.tokens],
            "special_ids": list(self._vocabulary.special_token_ids),
            "eos_ids": self._vocabulary.eos_ids,
        }
        if self._exchange(json.dumps(told).encode() + b"\n", _START_SECONDS) is None:
            self._kill()
            if self._closed:
                return
            raise ConstraintError(
                "structured output: expected its compiling process to start, it did not; "
                "the host may be out of memory or processes. Try again later."
            )

    def _exchange(self, line: bytes, seconds: float) -> bytes | None:
        """Write a line and read one; None when the process ends or takes too long."""
        assert self._child is not None, "callers start it"
        assert self._child.stdin is not None, "asked for a pipe"
        assert self._child.stdout is not None, "asked for a pipe"
        until = time.monotonic() + seconds
        try:
            self._child.stdin.write(line)
            self._child.stdin.flush()
        except OSError:
            return None
        # The answer is one short line, written at once: readable means whole, or the end.
        ready, _, _ = select.select([self._child.stdout], [], [], until - time.monotonic())
        return (self._child.stdout.readline() or None) if ready else None

    def _kill(self) -> bool:
        """End the process; say whether somebody else had, for whom no grammar is to blame."""
        if self._child is None:
            return False
        try:
            code = self._child.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            code = 0
        self._child.kill()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None, "asked for a pipe"
            try:
                pipe.close()
            except OSError:  # what was still to be written to a dead process
                continue
        self._child.wait()
        self._child = None
        return code in {-signal.SIGKILL, -signal.SIGTERM}
