"""A stranger's kernel libraries and architecture, built from the pages of the guide alone."""

import secrets
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pages.following import Follower

from oot.fresh import ROOT, Fresh, ask_python

pytestmark = pytest.mark.timeout(5400)
GUIDE = ROOT / "docs" / "guide"
HERE = Path(__file__).parent
QUESTION = "Name three colours."


@pytest.fixture(scope="module")
def kernels(fresh: Fresh, tmp_path_factory: pytest.TempPathFactory) -> Follower:
    """The folder in which the page on kernel libraries was followed, in the fresh environment."""
    return _followed(fresh, tmp_path_factory.mktemp("kernels"), "write-a-kernel-library.md")


@pytest.fixture(scope="module")
def architecture(fresh: Fresh, tmp_path_factory: pytest.TempPathFactory) -> Follower:
    """The folder in which the page on architectures was followed."""
    return _followed(fresh, tmp_path_factory.mktemp("architecture"), "write-an-architecture.md")


def _followed(fresh: Fresh, folder: Path, page: str) -> Follower:
    follower = Follower(folder, fresh.bin)
    follower.follow(GUIDE / page)
    return follower


def _answer(fresh: Fresh, follower: Follower, model: str, *options: str) -> str:
    return fresh.run(
        "radiance", "run", model, QUESTION, "--temp", "0", "--max-tokens", "24", *options,
        cwd=follower.folder,
    )  # fmt: skip


def test_the_page_on_kernels_holds_outside_the_checkout(kernels: Follower) -> None:
    """Compiled against the installed header, checked, found, shown, and it served an answer."""
    shown = {k: v for k, v in kernels.outputs.items() if k.startswith("radiance")}
    assert any("mylib.rope_c" in v for k, v in shown.items() if "--debug-selection" in k)
    assert any("mylib.blocks_c" in v for k, v in shown.items() if "--debug-graph" in k)
    assert any("mylib" in v and "named first" in v for k, v in shown.items() if "plugins" in k)


def test_the_shared_object_needs_nothing_of_radiance(fresh: Fresh, kernels: Follower) -> None:
    """The stranger's machine code links libc and libm only, and its wheel names the platform."""
    fresh.run("python", "-m", "pip", "wheel", "-q", "--no-deps", "-w", kernels.folder, "./mylib",
              cwd=kernels.folder)  # fmt: skip
    (wheel,) = kernels.folder.glob("radiance_mylib-*.whl")
    assert "-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as packed:
        assert "mylib/libmylib.so" in packed.namelist()
    needed = (kernels.folder / "mylib" / "mylib" / "libmylib.so").read_bytes()
    assert b"radiance_core" not in needed
    assert b"libavx" not in needed


def test_a_strangers_rows_compute_what_libavx_computes(fresh: Fresh, kernels: Follower) -> None:
    """The lookup is equal bit for bit, the rotation up to the rounding of f32.

    Where all rows are equal, so are a model's logits; else they are close, the bound being three
    times what one bit of rounding was seen to do to int8 codes (0.037). Rows stay independent.
    """
    rows = ask_python(fresh, HERE / "comparing.py", "mylib", "libavx", secrets.randbits(32))
    assert isinstance(rows, dict)
    assert rows["embed_lookup"]["cases"] > 0
    assert rows["embed_lookup"]["x"] == [0.0, 1.0]
    assert rows["rope"]["cases"] > 0
    assert rows["rope"]["qkv"][0] < 1e-5
    found = _logits(fresh, kernels)
    assert found["gap"] < (0.11 if rows["rope"]["qkv"][0] else 1e-30)
    assert found["same_both_ways"]


def test_it_is_the_strangers_code_that_runs(fresh: Fresh, kernels: Follower) -> None:
    """A wrong rotation in the stranger's shared object moves the logits."""
    (installed,) = fresh.env.glob("lib/python*/site-packages/mylib/libmylib.so")
    right = installed.read_bytes()
    wrong = kernels.folder / "wrong"
    shutil.copytree(kernels.folder / "mylib", wrong, dirs_exist_ok=True)
    header = (wrong / "rope.h").read_text("utf-8")
    (wrong / "rope.h").write_text(header.replace("(float)sin(", "-(float)sin("), "utf-8")
    flags = fresh.run("python", "-m", "radiance_abi", "--cflags").split()
    compiled = kernels.folder / "wrong.so"
    command = ["cc", "-O2", "-shared", "-fPIC", *flags, str(wrong / "mylib.c"), "-o", str(compiled)]
    subprocess.run([*command, "-lm"], check=True)
    installed.unlink()
    try:
        shutil.copyfile(compiled, installed)
        assert _logits(fresh, kernels)["gap"] > 0.11
    finally:
        installed.write_bytes(right)


def _logits(fresh: Fresh, kernels: Follower) -> dict[str, Any]:
    model = kernels.folder / "smollm2.gguf"
    found = ask_python(fresh, HERE / "logits.py", model, "mylib,libavx", "libavx")
    assert isinstance(found, dict)
    return found


def test_a_library_that_is_not_named_is_not_imported(fresh: Fresh, kernels: Follower) -> None:
    """With `--kernels` a library that the list leaves out is shown as off, and stays unloaded."""
    assert kernels.outputs
    shown = fresh.run("radiance", "plugins", "--kernels", "libavx")
    assert any("mylib" in line and "not loaded" in line for line in shown.splitlines())


def test_the_page_on_architectures_holds_outside_the_checkout(
    fresh: Fresh, architecture: Follower
) -> None:
    """The same weights under llama's names give the same graph, and so the same bytes."""
    folder = architecture.folder
    config = folder / "pocket-tiny" / "config.json"
    config.write_text(config.read_text().replace('"pocket_size": 3, ', ""))
    shutil.rmtree(folder / "llama-tiny", ignore_errors=True)
    fresh.run("python", HERE / "renaming.py", cwd=folder)
    mine = _answer(fresh, architecture, "pocket-tiny")
    assert mine == _answer(fresh, architecture, "llama-tiny")
    assert len(mine) > 10
