"""Make, once, what radiance is compared with: llama.cpp's library and servers, OpenVINO GenAI.

    python benchmarks/peers.py          make what is missing; prints what there is

Everything lies in .cache of this checkout. llama-cpp-python is built from its source distribution,
so that it uses this processor's instructions; its wheel is kept in .cache/wheels. llama-server is
compiled out of the same source against the same libraries. A peer that cannot be made is left out,
and why is kept beside it, so that a comparison can say so.
"""

import os
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache"
LLAMA, OPENVINO = "llama-cpp-python==0.3.36", "openvino-genai==2026.4.*"


@dataclass(frozen=True, slots=True)
class Peers:
    """Where peers are; ``missing`` says why one is not there, by name."""

    python: Path
    llama_server: Path
    missing: dict[str, str]


class Making:
    """The folder that holds the peers, and how each gets there."""

    def __init__(self, cache: Path = CACHE) -> None:
        self._home, self._wheels = cache / "peers", cache / "wheels"
        self._env = self._home / "env"
        self.python = self._env / "bin" / "python"
        self.llama_server = self._home / "llama-server"
        self._steps: dict[str, Callable[[], None]] = {
            "environment": self._environment,
            "llama.cpp": self._llama,
            "openvino-genai": lambda: self._pip("install", OPENVINO),
            "llama-server": self._server,
        }

    def make(self) -> None:
        """Make each that is not there; goes on after a failure."""
        self._home.mkdir(parents=True, exist_ok=True)
        for name, step in self._steps.items():
            done, failed = self._mark(name, "done"), self._mark(name, "failed")
            if done.exists():
                continue
            failed.unlink(missing_ok=True)
            print(f"making {name} …", flush=True)
            try:
                step()
                done.touch()
            except (OSError, subprocess.CalledProcessError) as error:
                failed.write_text(said(error))

    def find(self) -> Peers:
        """Return what is there, making nothing."""
        missing = {}
        for name in self._steps:
            failed = self._mark(name, "failed")
            if not self._mark(name, "done").exists():
                why = failed.read_text() if failed.exists() else "run benchmarks/peers.py first"
                missing[name] = why
        return Peers(self.python, self.llama_server, missing)

    def _mark(self, name: str, state: str) -> Path:
        return self._home / f"{name}.{state}"

    def _environment(self) -> None:
        venv.create(self._env, with_pip=True, clear=True)
        self._pip("install", "-U", "pip")

    def _llama(self) -> None:
        if not (wheels := list(self._wheels.glob("llama_cpp_python-*.whl"))):
            wanted = ("--no-deps", "--no-binary", "llama-cpp-python", LLAMA)
            self._pip("wheel", "-w", str(self._wheels), *wanted)
            wheels = list(self._wheels.glob("llama_cpp_python-*.whl"))
        self._pip("install", f"{wheels[-1]}[server]")

    def _server(self) -> None:
        """Compile llama-server alone; its libraries are those of the wheel."""
        sources = self._home / "source"
        if not list(sources.glob("*/vendor/llama.cpp")):
            wanted = ("--no-deps", "--no-binary", "llama-cpp-python", LLAMA)
            self._pip("download", "-d", str(sources), *wanted)
            with tarfile.open(next(sources.glob("*.tar.gz"))) as archive:
                archive.extractall(sources, filter="data")
        llama = next(sources.glob("*/vendor/llama.cpp"))
        libraries = next(self._env.glob("lib/python*/site-packages/lib"))
        build = self._home / "build"
        given = [f"-DLLAMA={llama}", f"-DLIBRARIES={libraries}"]
        run("cmake", "-S", str(ROOT / "benchmarks" / "llama_server"), "-B", str(build), *given)
        jobs = str(os.cpu_count() or 1)
        run("cmake", "--build", str(build), "--target", "llama-server", "-j", jobs)
        (build / "server" / "llama-server").rename(self.llama_server)

    def _pip(self, *words: str) -> None:
        run(str(self.python), "-m", "pip", "-q", *words)


def run(*command: str) -> None:
    """Run a command; what it printed goes with the error."""
    subprocess.run(command, check=True, text=True, capture_output=True)


def said(error: Exception) -> str:
    """Return why something failed, in one line."""
    printed = getattr(error, "stderr", "") or getattr(error, "stdout", "") or str(error)
    lines = [line.strip() for line in str(printed).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def main() -> int:
    """Make what is missing and print what there is; 0 whatever that is."""
    making = Making()
    making.make()
    peers = making.find()
    print("peers:", peers.python, "and", peers.llama_server)
    for name, why in peers.missing.items():
        print(f"no {name}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
