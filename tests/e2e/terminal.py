"""A program in a terminal of its own, as someone would type to it."""

import codecs
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Sequence

RADIANCE = [sys.executable, "-m", "radiance_core.cli.entry"]

# A session's leader makes the terminal its own, so that Ctrl-C reaches it.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """A process whose standard streams are one pseudo-terminal.

    Args:
        arguments: of ``radiance``.
        kind: of terminal; a dumb one is not drawn on.
    """

    def __init__(self, arguments: Sequence[str], kind: str = "dumb") -> None:
        self._end, end = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *RADIANCE, *arguments],
            stdin=end,
            stdout=end,
            stderr=end,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TERM": kind},
            start_new_session=True,
        )
        os.close(end)
        self.output = ""
        self._read_to = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def type(self, text: str) -> None:
        """Type keys; the control character of Ctrl-C is 3, of Ctrl-D 4."""
        os.write(self._end, text.encode())

    def expect(self, pattern: str, within_s: float = 240.0) -> "re.Match[str]":
        """Wait for a pattern in what was not yet matched, and go on behind it."""
        deadline = time.monotonic() + within_s
        while True:
            found = re.compile(pattern, re.DOTALL).search(self.output, self._read_to)
            if found:
                self._read_to = found.end()
                return found
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} is not in {self.output[self._read_to :]!r}"
            if select.select([self._end], [], [], left)[0]:
                try:
                    self._read()
                except OSError as error:
                    raise AssertionError(f"ended before {pattern!r}: {self.output!r}") from error

    def end(self, within_s: float = 240.0) -> int:
        """Wait for the end of the process, reading all that it writes; return its status."""
        deadline = time.monotonic() + within_s
        # A program that sets the terminal back waits until its output has been read; what it wrote
        # last is there to read when it has ended.
        while time.monotonic() < deadline:
            has_ended = self.process.poll() is not None
            if select.select([self._end], [], [], 0.05)[0]:
                try:
                    self._read()
                except OSError:  # nobody has the other end any more
                    break
            elif has_ended:
                break
        status = self.process.wait(max(deadline - time.monotonic(), 1))
        os.close(self._end)
        return status

    def _read(self) -> None:
        self.output += self._decoder.decode(os.read(self._end, 65536))

    def kill(self) -> None:
        """End the process if it is still there."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
