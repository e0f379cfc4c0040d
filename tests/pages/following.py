"""Do what a page says, in a folder and an environment that the caller chose."""

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from ports import lasting_port
from surroundings import WISHES

from pages.page import Block, Command, blocks, commands, matches

COMMAND_S = 480
START_S = 240
END_S = 120
DROPPED = ("RADIANCE_", "PYTHON", *WISHES)
"""Beginnings of variables that would change what commands do or print."""


class PageError(AssertionError):
    """A page says something that is not so."""


@dataclass(slots=True)
class Server:
    """A command that a page left running, and where its output goes."""

    process: "subprocess.Popen[bytes]"
    output: Path


@dataclass(slots=True)
class Follower:
    """Follows pages in ``folder``, with the commands of ``bin_folder`` first on the path.

    Pages use port 8000; the follower uses a free one instead. ``outputs`` holds what each command
    printed.
    """

    folder: Path
    bin_folder: Path
    port: int = field(default_factory=lasting_port)
    outputs: dict[str, str] = field(default_factory=dict)
    _servers: list[Server] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that commands see: those of this process, the path, no settings."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED)}
        return {
            **kept,
            "PATH": f"{self.bin_folder}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "80",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }

    def follow(self, page: Path) -> None:
        """Follow a page from its top, then end what it left running.

        Raises:
            PageError: names the block, the command and what it printed.
        """
        try:
            for block in blocks(page):
                if block.does_something:
                    self._follow(block)
        finally:
            while self._servers:
                self._end(self._servers.pop(), "the end of the page")

    def _follow(self, block: Block) -> None:
        if block.file is not None:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._here(block.text), encoding="utf-8")
        elif block.language == "python":
            self._run(block, ["python", "-c", self._here(block.text)], "the script")
        else:
            for command in commands(block):
                self._command(block, command)

    def _here(self, text: str) -> str:
        """Put the port at hand where a page serves on, or calls, its own."""
        return re.sub(r"(?<=127\.0\.0\.1:)8000|(?<=--port )8000(?= )", str(self.port), text)

    def _command(self, block: Block, command: Command) -> None:
        text = self._here(command.text)
        if text == "kill %1":
            self._end(self._servers.pop(), f"{block}: $ kill %1")
            return
        if text.endswith("&"):
            self._start(block, command, text)
            return
        printed = self._run(block, ["bash", "-euc", text], f"$ {text}")
        self.outputs[command.text] = printed
        expected = tuple(self._here(line) for line in command.expected)
        if expected and not matches(expected, printed):
            raise PageError(
                f"{block}: $ {text}\nexpected, from the page:\n" + "\n".join(expected)
                + f"\ngot:\n{printed}"
            )  # fmt: skip

    def _run(self, block: Block, arguments: list[str], what: str) -> str:
        done = subprocess.run(
            arguments,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        if (done.returncode != 0) != ("fails" in block.words):
            raise PageError(f"{block}: {what}\nended with status {done.returncode}:\n{done.stdout}")
        return done.stdout

    def _start(self, block: Block, command: Command, text: str) -> None:
        """Start a command that goes on, and wait until it has printed what the page shows."""
        output = self.folder / f".output{len(self.outputs)}"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                ["bash", "-euc", f"exec {text[:-1]}"],
                cwd=self.folder,
                env=self.environment,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        self._servers.append(Server(process, output))
        expected = tuple(self._here(line) for line in command.expected)
        end = time.monotonic() + START_S
        while True:
            ended = process.poll() is not None
            printed = output.read_text(encoding="utf-8", errors="replace")
            # The last line may be half written.
            printed = printed[: printed.rfind("\n") + 1]
            self.outputs[command.text] = printed
            if matches(expected, printed, whole=False):
                return
            if ended or time.monotonic() > end:
                raise PageError(
                    f"{block}: $ {text}\nexpected, from the page:\n" + "\n".join(expected)
                    + f"\ngot, {'until it ended' if ended else f'in {START_S} s'}:\n{printed}"
                )  # fmt: skip
            time.sleep(0.05)

    def _end(self, server: Server, where: str) -> None:
        server.process.send_signal(signal.SIGTERM)
        try:
            status = server.process.wait(END_S)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()
            raise PageError(
                f"{where}: expected the server to stop in {END_S} s, it did not"
            ) from None
        if status != 0:
            printed = server.output.read_text(encoding="utf-8", errors="replace")
            raise PageError(f"{where}: expected a clean stop, got status {status}:\n{printed}")
