"""Make installed-looking plugins in a temporary folder: a module and its metadata."""

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class PluginFolder:
    """A folder on sys.path in which distributions can be placed."""

    path: Path

    def add(
        self,
        name: str,
        source: str,
        *,
        group: str = "radiance.kernels",
        module: str | None = None,
        distribution: str | None = None,
        version: str = "0.1",
    ) -> str:
        """Place a distribution whose entry point ``name`` is a module of ``source``."""
        module = module or f"plug_{name}"
        distribution = distribution or f"radiance-{name}"
        (self.path / f"{module}.py").write_text(textwrap.dedent(source))
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}\n")
        return module


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginFolder]:
    """Give a folder for plugins, and forget their modules afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield PluginFolder(tmp_path)
    for name in set(sys.modules) - before:
        if name.startswith("plug_"):
            del sys.modules[name]
