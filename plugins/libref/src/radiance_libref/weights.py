"""How a weight is kept: decoded, as dense f32, whatever its encoding was."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from radiance_abi import Encoding, EncodingError, Geometry, Layout
from radiance_abi.encoding import decode, pack, rows_and_cols

NAME = "ref_f32"

# Plain integers that f32 does not hold exactly, and so cannot be given back.
_INEXACT = frozenset({"i32", "i64", "u32", "u64", "f64"})


def layout(
    encoding: Encoding,
    shape: tuple[int, ...],
    geometry: Geometry,  # noqa: ARG001
    operand: int,  # noqa: ARG001
) -> Layout | None:
    """Keep f32 of the weight's own shape; other schemes than plain and affine are not read."""
    if encoding.scheme not in ("plain", "affine"):
        return None
    rows, _ = rows_and_cols(shape)
    return Layout(NAME, "f32", shape, row_block=encoding.block_rows or max(rows, 1))


def relayout(
    encoding: Encoding,
    layout: Layout,
    planes: Mapping[str, np.ndarray],
    stored: np.ndarray,
    first: int,
    last: int,
    geometry: Geometry,  # noqa: ARG001
    operand: int,  # noqa: ARG001
) -> None:
    """Decode rows [first, last) into their place."""
    _rows_of(stored, layout)[first:last] = decode(encoding, planes, _part(layout, first, last))


def unrelayout(
    encoding: Encoding,
    layout: Layout,
    stored: np.ndarray,
    first: int,
    last: int,
    geometry: Geometry,  # noqa: ARG001
    operand: int,  # noqa: ARG001
) -> dict[str, np.ndarray]:
    """Give the planes of a plain weight back.

    Raises:
        EncodingError: decoded values do not determine the planes of this encoding.
    """
    if not encoding.is_plain or encoding.codes.dtype in _INEXACT:
        raise EncodingError(
            f"libref: expected a plain encoding that f32 holds exactly, got {encoding}; "
            "weights are kept decoded here, take the planes from the model file"
        )
    values = _rows_of(stored, layout)[first:last]
    element = encoding.codes.element
    if element.numpy is not None:
        return {"codes": values.astype(element.numpy)}
    if not element.integer:
        raise EncodingError(
            f"libref: expected integers or whole-byte floats to give back, got {encoding}; "
            "take the planes from the model file"
        )
    return {"codes": pack(values.astype(np.int64), element.bits, check=False)}


def _rows_of(stored: np.ndarray, layout: Layout) -> np.ndarray[Any, Any]:
    return stored.reshape(rows_and_cols(layout.shape))


def _part(layout: Layout, first: int, last: int) -> tuple[int, int]:
    return last - first, rows_and_cols(layout.shape)[1]
