"""Loading beside a start: C gives what Python gives, for every type, and says what fails."""

import os
import shutil
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from radiance_abi import Kernel, Layout, concat, copy, native
from radiance_core.graph.errors import WeightError
from radiance_core.graph.ir import GraphWeight
from radiance_core.load.loading import Loading
from radiance_core.model_files import gguf_layout
from radiance_core.model_files.gguf import GgufCheckpoint
from radiance_core.plan.sites import Site

from ..model_files.block_packer import BLOCK_TYPES, random_blocks
from ..model_files.gguf_writer import Gguf

COMPILER = shutil.which("gcc") or shutil.which("cc")
ROW_BLOCK = 4


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """Whose layout is the rows of all planes, one plane behind the other."""
    if COMPILER is None:
        assert "CI" not in os.environ, "a C compiler: expected where everything is checked"
        pytest.skip("no C compiler")
    out = tmp_path_factory.mktemp("kernels") / "librows.so"
    source = Path(__file__).with_name("layout_library.c")
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", native.cflags()]
    subprocess.run([COMPILER, *flags, str(source), "-o", str(out)], check=True)
    return native.load(out).kernels[0]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows at a time, so that small weights are many steps and claims."""
    rng = np.random.default_rng()
    step = int(rng.integers(1, 4000))
    monkeypatch.setattr(gguf_layout, "STEP_BYTES", step)
    monkeypatch.setattr(gguf_layout, "CLAIM_BYTES", step * int(rng.integers(1, 4)))


def write(path: Path, tensors: dict[str, tuple[str, int, int]]) -> GgufCheckpoint:
    """A checkpoint of random blocks; tensors are (type, rows, columns) by name."""
    rng = np.random.default_rng()
    file = Gguf().key("general.architecture", "str", "none")
    for name, (kind, rows, cols) in tensors.items():
        id_, type_ = BLOCK_TYPES[kind]
        blocks = random_blocks(kind, rows * cols // type_.block, rng)
        file.tensor(name, (cols, rows), id_, blocks.tobytes())
    return GgufCheckpoint(file.write(path / "weights.gguf"))


def planes_in_rows(checkpoint: GgufCheckpoint, name: str) -> np.ndarray:
    """The tensor's planes as the kernel is to store them."""
    planes = checkpoint.read(name)
    rows = checkpoint.tensors[name].shape[0]
    parts = []
    for plane in checkpoint.tensors[name].encoding.planes:
        part: np.ndarray[Any, Any] = planes[plane.role].view(np.uint8)
        parts.append(np.repeat(part, rows, 0) if plane.is_table else part.reshape(rows, -1))
    return np.concatenate(parts, 1)


def site(
    checkpoint: GgufCheckpoint, names: list[str], kernel: Kernel, width: int, last: int = 0
) -> Site:
    infos = [checkpoint.tensors[n] for n in names]
    rows, cols = sum(i.shape[0] for i in infos), infos[0].shape[1]
    source = concat(*names) if len(names) > 1 else copy(*names)
    weight = GraphWeight("w", (rows, cols), infos[0].encoding, source)
    layout = Layout("rows", "u8", (rows, width), ROW_BLOCK, last)
    geometry = {"M": 1, "n_embd": cols, "n_vocab": rows, "dtype": "f32"}
    return Site(weight, layout, "lib", kernel, 1, geometry)


