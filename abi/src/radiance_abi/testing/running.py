"""Run one kernel row on one case, with fences around every operand.

Memory of an operand, or of each row of one that is given a pitch::

    | fence | operand | fence |          | fence | row 0 | gap | row 1 | gap | ... | fence |

Fences and gaps hold a pattern that is large as a float, so that reading them shows in a result, and
that must still be there afterwards.

One file, because what binds memory, runs a row and looks at its fences shares that drawing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from radiance_abi.dtypes import dtype
from radiance_abi.encoding import rows_and_cols
from radiance_abi.errors import RadianceError
from radiance_abi.kernels import AS_IS, Call, Geometry, Kernel, Layout
from radiance_abi.ops import Operand, extent
from radiance_abi.tensor import Tensor
from radiance_abi.testing.case import Array, Case, Weight, numpy_dtype, operand_dtype

FENCE_BYTES = 256
_ALIGN = 64
_PATTERN = 0xFD  # -4e37 as f32 or bf16
_UNWRITTEN = 0xFF  # NaN as a float, -1 as an integer

Grouping = Sequence[tuple[int, int, int]]
"""Pieces as (first, last, worker), in the order in which they are run."""


class NotReadError(RadianceError):
    """The kernel says that it does not read a weight's encoding."""


class ConformanceError(RadianceError):
    """A kernel breaks a rule that every kernel must keep."""


class Fenced:
    """An array in memory of its own between two fences, its rows apart by a gap when pitched."""

    def __init__(self, shape: Sequence[int], kind: "np.dtype[np.generic]", gap: int = 0) -> None:
        pitch = shape[-1] + gap if len(shape) > 1 else 0
        rows = int(np.prod(shape[:-1])) if len(shape) > 1 else 1
        count = rows * pitch if pitch else int(np.prod(shape))
        raw = np.full(count * kind.itemsize + 2 * FENCE_BYTES + _ALIGN, _PATTERN, np.uint8)
        start = FENCE_BYTES + -(raw.ctypes.data + FENCE_BYTES) % _ALIGN
        body = raw[start : start + count * kind.itemsize].view(kind)
        self.array: Array = (
            body.reshape(*shape[:-1], pitch)[..., : shape[-1]] if pitch else body.reshape(shape)
        )
        self._around = [raw[:start], raw[start + body.nbytes :]]
        if gap and pitch:
            lines = body.view(np.uint8).reshape(rows, -1)
            self._around.append(lines[:, shape[-1] * kind.itemsize :])

    def intact(self) -> bool:
        """Return whether everything around the array still holds the pattern."""
        return all(bool(np.all(part == _PATTERN)) for part in self._around)


@dataclass(slots=True)
class _Bound:
    """A case bound to one kernel: the call, its memory, and what is to be compared afterwards."""

    call: Call
    fences: dict[str, Fenced]
    inputs: dict[str, Array]
    results: list[str]


def geometry_of(kernel: Kernel, params: Geometry) -> Geometry:
    """Return the params that the kernel's hooks see: ``params``, and its axes at their defaults."""
    return {**{axis.name: axis.default for axis in kernel.axes}, **params}


def laid_out(
    kernel: Kernel, weight: Weight, geometry: Geometry, index: int
) -> tuple[Fenced, str, Layout | None]:
    """Return what the kernel stores for a weight, its dtype name, and its layout (None: as it is).

    Raises:
        NotReadError: the kernel does not read the encoding.
    """
    encoding = weight.encoding
    layout = kernel.layout(encoding, weight.shape, geometry, index) if kernel.layout else None
    if (kernel.layout is not None and layout is None) or (layout is None and not encoding.is_plain):
        raise NotReadError(f"{kernel.name} does not read {encoding}")
    if layout is None or layout.name == AS_IS:
        codes = weight.planes["codes"]
        packed = encoding.codes.element.packed
        stored = Fenced(codes.shape if packed else weight.shape, codes.dtype)
        stored.array[...] = codes.reshape(stored.array.shape)
        return stored, encoding.codes.dtype, None
    if kernel.relayout is None:
        raise ConformanceError(f"{kernel.name}: layout {layout.name} without a relayout hook")
    stored = Fenced(layout.shape, dtype(layout.dtype).numpy or np.dtype(np.uint8))
    for first, last in row_ranges(weight, layout):
        planes = planes_of_rows(weight, first, last)
        kernel.relayout(encoding, layout, planes, stored.array, first, last, geometry, index)
    return stored, layout.dtype, layout


