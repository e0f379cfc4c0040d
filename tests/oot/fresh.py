"""An environment outside the checkout, and the bundled distributions built and installed in it."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = tuple(sorted(p.parent.name for p in ROOT.glob("plugins/*/pyproject.toml")))
BUILD_TOOLS = ("scikit-build-core>=0.11", "hatchling>=1.25", "cmake>=3.20", "ninja")
PIECES = ("build", "dist", "tests", "__pycache__", "*.so", "*.egg-info", ".*_cache")
"""What a copied plugin folder leaves behind: results of earlier builds, and tests."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """``env``: the environment; ``wheels``: what was built; ``outside``: copied plugin folders."""

    folder: Path

    @property
    def env(self) -> Path:
        """The environment."""
        return self.folder / "env"

    @property
    def wheels(self) -> Path:
        """Where wheels are put."""
        return self.folder / "wheels"

    @property
    def bin(self) -> Path:
        """The environment's commands."""
        return self.env / "bin"

    @property
    def environment(self) -> dict[str, str]:
        """Variables for commands: no settings, and of the checks' environment nothing."""
        dropped = ("PYTHON", "RADIANCE_", "VIRTUAL_ENV", "NOX_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        path = [
            p for p in os.environ["PATH"].split(os.pathsep) if p != str(Path(sys.executable).parent)
        ]
        links = f"{self.wheels} {os.environ.get('PIP_FIND_LINKS', '')}".strip()
        return {
            **kept,
            "PATH": os.pathsep.join([str(self.bin), *path]),
            "PIP_FIND_LINKS": links,
            "OMP_NUM_THREADS": "1",
        }

    def run(self, *arguments: object, cwd: Path | None = None) -> str:
        """Run a command of the environment outside the checkout; return what it printed.

        Raises:
            AssertionError: it failed; with what it printed.
        """
        name, *rest = map(str, arguments)
        done = subprocess.run(
            [self.bin / name, *rest],
            cwd=cwd or self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{name} {' '.join(rest)}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def pip(self, *arguments: object) -> None:
        """Install into the environment."""
        self.run("python", "-m", "pip", "install", "-q", *arguments)

    def wheel(self, folder: Path) -> None:
        """Build a wheel with what the environment has."""
        self.run(
            "python", "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
            "-w", self.wheels, folder,
        )  # fmt: skip

    def built(self, distribution: str) -> Path:
        """Return the wheel of a distribution."""
        (found,) = self.wheels.glob(f"{distribution.replace('-', '_')}-*.whl")
        return found


def distribution_name(folder: Path) -> str:
    """Return the name of the distribution whose folder this is."""
    name: str = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]["name"]
    return name


def make(folder: Path) -> Fresh:
    """Make the environment: core and contract as wheels, then each plugin from a copied folder."""
    fresh = Fresh(folder)
    venv.create(fresh.env, with_pip=True)
    fresh.wheels.mkdir()
    fresh.pip(*BUILD_TOOLS)
    _wheel_of_the_tree(fresh, ROOT / "abi")
    fresh.pip(fresh.built("radiance-abi"))
    _wheel_of_the_tree(fresh, ROOT)
    fresh.pip(fresh.built("radiance"))
    torch = next(r for r in _constraints() if r.startswith("torch=="))
    with ThreadPoolExecutor(2) as pool:
        # The largest download beside the longest compilation.
        downloaded = pool.submit(fresh.pip, torch)
        outside = [_copy(fresh, name) for name in PLUGINS]
        for copy in outside:
            fresh.wheel(copy)
        downloaded.result()
    fresh.pip(*(fresh.built(distribution_name(copy)) for copy in outside))
    return fresh


def _constraints() -> list[str]:
    return (ROOT / "constraints.txt").read_text("utf-8").split("\n")


def _wheel_of_the_tree(fresh: Fresh, folder: Path) -> None:
    """Build core or contract; the folder is copied so that the checkout stays as it is."""
    copy = fresh.folder / "tree" / distribution_name(folder)
    copy.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "CMakeLists.txt"):
        if (folder / name).exists():
            shutil.copyfile(folder / name, copy / name)
    shutil.copytree(folder / "src", copy / "src", ignore=shutil.ignore_patterns(*PIECES))
    fresh.wheel(copy)


def _copy(fresh: Fresh, plugin: str) -> Path:
    return Path(
        shutil.copytree(
            ROOT / "plugins" / plugin,
            fresh.folder / "outside" / plugin,
            ignore=shutil.ignore_patterns(*PIECES),
        )
    )


def ask_python(fresh: Fresh | None, script: Path, *arguments: object) -> object:
    """Run a script in the fresh environment (None: in that of the checks); return its JSON."""
    if fresh is not None:
        copy = fresh.folder / script.name
        shutil.copyfile(script, copy)
        return json.loads(fresh.run("python", copy, *arguments))
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
