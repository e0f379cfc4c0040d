"""Random weights in the encodings that model files have."""

import numpy as np

from radiance_abi.dtypes import DL_FLOAT8_E8M0FNU, DType
from radiance_abi.encoding import Encoding, Plane, pack, plain, rows_and_cols
from radiance_abi.testing.case import Array, Weight, numpy_dtype

_TABLE = "affine:codes=u4[1x1],scale=f16[1x32],table=i8{1x16}"

ENCODINGS: tuple[Encoding, ...] = tuple(
    Encoding.parse(text)
    for text in (
        "f32",
        "bf16",
        "f16",
        "i8*f16[1x32]",
        "i4*f16[1x32]",
        "affine:codes=u4[1x1],scale=f16[1x32],min=f16[1x32]",
        "i5*f16[1x32]",
        "affine:codes=u5[1x1],scale=f16[1x32],min=f16[1x32]",
        "affine:codes=u2[1x1],scale=u4[1x16],scale.1=f16[1x256],min=u4[1x16],min.1=f16[1x256]",
        "i3*i6[1x16]*f16[1x256]",
        "affine:codes=u4[1x1],scale=u6[1x32],scale.1=f16[1x256],min=u6[1x32],min.1=f16[1x256]",
        "affine:codes=u5[1x1],scale=u6[1x32],scale.1=f16[1x256],min=u6[1x32],min.1=f16[1x256]",
        "i6*i8[1x16]*f16[1x256]",
        _TABLE,
        "affine:codes=u4[1x1],scale=i6[1x32],scale.1=f16[1x256],table=i8{1x16}",
        "i4*bf16[1x128]",
        "i8*bf16[1x128]",
        "i8*f32[1x*]",
        "u4*f16[1x128]-u4[1x128]",
        "fp8_e4m3*bf16[128x128]",
        "fp8_e4m3*f32[128x128]",
        "fp4_e2m1*e8m0[1x32]",
    )
)
"""What readers of model files produce, and some that quantisers do."""

VECTOR_ENCODINGS: tuple[Encoding, ...] = (plain("f32"), plain("bf16"), plain("f16"))
"""Encodings of gains and biases."""


def whole_columns(encoding: Encoding) -> int:
    """Return what a weight's columns must be a multiple of.

    Blocks along a row are whole; tiles of rows and columns may be cut at the weight's edge.
    """
    return 1 if encoding.block_rows != 1 else encoding.block_cols or 1


def fits(encoding: Encoding, shape: tuple[int, ...]) -> bool:
    """Return whether a weight of ``shape`` divides into the encoding's blocks."""
    return rows_and_cols(shape)[1] % whole_columns(encoding) == 0


def random_weight(
    encoding: Encoding, shape: tuple[int, ...], rng: np.random.Generator, size: float = 1.0
) -> Weight:
    """Return a weight whose values have about the given size."""
    rows, cols = rows_and_cols(shape)
    if encoding.is_plain:
        values = rng.standard_normal((rows, cols), np.float32) * np.float32(size)
        kind = encoding.codes.storage(rows, cols)[0]
        return Weight(encoding, {"codes": values.astype(kind)}, shape)
    planes = {p.role: _random_plane(p, encoding, rows, cols, size, rng) for p in encoding}
    return Weight(encoding, planes, shape)


def _random_plane(
    plane: Plane, encoding: Encoding, rows: int, cols: int, size: float, rng: np.random.Generator
) -> Array:
    element = plane.element
    count = plane.shape(rows, cols)
    if element.integer:
        return _random_integers(element, count, rng)
    if element.packed:
        return pack(rng.integers(0, 1 << element.bits, count), element.bits)
    if element.dlpack_code == DL_FLOAT8_E8M0FNU:
        return rng.integers(118, 128, count, dtype=np.uint8).view(numpy_dtype("e8m0"))
    if plane.role == "codes":
        return rng.standard_normal(count, np.float32).astype(element.numpy)
    # The last level of a chain brings integers of all levels down to `size`.
    chain = encoding.chain("min" if plane.role.startswith("min") else "scale")
    below = [p.element for p in (encoding.codes, *chain) if p is not plane and p.element.integer]
    scale = size / np.prod([float(1 << (e.bits - 1)) for e in below])
    return (rng.uniform(0.25, 1.0, count) * scale).astype(np.float32).astype(element.numpy)


def _random_integers(element: DType, count: tuple[int, int], rng: np.random.Generator) -> Array:
    bits = element.bits
    low = -(1 << (bits - 1)) if element.signed else 0
    kind = element.numpy or np.dtype(np.int16)
    values = rng.integers(low, low + (1 << bits) - 1, count, kind, endpoint=True)
    return values if element.numpy is not None else pack(values, bits)
