"""Planes back to numbers: the affine scheme and its row transforms."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from radiance_abi.dtypes import DType, small_float
from radiance_abi.encoding.bits import unpack
from radiance_abi.encoding.model import Encoding, Plane, rows_and_cols
from radiance_abi.encoding.validity import fwht_group
from radiance_abi.errors import EncodingError

Array = npt.NDArray[Any]

_SMALL_FLOATS = {
    "fp4_e2m1": "float4_e2m1fn", "fp6_e2m3": "float6_e2m3fn", "fp6_e3m2": "float6_e3m2fn",
}  # fmt: skip


def check_planes(encoding: Encoding, planes: Mapping[str, Array], shape: Sequence[int]) -> None:
    """Refuse planes that do not have the dtypes and shapes the encoding demands.

    Args:
        encoding: what the planes claim to be.
        planes: one array per role; bit-stream dtypes as uint8 ``[plane rows, row bytes]``.
        shape: logical shape of the weight, viewed as rows x cols.

    Raises:
        EncodingError: a plane is missing, unknown, or of another dtype or shape.
    """
    rows, cols = rows_and_cols(shape)
    if set(planes) != set(encoding.roles):
        raise EncodingError(
            f"encoding {encoding}: expected the planes {', '.join(encoding.roles)}, "
            f"got {', '.join(planes) or 'none'}"
        )
    for plane in encoding.planes:
        want_dtype, want_shape = plane.storage(rows, cols)
        got = planes[plane.role]
        if got.dtype != want_dtype or got.shape != want_shape:
            raise EncodingError(
                f"encoding {encoding}: expected plane {plane.role} as {want_dtype} "
                f"{list(want_shape)} for a weight of {rows} x {cols}, "
                f"got {got.dtype} {list(got.shape)}"
            )


def decode(
    encoding: Encoding,
    planes: Mapping[str, Array],
    shape: Sequence[int],
    dtype: npt.DTypeLike = np.float32,
) -> Array:
    """Return the numbers that planes stand for.

    Per element: the code (or its grid or table entry), negated where ``signs`` is set, minus
    ``zero``, times every scale level in order, minus the product of the min levels; then each row
    is brought back through the transform.

    Args:
        encoding: a plain or affine encoding.
        planes: one array per role, as ``check_planes`` demands; read only.
        shape: logical shape of the weight.
        dtype: float32 or float64; all arithmetic is done in it.

    Returns:
        A new array of ``shape`` and ``dtype``.

    Raises:
        EncodingError: another scheme, planes that do not fit, a code past its table, a transform
            whose width does not divide the columns or whose tables are no permutation.
    """
    if encoding.scheme not in ("plain", "affine"):
        raise EncodingError(
            f"encoding {encoding}: expected a plain or affine scheme, got {encoding.scheme!r}; "
            "the quantiser that wrote it supplies decode"
        )
    check_planes(encoding, planes, shape)
    rows, cols = rows_and_cols(shape)
    kind = np.dtype(dtype)
    value = _code_values(encoding, planes, rows, cols, kind)
    signs = encoding.find("signs")
    if signs is not None:
        negative = plane_values(signs, planes["signs"], cols, np.dtype(np.bool_))
        value = np.where(negative, -value, value)
    zero = encoding.find("zero")
    if zero is not None:
        value = _over_blocks(np.subtract, value, zero, planes, cols)
    for level in encoding.chain("scale"):
        value = _over_blocks(np.multiply, value, level, planes, cols)
    if encoding.find("min") is not None:
        offset = np.ones_like(value)
        for level in encoding.chain("min"):
            offset = _over_blocks(np.multiply, offset, level, planes, cols)
        value -= offset
    return _undo_transform(encoding, planes, value).reshape(shape)


def plane_values(plane: Plane, array: Array, count: int, kind: "np.dtype[Any]") -> Array:
    """Return the elements of a stored plane as numbers, one per item.

    Args:
        plane: the plane; its dtype says how to read ``array``.
        array: the stored plane ``[plane rows, ...]``.
        count: elements of one plane row.
        kind: dtype of the result ``[plane rows, count]``.
    """
    element = plane.element
    if element.packed:
        codes = unpack(array, element.bits, element.signed, count)
        return _small_floats(element, codes).astype(kind)
    return array.astype(kind)


def _small_floats(element: DType, codes: Array) -> Array:
    """Read unsigned codes of a float narrower than a byte; integers pass unchanged."""
    item = _SMALL_FLOATS.get(element.name)
    return codes if item is None else codes.view(small_float(item))


def _code_values(
    encoding: Encoding, planes: Mapping[str, Array], rows: int, cols: int, kind: "np.dtype[Any]"
) -> Array:
    codes = encoding.codes
    lookup = encoding.find("grid") or encoding.find("table")
    count = codes.shape(rows, cols)[1]
    if lookup is None:
        return plane_values(codes, planes["codes"], count, kind)
    assert lookup.extent is not None, "grid and table are tables in a valid encoding"
    entries = plane_values(lookup, planes[lookup.role], lookup.extent[1], kind)
    entries = entries if lookup.role == "grid" else entries.reshape(-1, 1)
    index = plane_values(codes, planes["codes"], count, np.dtype(np.int64))
    if index.size and int(index.max()) >= len(entries):
        raise EncodingError(
            f"encoding {encoding}: expected codes below the {len(entries)} entries of "
            f"{lookup.role}, got {int(index.max())}"
        )
    return entries[index].reshape(rows, count * entries.shape[1])[:, :cols]


def _over_blocks(
    operation: np.ufunc, value: Array, plane: Plane, planes: Mapping[str, Array], cols: int
) -> Array:
    """Combine values, in place, with a plane whose elements each cover a block of them."""
    rows = value.shape[0]
    block_rows, block_cols = plane.block[0] or rows, plane.block[1] or cols
    count = plane.shape(rows, cols)[1]
    levels = plane_values(plane, planes[plane.role], count, value.dtype)
    if block_rows != 1:
        levels = np.repeat(levels, block_rows, axis=0)[:rows]
    if block_cols and count * block_cols == cols:
        blocks = value.reshape(rows, count, block_cols)
        operation(blocks, levels[:, :, None], out=blocks)
        return blocks.reshape(rows, cols)
    operation(value, np.repeat(levels, block_cols, axis=1)[:, :cols], out=value)
    return value


def _undo_transform(encoding: Encoding, planes: Mapping[str, Array], value: Array) -> Array:
    """Return w = v . T^-1 for every row."""
    group = fwht_group(encoding.transform)
    if group is not None:
        return _hadamard(encoding, value, group)
    if encoding.transform == "perm":
        return _unpermute(encoding, value, planes["t.perm"])
    if encoding.transform == "givens":
        return _unrotate(encoding, value, planes)
    return value


def _hadamard(encoding: Encoding, value: Array, group: int) -> Array:
    """Multiply column groups by the unnormalised Sylvester matrix: T = H/N, so T^-1 = H."""
    rows, cols = value.shape
    if cols % group:
        raise EncodingError(
            f"encoding {encoding}: expected columns that {group} divides, got {cols}"
        )
    stride = 1
    while stride < group:
        pairs = value.reshape(rows, cols // (2 * stride), 2, stride)
        low, high = pairs[:, :, 0], pairs[:, :, 1]
        value = np.stack((low + high, low - high), axis=2)
        stride *= 2
    return value.reshape(rows, cols)


def _unpermute(encoding: Encoding, value: Array, perm: Array) -> Array:
    """Put column j of the stored row back at perm[j]."""
    cols = value.shape[1]
    _check_order(encoding, "t.perm", perm, cols)
    out = np.empty_like(value)
    out[:, perm[0]] = value
    return out


def _unrotate(encoding: Encoding, value: Array, planes: Mapping[str, Array]) -> Array:
    """Undo T = D . G_1 .. G_S: rotate back stage by stage from the last, then divide by D."""
    pairs, angles = planes["t.pairs"], planes["t.angle"]
    cols = value.shape[1]
    if angles.shape != (len(pairs), cols // 2) or cols % 2:
        raise EncodingError(
            f"encoding {encoding}: expected t.angle of {len(pairs)} x {cols}/2, "
            f"got {list(angles.shape)}"
        )
    _check_order(encoding, "t.pairs", pairs, cols)
    value = value.copy()
    for stage in range(len(pairs) - 1, -1, -1):
        first, second = pairs[stage, 0::2], pairs[stage, 1::2]
        angle = angles[stage].astype(value.dtype)
        cosine, sine = np.cos(angle), np.sin(angle)
        a, b = value[:, first], value[:, second]
        value[:, first] = a * cosine - b * sine
        value[:, second] = b * cosine + a * sine
    if "t.scale" in planes:
        scale = planes["t.scale"]
        if scale.shape != (1, cols):
            raise EncodingError(
                f"encoding {encoding}: expected t.scale of 1 x {cols}, got {list(scale.shape)}"
            )
        value /= scale.astype(value.dtype)
    return value


def _check_order(encoding: Encoding, role: str, table: Array, cols: int) -> None:
    """Refuse a table whose rows do not name every column exactly once."""
    if table.shape[1] != cols or (np.sort(table, axis=1) != np.arange(cols)).any():
        raise EncodingError(
            f"encoding {encoding}: expected every row of {role} to name each of {cols} columns "
            f"once, got {list(table.shape)} entries that do not"
        )