@pytest.mark.parametrize("kind", BLOCK_TYPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_every_type_is_laid_out_as_its_planes(
    kind: str, threads: int, kernel: Kernel, tmp_path: Path
) -> None:
    """Stacked tensors of any number of rows, cut anywhere, are their planes' rows in order."""
    rng = np.random.default_rng()
    cols = BLOCK_TYPES[kind][1].block * int(rng.integers(1, 5))
    tensors = {f"t{i}": (kind, int(rng.integers(1, 40)), cols) for i in range(4)}
    checkpoint = write(tmp_path, tensors)
    expected = {name: planes_in_rows(checkpoint, name) for name in tensors}
    width = expected["t0"].shape[1]
    sites = [
        site(checkpoint, names, kernel, width) for names in (["t0"], ["t1", "t2", "t3"], ["t2"])
    ]
    loading = Loading({s.key: s for s in sites}, checkpoint, threads)
    assert len(loading._in_c) == len(sites)
    loading.finish()
    for s in sites:
        whole = np.concatenate([expected[name] for name in s.weight.source.names])
        np.testing.assert_array_equal(loading.storages[s.key].reshape(whole.shape), whole)


def test_what_c_does_not_read_is_left_to_python(kernel: Kernel, tmp_path: Path) -> None:
    """Tensors of two types, and kernels written in Python, are laid out all the same."""
    checkpoint = write(tmp_path, {"a": ("Q8_0", 7, 32), "b": ("Q8_0", 5, 32), "c": ("Q4_0", 5, 32)})
    expected = planes_in_rows(checkpoint, "a")
    python = Kernel(op="embed_lookup", name="k", run=print, relayout=kernel.relayout)
    s = site(checkpoint, ["a"], python, expected.shape[1])
    np.testing.assert_array_equal(
        Loading({s.key: s}, checkpoint, 2).finish()[s.key].reshape(expected.shape), expected
    )
    batch = checkpoint.batch()
    call = native.relayout_call(kernel.native, s.weight.encoding, s.layout, s.geometry, 1)  # type: ignore[arg-type]
    assert call is not None
    assert not batch.add(["b", "c"], ROW_BLOCK, call, np.zeros(9, np.uint8))
    assert not batch._weights


def test_a_hook_that_fails_is_named_with_its_rows(kernel: Kernel, tmp_path: Path) -> None:
    """The error names weight, kernel, layout and rows; what the hook answered is its cause."""
    checkpoint = write(tmp_path, {"t": ("Q4_1", 90, 64)})
    width = planes_in_rows(checkpoint, "t").shape[1]
    s = site(checkpoint, ["t"], kernel, width, last=50)
    told = r"weight w: expected kernel lib\.rows to make layout rows of rows \d+\.\.\d+, got Kernel"
    with pytest.raises(WeightError, match=told) as caught:
        Loading({s.key: s}, checkpoint, 2).finish()
    assert "embed_lookup: expected kernel rows to do relayout, got status" in str(caught.value)
    assert "(NOMEM) at M=1 n_embd=64 n_vocab=90" in str(caught.value)


def test_no_memory_for_a_step_is_told(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a thread could not do is told by the one that waits."""
    checkpoint = write(tmp_path, {"t": ("Q4_1", 9, 64)})
    width = planes_in_rows(checkpoint, "t").shape[1]

    work = gguf_layout.GgufBatch.work

    def none(batch: gguf_layout.GgufBatch) -> None:
        batch._library = SimpleNamespace(rad_gguf_lay_out=lambda _: 1)
        work(batch)

    monkeypatch.setattr(gguf_layout.GgufBatch, "work", none)
    s = site(checkpoint, ["t"], kernel, width)
    with pytest.raises(MemoryError, match="laying out a GGUF file"):
        Loading({s.key: s}, checkpoint, 1).finish()


def test_c_has_begun_before_anyone_waits(kernel: Kernel, tmp_path: Path) -> None:
    """Weights are laid out with no help from ``finish``, which says so before it waits."""
    checkpoint = write(tmp_path, {"t": ("Q6_K", 300, 512)})
    expected = planes_in_rows(checkpoint, "t")
    s = site(checkpoint, ["t"], kernel, expected.shape[1])
    waits = threading.Event()
    loading = Loading({s.key: s}, checkpoint, 1, waits.set)
    for thread in loading._threads:
        thread.join(60)
    np.testing.assert_array_equal(loading.storages[s.key].reshape(expected.shape), expected)
    assert not waits.is_set()
    loading.finish()
    assert waits.is_set()
