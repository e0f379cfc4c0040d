"""A mapped file that others shorten or write to is named, however it is read at that moment."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from radiance_core.model_files import ModelFileError, open_checkpoint
from radiance_core.model_files.mapping import MappedFile

from .gguf_writer import Gguf
from .safetensors_writer import write

PAGE = os.sysconf("SC_PAGESIZE")
SIZE = 64 * PAGE
OPEN = """
import mmap, os, sys
from pathlib import Path
from radiance_core.model_files import gguf_native
from radiance_core.model_files.mapping import MappedFile
path = Path(sys.argv[1])
"""
READS = {
    "a parser": "file = MappedFile(path); os.truncate(path, 0); file.raw[8:16]",
    "numpy": "file = MappedFile(path); os.truncate(path, 0); file.view(0, file.size).sum()",
    "C": """
file = MappedFile(path)
os.truncate(path, 0)
gguf_native.strings(file.raw, 0, 1)
""",
    "another thread": """
import threading
file = MappedFile(path)
os.truncate(path, 4096)
threads = [threading.Thread(target=lambda: file.view(0, file.size).copy()) for _ in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
""",
    "after another was closed": """
other = MappedFile(Path(sys.executable))
other.close()
del other
file = MappedFile(path)
os.truncate(path, 0)
file.raw[8:16]
""",
}
NOT_OURS = {
    "unguarded": "path.touch()",
    "no longer guarded": "gguf_native.guard(mapped, 'not to be seen\\n')()",
    "beside a guarded one": "kept = MappedFile(Path(sys.executable))",
}
FOREIGN = """
with path.open("r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
MappedFile(Path(sys.executable)).close()
{before}
os.truncate(path, 0)
mapped[8]
"""


def ended(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script on a file of 64 pages, until it ends."""
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(SIZE))
    return subprocess.run(
        [sys.executable, "-c", OPEN + script, str(path)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("reader", READS)
def test_a_shortened_file_is_named(tmp_path: Path, reader: str) -> None:
    """Whoever reads past the new end, the process names the file in one line and exits with 1."""
    done = ended(tmp_path, READS[reader])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{tmp_path / 'model.gguf'}: expected its {SIZE} bytes to stay while they are "
        "read, got fewer, or a disk that fails; write a new file beside it and move it into place, "
        "and start again when all of it is there\n"
    )


@pytest.mark.parametrize("before", NOT_OURS)
def test_other_mappings_are_left_alone(tmp_path: Path, before: str) -> None:
    """SIGBUS of a mapping that is not guarded, or no longer, kills as it does without us."""
    done = ended(tmp_path, FOREIGN.format(before=NOT_OURS[before]))
    assert (done.returncode, done.stderr) == (-signal.SIGBUS, "")


def test_a_signal_that_was_sent_is_left_alone(tmp_path: Path) -> None:
    """SIGBUS by ``kill`` kills, also while a file is mapped."""
    done = ended(tmp_path, "file = MappedFile(path); os.kill(os.getpid(), 7); print('alive')")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGBUS, "", "")


def test_an_earlier_handler_gets_what_is_not_ours(tmp_path: Path) -> None:
    """Python's own, which prints where the program was, goes on working."""
    done = ended(tmp_path, "import faulthandler; faulthandler.enable()" + FOREIGN.format(before=""))
    assert done.returncode == -signal.SIGBUS
    assert "Bus error" in done.stderr


@pytest.mark.parametrize("change", ["longer", "shorter", "same length"])
def test_a_file_that_was_written_to_is_refused(tmp_path: Path, change: str) -> None:
    """Length or time of the opened file differ: what was read is not to be trusted."""
    path = tmp_path / "f"
    path.write_bytes(bytes(100))
    file = MappedFile(path)
    file.check_unchanged()
    size = {"longer": 101, "shorter": 99, "same length": 100}[change]
    os.truncate(path, size)
    os.utime(path, ns=(0, 1 if size == 100 else path.stat().st_mtime_ns))
    told = rf"/f: expected the 100 bytes .* when it was opened, got {size}, written to .* move it"
    with pytest.raises(ModelFileError, match=told):
        file.check_unchanged()


def test_another_file_of_that_name_is_no_fault(tmp_path: Path) -> None:
    """What is mapped stays what it was when a new file is moved to its name, or it is deleted."""
    path, new = tmp_path / "f", tmp_path / "new"
    path.write_bytes(bytes(100))
    new.write_bytes(bytes(50))
    file = MappedFile(path)
    new.rename(path)
    file.check_unchanged()
    path.unlink()
    file.check_unchanged()


def test_a_checkpoint_looks_at_all_its_files(tmp_path: Path) -> None:
    """Both formats say which of their files was written to."""
    gguf = Gguf().tensor("w", (8,), 0, bytes(32)).write(tmp_path / "m.gguf")
    tensors = write(tmp_path / "m.safetensors", {"w": np.zeros(8, np.float32)})
    for path in (gguf, tensors):
        checkpoint = open_checkpoint(path)
        checkpoint.check_unchanged()
        os.truncate(path, path.stat().st_size + 1)
        with pytest.raises(ModelFileError, match=rf"{path.name}: expected the \d+ bytes"):
            checkpoint.check_unchanged()
