"""Loading: every byte of every plane reaches its place, whatever the chunks, and faults surface."""

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiance_abi import Encoding, Kernel, Layout, affine, concat, copy, plain
from radiance_abi.encoding import rows_and_cols
from radiance_core.graph.errors import WeightError
from radiance_core.graph.ir import GraphWeight
from radiance_core.load import weights
from radiance_core.load.loading import Loading
from radiance_core.load.weights import zeros
from radiance_core.plan.sites import Site

from ..graph.building import Facts

Q8 = affine("i8", ("f16", 1, 32))
TALL = affine("i8", ("f32", 4, 32))
ALL_ROWS = affine("i8", ("f32", 0, 32))
TABLED = affine("u8", ("f16", 1, 32), table=("i8", 1, 16))


@dataclass
class Memory:
    """A checkpoint of random planes."""

    facts: dict[str, Facts]
    planes: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    released: list[str] = field(default_factory=list)
    reads: list[tuple[str, int, int | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = np.random.default_rng()
        for name, f in self.facts.items():
            rows, cols = rows_and_cols(f.shape)
            self.planes[name] = {}
            for plane in f.encoding.planes:
                dtype, shape = plane.storage(rows, cols)
                self.planes[name][plane.role] = rng.integers(
                    0, 256, (*shape, dtype.itemsize), np.uint8
                ).view(dtype)[..., 0]

    @property
    def tensors(self) -> dict[str, Facts]:
        return self.facts

    def read(self, name: str, first_row: int = 0, last_row: int | None = None) -> dict:
        self.reads.append((name, first_row, last_row))
        f = self.facts[name]
        rows, _ = rows_and_cols(f.shape)
        last = rows if last_row is None else last_row
        assert 0 <= first_row < last <= rows
        got = {}
        for plane in f.encoding.planes:
            tall = plane.block[0]
            whole = self.planes[name][plane.role]
            if plane.is_table:
                got[plane.role] = whole
            elif tall == 0:
                assert (first_row, last) == (0, rows), "a plane of all rows is read whole"
                got[plane.role] = whole
            else:
                assert first_row % tall == 0
                got[plane.role] = whole[first_row // tall : -(-last // tall)]
        return got

    def batch(self) -> None:
        return None

    def check_unchanged(self) -> None:
        """No file stands behind it."""

    def release(self, name: str) -> None:
        self.released.append(name)


def gather(
    encoding: Encoding,
    layout: Layout,
    planes: dict[str, np.ndarray],
    stored: np.ndarray,
    first: int,
    last: int,
    geometry: object,
    operand: int,
) -> None:
    """A layout of rows: codes, then the bytes of each row's scales."""
    assert first % layout.row_block == 0
    codes = planes["codes"].view(np.uint8)
    stored[first:last, : codes.shape[1]] = codes
    tall = encoding.plane("scale").block[0] or last
    scale = np.repeat(planes["scale"], tall, 0)[: last - first]
    stored[first:last, codes.shape[1] :] = np.ascontiguousarray(scale).view(np.uint8)


def site(
    encoding: Encoding,
    shape: tuple[int, ...],
    names: tuple[str, ...],
    layout: Layout | None = None,
    relayout: object = gather,
) -> Site:
    source = concat(*names) if len(names) > 1 else copy(*names)
    weight = GraphWeight("w", shape, encoding, source)
    kernel = Kernel(op="op", name="k", run=lambda call: None, relayout=relayout)  # type: ignore[arg-type]
    return Site(weight, layout, "lib", kernel, 1, {})


def load(s: Site, memory: Memory, threads: int = 2) -> np.ndarray:
    return Loading({s.key: s}, memory, threads).finish()[s.key]


def small_chunks(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(weights, "CHUNK_BYTES", size)


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(1, 4000),
)
def test_plain_parts_are_stacked_byte_for_byte(rows: list[int], cols: int, chunk: int) -> None:
    """Without a layout the site is the parts' bytes one after the other, in any chunks."""
    memory = Memory({f"t{i}": Facts((n, cols), plain("bf16")) for i, n in enumerate(rows)})
    s = site(plain("bf16"), (sum(rows), cols), tuple(memory.facts))
    with pytest.MonkeyPatch.context() as patch:
        small_chunks(patch, chunk)
        stored = load(s, memory)
    expected = np.concatenate([memory.planes[n]["codes"] for n in memory.facts])
    assert stored.tobytes() == expected.tobytes()
    assert stored.ctypes.data % 256 == 0
    assert sorted(memory.released) == sorted(memory.facts)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from([1, 3, 16, 64]),
    st.sampled_from([Q8, TALL]),
    st.integers(1, 3000),
)
def test_laid_out_parts_are_stacked(
    blocks: list[int], width: int, row_block: int, encoding: Encoding, chunk: int
) -> None:
    """A layout's rows are the parts' rows in order, also when its blocks are larger than a part."""
    tall, cols = encoding.block_rows, 32 * width
    memory = Memory({f"t{i}": Facts((n * tall, cols), encoding) for i, n in enumerate(blocks)})
    total = sum(blocks) * tall
    scale_bytes = np.dtype(encoding.plane("scale").element.numpy).itemsize * width
    layout = Layout("rows", "u8", (total, cols + scale_bytes), row_block)
    with pytest.MonkeyPatch.context() as patch:
        small_chunks(patch, chunk)
        stored = load(site(encoding, (total, cols), tuple(memory.facts), layout), memory)
    planes = [memory.planes[n] for n in memory.facts]
    codes = np.concatenate([p["codes"] for p in planes]).view(np.uint8)
    scale = np.repeat(np.concatenate([p["scale"] for p in planes]), tall, 0)
    expected = np.concatenate([codes, scale.view(np.uint8).reshape(total, -1)], 1)
    assert stored.tobytes() == expected.tobytes()


def test_a_plane_of_all_rows_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight that cannot be cut is laid out in one piece, whatever the chunk."""
    small_chunks(monkeypatch, 8)
    memory = Memory({"t": Facts((40, 32), ALL_ROWS)})
    layout = Layout("rows", "u8", (40, 36), 16)
    load(site(ALL_ROWS, (40, 32), ("t",), layout), memory)
    assert memory.reads == [("t", 0, 40)]


def test_experts_are_read_as_rows() -> None:
    """A stacked weight of three extents is its flattened rows."""
    memory = Memory({"t": Facts((3, 5, 7), plain("f32"))})
    stored = load(site(plain("f32"), (3, 5, 7), ("t",)), memory)
    assert stored.tobytes() == memory.planes["t"]["codes"].tobytes()


def test_vectors_join_into_one_row() -> None:
    """Stacked vectors lengthen one row, as they are or laid out; only plain ones can."""
    memory = Memory({"a": Facts((3,), plain("f32")), "b": Facts((5,), plain("f32"))})
    expected = np.concatenate([memory.planes[n]["codes"].reshape(-1) for n in "ab"])
    assert load(site(plain("f32"), (8,), ("a", "b")), memory).tobytes() == expected.tobytes()

    def halves(*args: object) -> None:
        planes, stored, first, last = args[2:6]
        assert (first, last) == (0, 1)
        stored[...] = planes["codes"].reshape(2, 4)  # type: ignore[index]

    laid = site(plain("f32"), (8,), ("a", "b"), Layout("halves", "f32", (2, 4)), halves)
    assert load(laid, memory).tobytes() == expected.tobytes()
    memory = Memory({n: Facts((32,), Q8) for n in "ab"})
    with pytest.raises(WeightError, match="weight w: expected plain vectors to stack, got"):
        load(site(Q8, (64,), ("a", "b"), Layout("x", "u8", (64,))), memory)


def test_packed_layouts_are_rows_of_bytes() -> None:
    """A layout of elements smaller than a byte is handed over as bytes."""
    seen = []

    def fill(*args: object) -> None:
        seen.append((args[3].dtype, args[3].shape))  # type: ignore[attr-defined]

    memory = Memory({"t": Facts((4, 32), Q8)})
    s = site(Q8, (4, 32), ("t",), Layout("nibbles", "u4", (4, 32)), fill)
    load(s, memory)
    assert seen == [(np.dtype(np.uint8), (64,))]


def test_a_fault_in_a_relayout_surfaces() -> None:
    """What a library's relayout raises is told with weight, kernel, layout and rows."""

    def broken(*args: object) -> None:
        raise IndexError("off by one")

    memory = Memory({"t": Facts((4, 32), Q8)})
    s = site(Q8, (4, 32), ("t",), Layout("own", "u8", (4, 34)), broken)
    with pytest.raises(WeightError) as caught:
        load(s, memory)
    assert str(caught.value) == (
        "weight w: expected kernel lib.k to make layout own of rows 0..4, got IndexError: off by "
        "one; report it to the author of the library"
    )
    with pytest.raises(WeightError, match="asks for layout own and has no relayout to make it"):
        load(site(Q8, (4, 32), ("t",), Layout("own", "u8", (4, 34)), None), memory)


def test_a_fault_ends_loading_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fault pieces that have not begun are not begun."""
    small_chunks(monkeypatch, 1)
    ran = []
    first = threading.Event()

    def broken(*args: object) -> None:
        ran.append(args[4])
        if len(ran) == 1:
            first.set()
            raise ValueError("no")
        first.wait(5)
        threading.Event().wait(0.01)

    memory = Memory({"t": Facts((500, 32), Q8)})
    s = site(Q8, (500, 32), ("t",), Layout("own", "u8", (500, 34)), broken)
    with pytest.raises(WeightError, match="ValueError: no"):
        load(s, memory, threads=1)
    assert len(ran) < 100


def test_tables_of_stacked_parts_must_agree() -> None:
    """One layout holds one table, so parts with different tables are refused by name."""
    memory = Memory({n: Facts((4, 32), TABLED) for n in "ab"})
    s = site(TABLED, (8, 32), ("a", "b"), Layout("rows", "u8", (8, 34)))
    memory.planes["b"]["table"] = memory.planes["a"]["table"].copy()
    load(s, memory)
    memory.planes["b"]["table"][0, 3] += 1
    with pytest.raises(WeightError) as caught:
        load(s, memory)
    assert str(caught.value) == (
        "weight: a and b: expected equal planes table to stack them, got two that differ; the "
        "architecture must declare them apart"
    )


def test_zeros_are_aligned() -> None:
    """Memory that kernels see begins at a multiple of 256 and is zero."""
    for n in (1, 77, 4096):
        z = zeros((n, 3), np.dtype(np.float32))
        assert z.ctypes.data % 256 == 0
        assert not z.any()
