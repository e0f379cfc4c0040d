"""The server under test: where it answers, its process when known, and whether it is well."""

import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

import psutil

from probes.exchange import CHAT, Answer, Client

START_LIMIT_S = 180.0
_GOLDEN_TOKENS = 8


class GoneError(Exception):
    """The server does not answer any more and nothing here can start it again."""


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def installed_environment() -> dict[str, str]:
    """Return the environment in which a checkout starts as what is installed does.

    That has its bytecode beside it; a checkout only where Python may write it, and to compile
    everything at every start is a fifth of a second.
    """
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


class Launch:
    """A server that this program started with a command of the user's."""

    def __init__(self, command: list[str]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - stop() closes it
        try:
            self.process = subprocess.Popen(
                [part.replace("{port}", str(port)) for part in command],
                stdout=self.said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=installed_environment() | {"PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        except OSError:
            self.said.close()
            raise

    def wait_ready(self, limit_s: float = START_LIMIT_S) -> bool:
        """Wait until it serves; False when it ended or the limit passed."""
        client, deadline = Client(self.url), time.monotonic() + limit_s
        while self.process.poll() is None and time.monotonic() < deadline:
            if client.get("/v1/models", timeout=5).status in (200, 401):
                return True
            time.sleep(0.05)
        return False

    def output(self) -> str:
        """Return what it has printed, the last 20 kB of it."""
        size = self.said.seek(0, os.SEEK_END)
        self.said.seek(max(0, size - 20_000))
        return self.said.read().decode("utf-8", "replace")

    def stop(self) -> None:
        """End it whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        self.said.close()


class Target:
    """What probes talk to. ``command`` may be empty, then ``url`` is that of a running server."""

    def __init__(self, url: str, key: str | None, pid: int | None, command: str) -> None:
        self.command = shlex.split(command)
        self.key, self.pid = key, pid
        self.launch: Launch | None = None
        self.client = Client(url, key)
        self.model = ""
        self.golden = ""

    @property
    def can_start(self) -> bool:
        """Whether a server that ended can be started again."""
        return bool(self.command)

    def ready(self) -> None:
        """Start the server if that is ours to do, and learn its model and its golden answer."""
        if self.can_start and (self.launch is None or self.launch.process.poll() is not None):
            self.start()
        models = self.client.get("/v1/models")
        if models.status != 200:
            raise GoneError(f"GET /v1/models: expected 200, got {models}")
        self.model = str(models.decoded["data"][0]["id"])
        golden = self.canary()
        if golden.status != 200:
            raise GoneError(
                f"a plain greedy chat: expected 200, got {golden} {golden.body[:300]!r}"
            )
        self.golden = self.golden or golden.text

    def start(self) -> None:
        """Start the server with the command."""
        self.stop()
        self.launch = Launch(self.command)
        if not self.launch.wait_ready():
            last = self.launch.output().strip().rpartition("\n")[2]
            raise GoneError(f"the command did not start a server: {last}")
        self.pid = self.launch.process.pid
        self.client = Client(self.launch.url, self.key)

    def stop(self) -> None:
        """End a server that was started here."""
        if self.launch is not None:
            self.launch.stop()
            self.launch = None

    def chat(self, text: str = "Say hello.", **fields: Any) -> dict[str, Any]:
        """Return the body of a small greedy chat, with further fields."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": _GOLDEN_TOKENS,
            "temperature": 0,
        }
        return body | fields

    def canary(self, timeout: float = 60.0) -> Answer:
        """Ask the question whose answer is known."""
        return self.client.post(CHAT, self.chat("Count from one to five."), timeout)

    def illness(self) -> str:
        """Return what is wrong with the server, "" when it is alive and answers as at first."""
        if self.launch is not None and (status := self.launch.process.poll()) is not None:
            return f"the process died, rc {status}"
        answer = self.canary()
        if answer.status != 200:
            return f"afterwards a plain chat got {answer}"
        return "" if answer.text == self.golden else "afterwards the canary's answer was another"

    def resident(self) -> int | None:
        """Return the resident bytes of the process and its children, None when it is unknown."""
        if self.pid is None:
            return None
        try:
            process = psutil.Process(self.pid)
            family = [process, *process.children(recursive=True)]
            return sum(int(p.memory_info().rss) for p in family)
        except psutil.NoSuchProcess:
            return None

    def terminate(self) -> None:
        """Send SIGTERM."""
        assert self.pid is not None, "asked only where the process is known"
        os.kill(self.pid, signal.SIGTERM)

    def ended(self, limit_s: float) -> int | str | None:
        """Wait for the end; return the status, "unknown" of a stranger's process, None if alive."""
        if self.launch is not None:
            try:
                return self.launch.process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return None
        assert self.pid is not None, "asked only where the process is known"
        return (
            "unknown" if wait_until(lambda: not psutil.pid_exists(self.pid or 0), limit_s) else None
        )


def wait_until(holds: Callable[[], bool], limit_s: float, every_s: float = 0.01) -> bool:
    """Poll until something holds; False when the limit passed first."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True
