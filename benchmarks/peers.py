"""Make, once, what radiance is compared with: llama.cpp's library and servers, OpenVINO GenAI.

    python benchmarks/peers.py          make what is missing; prints what there is

Everything lies in .cache of this checkout. llama-cpp-python is built from its source distribution,
so that it uses this processor's instructions; its wheel is kept in .cache/wheels. llama-server is
compiled out of the same source against the same libraries. A peer that cannot be made is left out,
and why is kept beside it, so that a comparison can say so. Beside one that is made is of which
version, so that another one here is made anew.
"""

import hashlib
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
LLAMA_VERSION = "0.3.36"
LLAMA, OPENVINO = f"llama-cpp-python=={LLAMA_VERSION}", "openvino-genai==2026.4.*"
BEFORE_SOURCES = ROOT / "benchmarks" / "llama_server" / "tiles.h"


@dataclass(frozen=True, slots=True)
class Peers:
    """Where peers are; ``missing`` says why one is not there, by name."""

    python: Path
    llama_server: Path
    missing: dict[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """How one peer is made: again where another ``pin`` was made last, or what it needs is new."""

    pin: str
    make: Callable[[], None]
    needs: str = ""


class Making:
    """The folder that holds the peers, and how each gets there."""

    def __init__(self, cache: Path = CACHE) -> None:
        build = hashlib.sha256(BEFORE_SOURCES.read_bytes()).hexdigest()[:8]
        self._home, self._wheels = cache / "peers", cache / "wheels" / build
        self._env = self._home / "env"
        self.python = self._env / "bin" / "python"
        self.llama_server = self._home / "llama-server"
        llama = f"{LLAMA} after {BEFORE_SOURCES.name} {build}"
        python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        self.steps = {
            "environment": Step(python, self._environment),
            "llama.cpp": Step(llama, self._llama, "environment"),
            "openvino-genai": Step(OPENVINO, self._openvino, "environment"),
            "llama-server": Step(llama, self._server, "llama.cpp"),
        }

    def make(self) -> None:
        """Make each that is not there as pinned; goes on after a failure."""
        self._home.mkdir(parents=True, exist_ok=True)
        for name, step in self.steps.items():
            if self._is_done(name):
                continue
            self._forget(name)
            failed = self._mark(name, "failed")
            if step.needs and not self._is_done(step.needs):
                failed.write_text(f"{step.needs} could not be made")
                continue
            print(f"making {name} …", flush=True)
            try:
                step.make()
                self._mark(name, "done").write_text(step.pin)
            except Exception as error:
                # Whatever hinders one peer is said in its row; the others are made.
                failed.write_text(said(error))

    def find(self) -> Peers:
        """Return what is there, making nothing."""
        missing = {}
        for name in self.steps:
            failed = self._mark(name, "failed")
            if not self._is_done(name):
                why = failed.read_text() if failed.exists() else "run benchmarks/peers.py first"
                missing[name] = why
        return Peers(self.python, self.llama_server, missing)

    def _is_done(self, name: str) -> bool:
        done = self._mark(name, "done")
        return done.exists() and done.read_text() == self.steps[name].pin

    def _forget(self, name: str) -> None:
        """Take away the marks of a peer and of those that are made with it."""
        for state in ("done", "failed"):
            self._mark(name, state).unlink(missing_ok=True)
        for other, step in self.steps.items():
            if step.needs == name:
                self._forget(other)

    def _mark(self, name: str, state: str) -> Path:
        return self._home / f"{name}.{state}"

    def _environment(self) -> None:
        venv.create(self._env, with_pip=True, clear=True)
        self._pip("install", "-U", "pip")

    def _openvino(self) -> None:
        self._pip("install", OPENVINO)

    def _llama(self) -> None:
        named = f"llama_cpp_python-{LLAMA_VERSION}-*.whl"
        flags = {
            name: f'{os.environ.get(name, "")} -include "{BEFORE_SOURCES}"'.strip()
            for name in ("CFLAGS", "CXXFLAGS")
        }
        if not list(self._wheels.glob(named)):
            wanted = ("--no-deps", "--no-binary", "llama-cpp-python", LLAMA)
            # pip keeps a wheel of its own, however it was compiled.
            self._pip("wheel", "--no-cache-dir", "-w", str(self._wheels), *wanted, **flags)
        wheel = str(the_one(self._wheels, named))
        self._pip("install", "--force-reinstall", "--no-deps", wheel)  # also over another build
        self._pip("install", f"{wheel}[server]")

    def _server(self) -> None:
        """Compile llama-server alone; its libraries are those of the wheel."""
        sources, named = self._home / "source", f"llama_cpp_python-{LLAMA_VERSION}"
        llama = sources / named / "vendor" / "llama.cpp"
        if not llama.exists():
            wanted = ("--no-deps", "--no-binary", "llama-cpp-python", LLAMA)
            self._pip("download", "-d", str(sources), *wanted)
            with tarfile.open(the_one(sources, f"{named}.tar.gz")) as archive:
                archive.extractall(sources, filter="data")
        libraries = the_one(self._env, "lib/python*/site-packages/lib")
        build = self._home / "build"
        given = [f"-DLLAMA={llama}", f"-DLIBRARIES={libraries}"]
        run("cmake", "-S", str(ROOT / "benchmarks" / "llama_server"), "-B", str(build), *given)
        jobs = str(os.cpu_count() or 1)
        run("cmake", "--build", str(build), "--target", "llama-server", "-j", jobs)
        (build / "server" / "llama-server").rename(self.llama_server)

    def _pip(self, *words: str, **environment: str) -> None:
        run(str(self.python), "-m", "pip", "-q", *words, **environment)


def the_one(folder: Path, named: str) -> Path:
    """Return what is named so in a folder, the last of several.

    Raises:
        FileNotFoundError: there is nothing; a step before did not make it.
    """
    if not (found := sorted(folder.glob(named))):
        raise FileNotFoundError(f"{folder}: expected {named}, which is not there")
    return found[-1]


def run(*command: str, **environment: str) -> None:
    """Run a command with more in its environment; what it printed goes with the error."""
    given = os.environ | environment
    subprocess.run(command, check=True, text=True, capture_output=True, env=given)


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