def row_ranges(weight: Weight, layout: Layout) -> list[tuple[int, int]]:
    """Return row ranges in descending order that cover a weight and that may be laid out alone."""
    rows, _ = rows_and_cols(weight.shape)
    tall = weight.encoding.block_rows or rows
    step = int(np.lcm(max(layout.row_block, 1), max(tall, 1)))
    step *= max(1, rows // (2 * step))
    return [(first, min(rows, first + step)) for first in range(0, rows, step)][::-1]


def planes_of_rows(weight: Weight, first: int, last: int) -> dict[str, Array]:
    """Return planes narrowed to rows [first, last); tables whole."""
    narrowed = {}
    for plane in weight.encoding:
        array = weight.planes[plane.role]
        tall = plane.block[0]
        whole = plane.is_table or tall == 0
        narrowed[plane.role] = array if whole else array[first // tall : -(-last // tall)]
    return narrowed


def run(
    kernel: Kernel, case: Case, *, gap: int = 0, grouping: Grouping | None = None
) -> dict[str, Array]:
    """Run a kernel on a case and return its outputs, and operands that it overwrites.

    Args:
        kernel: a host row.
        case: what to run it on.
        gap: elements between the rows of activations; 0 for dense ones.
        grouping: how pieces are handed out; all at once to worker 0 when None.

    Raises:
        NotReadError: an encoding that the kernel does not read.
        ConformanceError: a fence was touched, or an input changed.
        RadianceError: what the kernel itself raises.
    """
    bound = _bind(kernel, case, gap)
    state = kernel.init(geometry_of(kernel, case.params)) if kernel.init else None
    bound.call.state = state
    try:
        # A kernel in numpy may overflow on its way to a right answer.
        with np.errstate(all="ignore"):
            _run_pieces(kernel, bound.call, grouping)
    finally:
        if kernel.fini is not None:
            kernel.fini(state)
    _check_memory(kernel, bound)
    return {name: bound.fences[name].array.copy() for name in bound.results}


def _run_pieces(kernel: Kernel, call: Call, grouping: Grouping | None) -> None:
    if kernel.tiles is None:
        kernel.run(call)
        return
    for first, last, worker in grouping or [(0, kernel.tiles(call), 0)]:
        kernel.run(call, first, last, worker)


def prepared(kernel: Kernel, case: Case) -> Call:
    """Return a call on a case that can be run again and again; ``fini`` of its state is left out.

    Raises:
        NotReadError: an encoding that the kernel does not read.
    """
    call = _bind(kernel, case, 0).call
    call.state = kernel.init(geometry_of(kernel, case.params)) if kernel.init else None
    return call


def num_tiles(kernel: Kernel, case: Case) -> int:
    """Return how many pieces a call on this case has; they may depend on the kernel's state."""
    if kernel.tiles is None:
        return 1
    call = prepared(kernel, case)
    try:
        return kernel.tiles(call)
    finally:
        if kernel.fini is not None:
            kernel.fini(call.state)


def _bind(kernel: Kernel, case: Case, gap: int) -> _Bound:
    schema = case.schema
    geometry = geometry_of(kernel, case.params)
    tensors: list[Tensor | None] = []
    layouts: list[Layout | None] = []
    bound = _Bound(Call((), {}), {}, {}, [])
    for index, operand in enumerate(schema.operands):
        given = case.operands.get(operand.name)
        layout = None
        if given is None and operand.role != "out":
            tensors.append(None)
            layouts.append(None)
            continue
        if isinstance(given, Weight):
            fenced, kind, layout = laid_out(kernel, given, geometry, index)
            bound.inputs[operand.name] = fenced.array.copy()
        else:
            kind = operand_dtype(operand, case.params)
            fenced = _activation(operand, case, kind, gap)
            if operand.role in ("in", "weight"):
                bound.inputs[operand.name] = fenced.array.copy()
            else:
                bound.results.append(operand.name)
        bound.fences[operand.name] = fenced
        tensors.append(Tensor(fenced.array, kind))
        layouts.append(layout)
    params = {p.name: geometry.get(p.name, p.default) for p in schema.params}
    axes = {k: v for k, v in geometry.items() if schema.param(k) is None}
    bound.call = Call(tensors, {**params, **axes}, layouts)  # type: ignore[dict-item]
    return bound


def _activation(operand: Operand, case: Case, kind: str, gap: int) -> Fenced:
    pitched = gap if operand.dtype == "dtype" else 0
    if operand.role == "out":
        fenced = Fenced(out_shape(operand, case), numpy_dtype(kind), pitched)
        _fill(fenced.array, _UNWRITTEN)
        return fenced
    given = case.array(operand.name)
    fenced = Fenced(given.shape, given.dtype, pitched)
    fenced.array[...] = given
    return fenced


def _fill(array: Array, byte: int) -> None:
    array[...] = np.full(array.dtype.itemsize, byte, np.uint8).view(array.dtype)[0]


def out_shape(operand: Operand, case: Case) -> tuple[int, ...]:
    """Return the extents of an output; an open first one is that of the first input."""
    rows = next(a.shape[0] for a in case.operands.values() if isinstance(a, np.ndarray))
    params = {p.name: p.default for p in case.schema.params} | dict(case.params)
    if case.schema.ranged == "M":
        params["M"] = row_count(case)
    extents = [extent(dim, params) for dim in operand.dims]
    return tuple(rows if e is None else e for e in extents)


def row_count(case: Case) -> int:
    """Return the rows M of a case, from the operand that the schema gives M rows."""
    for operand in case.schema.inputs:
        given = case.operands.get(operand.name)
        if operand.dims and operand.dims[0] == "M" and isinstance(given, np.ndarray):
            return int(given.shape[0])
    return case.integer(case.schema.ranged or "", 1)


def _check_memory(kernel: Kernel, bound: _Bound) -> None:
    for name, fenced in bound.fences.items():
        if not fenced.intact():
            raise ConformanceError(
                f"{kernel.op} {kernel.name}: memory beside operand {name} was written; "
                "stay inside the extents and strides of the call"
            )
        before = bound.inputs.get(name)
        if before is not None and before.tobytes() != fenced.array.tobytes():
            raise ConformanceError(
                f"{kernel.op} {kernel.name}: input {name} was changed; write outputs only"
            )


def same_bits(a: Mapping[str, Array], b: Mapping[str, Array]) -> str | None:
    """Return the name of the first result that differs in any bit, or None."""
    for name, left in a.items():
        if left.shape != b[name].shape or left.tobytes() != b[name].tobytes():
            return name
    return None


def shuffled_pieces(count: int, rng: np.random.Generator, workers: int = 3) -> Grouping:
    """Return pieces [0, count) in random order, in random runs, by random workers."""
    cuts = np.flatnonzero(rng.random(max(count - 1, 0)) < 0.5) + 1
    edges = [0, *(int(c) for c in cuts), count]
    runs = [(a, b, int(rng.integers(workers))) for a, b in pairwise(edges) if a < b]
    order = rng.permutation(len(runs))
    return [runs[i] for i in order]
