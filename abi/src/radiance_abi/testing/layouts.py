"""Layout hooks keep what a weight is: equal bytes by any cut of rows, and planes come back."""

from collections.abc import Iterator

import numpy as np

from radiance_abi.dtypes import dtype
from radiance_abi.encoding import Encoding
from radiance_abi.errors import EncodingError, RadianceError
from radiance_abi.kernels import Geometry, Kernel, Layout
from radiance_abi.ops import OpSchema
from radiance_abi.testing import geometry, inputs
from radiance_abi.testing.case import Array, Weight
from radiance_abi.testing.planes import ENCODINGS, VECTOR_ENCODINGS, random_weight, whole_columns
from radiance_abi.testing.running import Fenced, geometry_of, laid_out, row_ranges

_TRIES = 24


def faults(
    kernel: Kernel, schema: OpSchema, rng: np.random.Generator, *, lossy: bool = False
) -> Iterator[str]:
    """Yield what a row's layout hooks do wrong, for every encoding of the kit that it reads.

    ``lossy``: the library is a reference, and may refuse to give planes back.
    """
    if kernel.layout is None:
        return
    for index, operand in enumerate(schema.operands):
        if operand.role != "weight":
            continue
        for encoding in ENCODINGS if len(operand.dims) > 1 else VECTOR_ENCODINGS:
            for _ in range(_TRIES):
                columns = whole_columns(encoding)
                drawn = geometry.draw(kernel, schema, rng, columns=columns)
                params = geometry_of(kernel, drawn)
                shape = inputs.weight_shape(operand, params)
                if inputs.reads(kernel, encoding, params, shape, index):
                    weight = random_weight(encoding, shape, rng)
                    yield from _round_trip(kernel, weight, params, index, lossy)
                    break


def _round_trip(
    kernel: Kernel, weight: Weight, params: Geometry, index: int, lossy: bool
) -> Iterator[str]:
    encoding = weight.encoding
    subject = f"operand {index} {list(weight.shape)} {encoding}"
    try:
        stored, _, layout = laid_out(kernel, weight, params, index)
        if layout is None:
            return
        if not stored.intact():
            yield f"{subject}: relayout wrote beside what its layout asked for"
        if stored.array.tobytes() != _at_once(kernel, weight, layout, params, index).tobytes():
            yield f"{subject}: relayout in row ranges gives other bytes than all rows at once"
        yield from _given_back(kernel, weight, layout, stored.array, params, index)
    except EncodingError as error:
        if not lossy:
            yield f"{subject}: {error}"
    except RadianceError as error:
        yield f"{subject}: {error}"


def _at_once(kernel: Kernel, weight: Weight, layout: Layout, params: Geometry, index: int) -> Array:
    assert kernel.relayout is not None, "laid_out has used it"
    stored = Fenced(layout.shape, dtype(layout.dtype).numpy or np.dtype(np.uint8))
    rows = int(np.prod(weight.shape[:-1]))
    kernel.relayout(weight.encoding, layout, weight.planes, stored.array, 0, rows, params, index)
    return stored.array


def _given_back(
    kernel: Kernel, weight: Weight, layout: Layout, stored: Array, params: Geometry, index: int
) -> Iterator[str]:
    encoding: Encoding = weight.encoding
    if kernel.unrelayout is None:
        yield f"{encoding}: layout {layout.name} without an unrelayout hook; planes must come back"
        return
    for first, last in [*row_ranges(weight, layout), (0, int(np.prod(weight.shape[:-1])))]:
        planes = kernel.unrelayout(encoding, layout, stored, first, last, params, index)
        for plane in encoding:
            tall = plane.block[0]
            whole = plane.is_table or tall == 0
            wanted = weight.planes[plane.role]
            wanted = wanted if whole else wanted[first // tall : -(-last // tall)]
            got = planes.get(plane.role)
            if got is None or got.shape != wanted.shape or got.tobytes() != wanted.tobytes():
                rows = f"{first}..{last - 1}"
                yield f"{encoding}: plane {plane.role} of rows {rows} came back changed"
                return
