"""The kernel rows of every instruction level that this machine runs, callable from tests.

``native.library`` loads only the best level; comparing levels bit for bit needs the others too.
Calls return the status that the kernel gave, so that refusals can be tested.
"""

import importlib.util
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radiance_abi import native
from radiance_abi.dtypes import dtype_of_dlpack
from radiance_abi.encoding import Encoding, decode
from radiance_abi.native import arguments
from radiance_abi.vocabulary import STANDARD

LEVELS = ("avx512vnnidual", "avx512vnni", "avx512", "avx2vnni", "avx2")
UNSUPPORTED = -18


@dataclass
class Stored:
    """A weight as a kernel stores it; ``layout`` is the RadLayout, None for one taken as it is."""

    array: np.ndarray
    layout: Any


class Row:
    """One kernel row; ``c`` is its RadKernel."""

    def __init__(self, kernel: Any) -> None:
        self.c, self.ffi = kernel, native.ffi()
        self.op, self.name = (self.ffi.string(t).decode() for t in (kernel.op, kernel.name))
        self.schema = STANDARD[self.op]

    def layout(
        self, encoding: Encoding, rows: int, cols: int, params: Mapping[str, Any], operand: int
    ) -> tuple[int, Any]:
        """Ask the layout hook; returns its status and the RadLayout that it filled."""
        out = self.ffi.new("RadLayout *")
        out.struct_bytes = self.ffi.sizeof("RadLayout")
        if not self.c.layout:
            return UNSUPPORTED, out
        geometry, _kept = arguments.geometry(self.schema, params)
        encoded, _planes = arguments.encoding(encoding, rows, cols)
        return self.c.layout(geometry, operand, encoded, out), out

    def store(
        self,
        encoding: Encoding,
        planes: Mapping[str, np.ndarray],
        rows: int,
        cols: int,
        params: Mapping[str, Any],
        operand: int,
        cuts: Sequence[int] = (),
    ) -> Stored:
        """Lay a weight out, in the row ranges that ``cuts`` separates."""
        status, layout = self.layout(encoding, rows, cols, params, operand)
        if status == UNSUPPORTED:
            return Stored(planes["codes"], None)
        assert status == 0, f"layout of {encoding} answered {status}"
        shape = tuple(layout.shape[i] for i in range(layout.ndim))
        kind = dtype_of_dlpack(layout.dtype.code, layout.dtype.bits).numpy
        assert kind is not None, "layouts are stored in whole items"
        stored = _aligned(int(np.prod(shape)) * kind.itemsize).view(kind).reshape(shape)
        stored.view(np.uint8)[...] = 0xA5
        geometry, _kept = arguments.geometry(self.schema, params)
        encoded, _planes = arguments.encoding(encoding, rows, cols)
        for first, last in itertools.pairwise([0, *cuts, rows]):
            parts = [_part(p, planes[p.role], rows, first, last) for p in encoding.planes]
            tensors, _dims = arguments.tensors(parts)
            status = self.c.relayout(
                geometry, operand, encoded, layout, tensors, self._pointer(stored), first, last
            )
            assert status == 0, f"relayout of {encoding} answered {status}"
        return Stored(stored, layout)

    def unstore(
        self,
        encoding: Encoding,
        stored: Stored,
        rows: int,
        cols: int,
        params: Mapping[str, Any],
        operand: int,
        first: int,
        last: int,
    ) -> dict[str, np.ndarray]:
        """Give planes of rows [first, last) back."""
        out = {}
        for plane in encoding.planes:
            kind, shape = plane.storage(rows if plane.is_table else last - first, cols)
            blank = np.full(int(np.prod(shape)) * kind.itemsize, 0x5A, np.uint8)
            out[plane.role] = blank.view(kind).reshape(shape)
        tensors, _dims = arguments.tensors(list(out.values()))
        geometry, _kept = arguments.geometry(self.schema, params)
        encoded, _planes = arguments.encoding(encoding, rows, cols)
        at = self._pointer(stored.array)
        status = self.c.unrelayout(
            geometry, operand, encoded, stored.layout, at, tensors, first, last
        )
        assert status == 0, f"unrelayout of {encoding} answered {status}"
        return out

    def __call__(
        self,
        operands: Sequence[np.ndarray | Stored | None],
        params: Mapping[str, Any],
        grouping: int = 0,
    ) -> int:
        """Run all pieces, ``grouping`` at a time (0: at once); returns the first bad status."""
        geometry, _kept = arguments.geometry(self.schema, params)
        state = self.ffi.new("void **")
        if self.c.init and (status := self.c.init(geometry, state)):
            return int(status)
        call, _tensors = self.bind(operands, params, state[0])
        try:
            return self._run(call, grouping)
        finally:
            if self.c.fini:
                self.c.fini(state[0])

    def bind(
        self,
        operands: Sequence[np.ndarray | Stored | None],
        params: Mapping[str, Any],
        state: Any = None,
        workers: int = 1,
    ) -> tuple[Any, Any]:
        """Return a RadCall with scratch for that many workers, and what must outlive it."""
        arrays = [o.array if isinstance(o, Stored) else o for o in operands]
        call, layouts = self.ffi.new("RadCall *"), self.ffi.new("RadLayout *[]", len(arrays))
        for i, operand in enumerate(operands):
            if isinstance(operand, Stored) and operand.layout is not None:
                layouts[i] = operand.layout
        tensors, dims = arguments.tensors(arrays)
        values, present = arguments.call_params(self.schema, params)
        geometry, kept = arguments.geometry(self.schema, params)
        need = -(-self.c.scratch(geometry) // 64) * 64 if self.c.scratch else 0
        scratch = _aligned(need * workers)
        call.struct_bytes = self.ffi.sizeof("RadCall")
        call.tensors, call.layouts, call.params, call.params_present = (
            tensors, layouts, values, present,
        )  # fmt: skip
        call.state = state or self.ffi.NULL
        call.scratch, call.scratch_bytes = self._pointer(scratch), need
        call.num_tensors, call.num_params = len(arrays), len(self.schema.params)
        return call, (operands, layouts, tensors, dims, values, scratch, kept)

    def _run(self, call: Any, grouping: int) -> int:
        pieces = self.c.tiles(call) if self.c.tiles else 1
        if pieces < 0:
            return int(pieces)
        step = grouping or max(pieces, 1)
        for first in range(0, pieces, step):
            status = self.c.run(call, first, min(first + step, pieces), 0)
            if status:
                return int(status)
        return 0

    def _pointer(self, array: np.ndarray) -> Any:
        return self.ffi.cast("void *", array.ctypes.data)


class Level:
    """The rows of one instruction level."""

    def __init__(self, name: str, library: Any) -> None:
        self.name = name
        self.rows = [Row(library.kernels[i]) for i in range(library.num_kernels)]

    def row(self, op: str, name: str | None = None) -> Row:
        """Return the row of an op, by name when it has several."""
        found = [r for r in self.rows if r.op == op and name in (None, r.name)]
        assert found, f"no row {name or ''} of {op}"
        return found[0]


def _part(plane: Any, array: np.ndarray, rows: int, first: int, last: int) -> np.ndarray:
    if plane.is_table:
        return array
    block = plane.block[0] or rows
    return array[first // block : -(-last // block)]


def _aligned(nbytes: int, to: int = 256) -> np.ndarray:
    raw = np.zeros(nbytes + to, np.uint8)
    skip = -raw.ctypes.data % to
    return raw[skip : skip + nbytes]


def shared_object() -> Path:
    """Return where the installed package keeps its shared object."""
    spec = importlib.util.find_spec("radiance_libavx")
    assert spec is not None, "radiance-libavx is not installed"
    assert spec.submodule_search_locations is not None, "radiance_libavx is a package"
    return Path(spec.submodule_search_locations[0]) / "libavx.so"


def all_levels() -> Iterator[Level]:
    """Yield every level that this machine runs, best first."""
    import ctypes

    # cffi knows only the contract's two exports; this one more is found by name.
    symbol = ctypes.CDLL(str(shared_object())).rad_libavx_library_at
    at = native.ffi().cast(
        "const RadLibrary *(*)(const char *)", ctypes.cast(symbol, ctypes.c_void_p).value
    )
    for name in LEVELS:
        library = at(name.encode())
        if library:
            yield Level(name, library)


@pytest.fixture(scope="session")
def levels() -> list[Level]:
    """Every level that this machine runs, best first."""
    return list(all_levels())


@pytest.fixture(scope="session")
def best(levels: list[Level]) -> Level:
    """The level that ``native.library`` chooses here."""
    return levels[0]


SPELLINGS = {
    "f32": "f32",
    "f16": "f16",
    "bf16": "bf16",
    "fp8": "fp8_e4m3",
    "fp8_bf16": "fp8_e4m3*bf16[128x128]",
    "fp8_f32": "fp8_e4m3*f32[128x128]",
    "fp8_64": "fp8_e4m3*f32[32x64]",
    "fp8_rows": "fp8_e4m3*f16[1x*]",
    "fp8_one": "fp8_e4m3*f32[*x*]",
    "q4_0": "i4*f16[1x32]",
    "q4_1": "affine:codes=u4[1x1],scale=f16[1x32],min=f16[1x32]",
    "q5_0": "i5*f16[1x32]",
    "q5_1": "affine:codes=u5[1x1],scale=f16[1x32],min=f16[1x32]",
    "q8_0": "i8*f16[1x32]",
    "q2_k": "affine:codes=u2[1x1],scale=u4[1x16],scale.1=f16[1x256],min=u4[1x16],min.1=f16[1x256]",
    "q3_k": "i3*i6[1x16]*f16[1x256]",
    "q4_k": "affine:codes=u4[1x1],scale=u6[1x32],scale.1=f16[1x256],min=u6[1x32],min.1=f16[1x256]",
    "q5_k": "affine:codes=u5[1x1],scale=u6[1x32],scale.1=f16[1x256],min=u6[1x32],min.1=f16[1x256]",
    "q6_k": "i6*i8[1x16]*f16[1x256]",
    "iq4_nl": "affine:codes=u4[1x1],scale=f16[1x32],table=i8{1x16}",
    "iq4_xs": "affine:codes=u4[1x1],scale=i6[1x32],scale.1=f16[1x256],table=i8{1x16}",
    "mxfp4": "fp4_e2m1*e8m0[1x32]",
    "mxfp4_64": "fp4_e2m1*e8m0[1x64]",
    "i8_rows": "i8*f32[1x*]",
    "i4_bf16": "i4*bf16[1x128]",
    "i2": "i2*f32[1x64]",
}
"""What is read: a short name and the encoding."""

INTEGERS = [
    name for name, text in SPELLINGS.items() if "fp8" not in text and ("*" in text or ":" in text)
]
PLAIN = ["f32", "f16", "bf16", "fp8", "fp8_bf16", "fp8_f32", "fp8_64", "fp8_rows", "fp8_one"]


@dataclass
class RandomWeight:
    """Planes drawn at random, and the numbers they stand for in float64."""

    encoding: Encoding
    rows: int
    cols: int
    planes: dict[str, np.ndarray]

    @property
    def values(self) -> np.ndarray:
        """Return the decoded weight, float64 [rows, cols]."""
        return decode(self.encoding, self.planes, (self.rows, self.cols), np.float64)


def draw_weight(name: str, rows: int, cols: int, rng: np.random.Generator) -> RandomWeight:
    """Return a weight of an encoding with every code, scale and minimum drawn at random."""
    encoding = Encoding.parse(SPELLINGS[name])
    planes = {}
    for plane in encoding.planes:
        kind, shape = plane.storage(rows, cols)
        if plane.element.packed or kind.itemsize == 1:
            bits = rng.integers(0, 256, size=shape, dtype=np.uint8)
            if plane.dtype == "fp8_e4m3":
                bits = np.where(bits & 0x7F == 0x7F, 0, bits).astype(np.uint8)  # no NaN
            if plane.dtype == "e8m0":
                bits = 124 + bits % 8
            if plane.element.packed:
                bits = _clear_spare_bits(bits, plane, cols)
            planes[plane.role] = bits.view(kind) if kind.itemsize == 1 else bits
        else:
            planes[plane.role] = rng.normal(size=shape).astype(kind)
    return RandomWeight(encoding, rows, cols, planes)


def _clear_spare_bits(bits: np.ndarray, plane: Any, cols: int) -> np.ndarray:
    spare = -plane.shape(1, cols)[1] * plane.element.bits % 8
    bits[:, -1] &= 0xFF >> spare
    return bits


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests that name an encoding one run for each that is read."""
    for argument, names in (("integer", INTEGERS), ("plain", PLAIN), ("encoded", list(SPELLINGS))):
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, names)


@pytest.fixture
def rng() -> np.random.Generator:
    """Fresh random numbers; the seed is printed when a test fails."""
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def draw() -> Any:
    """The function that draws weights."""
    return draw_weight


@pytest.fixture(scope="session")
def spellings() -> dict[str, str]:
    """The encodings that are read, by short name."""
    return SPELLINGS
