"""The test library of C kernels, compiled against the header."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from radiance_abi import KernelLibrary, native

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def compiler() -> str:
    found = shutil.which("gcc") or shutil.which("cc")
    if found is None:
        assert "CI" not in os.environ, "a C compiler: expected where everything is checked"
        pytest.skip("no C compiler")
    return found


@pytest.fixture(scope="session")
def library_path(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kernels") / "libsteps.so"
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-fPIC", "-shared"]
    command = [compiler, *flags, native.cflags(), str(HERE / "step_library.c"), "-o", str(out)]
    subprocess.run(command, check=True)
    return out


@pytest.fixture(scope="session")
def library(library_path: Path) -> KernelLibrary:
    return native.load(library_path)
