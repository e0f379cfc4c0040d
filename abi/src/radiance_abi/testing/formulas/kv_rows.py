"""Packed slots of a conversation cache, in numpy: how they are made, in f32, and what they say."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from radiance_abi.kv_cache import GROUP, Half, cache_dtype, rotation
from radiance_abi.testing.case import F64, Array

F32 = npt.NDArray[np.float32]

LARGEST = np.float32(65504)
"""Numbers beyond it, the range of f16, are stored as it."""

_NO_NUMBER = 255
_LEAST_POWER = -126


@dataclass(frozen=True, slots=True)
class Part:
    """Keys or values of all pages: views of codes u8 [P, K, bytes] and scales [P, K, B, n].

    What a slot has of the codes are pieces of ``self.mask``: bytes, or where one byte serves two
    slots, four bits. Piece j of slot i is at ``place[i, j]``, shifted by ``shift[i, j]``.
    """

    half: Half
    codes: Array
    scales: Array
    place: Array
    shift: Array

    @property
    def mask(self) -> int:
        """Return the bits of a piece."""
        return 15 if _shares_bytes(self.half) else 255

    def slots(self) -> Array:
        """Return the pieces of every slot, u8 [P, K, B, pieces]."""
        pieces = (self.codes[..., self.place] >> self.shift) & self.mask
        return pieces.astype(np.uint8)

    def put(self, page: int | slice, offset: int, pieces: Array) -> None:
        """Set the pieces [..., K, n] of one slot of a page, or of each page of a slice.

        What the bytes of a slot hold of other slots stays.
        """
        place, shift = self.place[offset], self.shift[offset]
        kept = self.codes[page][..., place] & ~(self.mask << shift)
        self.codes[page][..., place] = kept | pieces.astype(np.int64) << shift


def _shares_bytes(half: Half) -> bool:
    return half.words == "slots" and half.bits == 4


def _places(half: Half, head_dim: int, block: int) -> tuple[Array, Array]:
    """Return the byte, and the shift in it, of each piece of each slot, [B, pieces]."""
    slot = np.arange(block)[:, None]
    piece = np.arange(half.code_bytes(head_dim) if half.words is None else head_dim)
    if half.words is None:
        place = slot * len(piece) + piece
    elif half.words == "dims":
        place = (piece // 4 * block + slot) * 4 + piece % 4
    else:
        place = (slot // (32 // half.bits) * head_dim + piece) * 4 + slot % 4
    shift = slot % 8 // 4 * 4 if _shares_bytes(half) else np.zeros_like(slot)
    return place, np.broadcast_to(shift, place.shape)


def parts(cache: Array, kv_dtype: str, head_dim: int) -> list[Part]:
    """Return keys and values of a packed pool u8 [P, K, B, row], as views."""
    pages, heads, block, row = cache.shape
    halves = cache_dtype(kv_dtype).halves
    assert halves is not None, f"{kv_dtype} is no packed form"
    flat = cache.reshape(pages, heads, block * row)
    at = 0
    codes, scales = [], []
    for half in halves:
        count = block * half.code_bytes(head_dim)
        codes.append(flat[..., at : at + count])
        at += count
    for half in halves:
        count = block * half.scale_bytes(head_dim)
        run = flat[..., at : at + count]
        if half.grouped:
            run = run.view(np.float16).reshape(pages, heads, -1, block).swapaxes(2, 3)
        scales.append(run.reshape(pages, heads, block, 1) if not half.grouped else run)
        at += count
    return [
        Part(h, c, s, *_places(h, head_dim, block))
        for h, c, s in zip(halves, codes, scales, strict=True)
    ]


def write(part: Part, page: int | slice, offset: int, rows: F32) -> None:
    """Store ``rows`` f32 [..., K, D], one row a head, at one slot of a page or of several."""
    x = np.clip(rows, -LARGEST, LARGEST)
    if part.half.rotated:
        count = rotation(rows.shape[-1])
        x = _transformed(x.reshape(*x.shape[:-1], -1, count)) * np.float32(4 / count)
        x = x.reshape(rows.shape)
    pieces, scales = _integers(x, part.half) if part.half.grouped else _e4m3(x)
    part.put(page, offset, pieces)
    part.scales[page, :, offset] = scales


def read(part: Part) -> tuple[F64, F64]:
    """Return what a part stands for, f64 [P, K, B, D], and how large what it is computed from is.

    A number of a rotated group is a sum over the group, and so is its error.
    """
    stored = _stored(part)
    if not part.half.rotated:
        return stored, np.abs(stored)
    groups = stored.reshape(*stored.shape[:-1], -1, rotation(stored.shape[-1]))
    # The transform is its own inverse but for a factor, of which 4 is left.
    value = _transformed(groups) / 4
    size = np.broadcast_to(np.abs(groups).sum(-1, keepdims=True) / 4, value.shape)
    return value.reshape(stored.shape), size.reshape(stored.shape)


def _stored(part: Part) -> F64:
    if not part.half.grouped:
        power = np.exp2(part.scales.astype(np.float64) - 127)
        power[part.scales == _NO_NUMBER] = np.nan
        codes = part.slots().view(ml_dtypes.float8_e4m3fn)
        return np.asarray(codes.astype(np.float64) * power)
    codes = _unpacked(part.slots(), part.half).astype(np.float64)
    stored = codes * part.scales.astype(np.float64)[..., None]
    return stored.reshape(*stored.shape[:-2], -1)


def _transformed(groups: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the Walsh-Hadamard transform of groups [..., n], in their own precision.

    At distances 1, 2, 4 .. n / 2 in this order, (a, b) becomes (a + b, a - b).
    """
    y = groups
    step = 1
    while step < groups.shape[-1]:
        pairs = y.reshape(*y.shape[:-1], -1, 2, step)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        y = np.stack([a + b, a - b], axis=-2).reshape(groups.shape)
        step *= 2
    return y


def _e4m3(x: F32) -> tuple[Array, Array]:
    """Return E4M3 codes [..., K, D] and biased exponents [..., K, 1] of powers that they are times.

    A power is the least power of two by which the largest magnitude comes to 448 at most.
    """
    most = np.abs(x).max(axis=-1, keepdims=True)
    fraction, exponent = np.frexp(np.where(np.isnan(most), 0, most))  # most = fraction * 2^exponent
    power = np.maximum(exponent - 9 + (fraction > np.float32(0.875)), _LEAST_POWER)
    power = np.where(most == 0, _LEAST_POWER, power)
    with np.errstate(invalid="ignore"):
        codes = np.ldexp(x, -power).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    byte = np.where(np.isnan(most), _NO_NUMBER, power + 127).astype(np.uint8)
    return np.where(np.isnan(most), 0, codes.view(np.uint8)), byte


def _integers(x: F32, half: Half) -> tuple[Array, Array]:
    """Return the pieces [..., K, n] of codes and f16 scales [..., K, D / 32] of groups."""
    most = 2 ** (half.bits - 1)
    y = x.reshape(*x.shape[:-1], -1, GROUP)
    high, low = y.max(axis=-1), y.min(axis=-1)
    # The number of largest magnitude gets the one code without an opposite.
    scale = (np.where(high >= -low, high, low) / np.float32(-most)).astype(np.float16)
    scale = np.where(
        scale == 0, np.float16(0), np.where(np.isnan(scale), np.float16(np.nan), scale)
    )
    wide = scale.astype(np.float32)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.clip(np.rint(y / wide), -most, most - 1)
    codes = np.where((wide == 0) | np.isnan(wide), 0, codes).astype(np.int64) + most
    if half.words is None:
        pieces = np.concatenate(list(_planes(codes, half.bits)), axis=-1)
    else:
        pieces = (codes - most) & 255 if half.signed else codes
    return pieces.reshape(*x.shape[:-1], -1), scale


def _planes(codes: Array, bits: int) -> Iterator[Array]:
    """Yield the bytes of groups [..., 32] of codes from 0 on.

    16 bytes hold four low bits of numbers i and i + 16 each; 8 more hold two high bits, those of
    number i at bits 2i of two little-endian words of 16 numbers.
    """
    yield ((codes[..., :16] & 15) | (codes[..., 16:] & 15) << 4).astype(np.uint8)
    if bits == 6:
        high = (codes >> 4).reshape(*codes.shape[:-1], 8, 4)
        yield (high << np.array([0, 2, 4, 6])).sum(axis=-1).astype(np.uint8)


def _unpacked(pieces: Array, half: Half) -> Array:
    """Return signed codes [..., D / 32, 32]."""
    bits = half.bits
    if half.words is not None:
        whole = pieces.reshape(*pieces.shape[:-1], -1, GROUP).astype(np.int64)
        # Two's complement: 128 on, then modulo 256, is counting from 0 on.
        return np.asarray((whole + (128 if half.signed else 0)) % 256 - 2 ** (bits - 1))
    groups = pieces.reshape(*pieces.shape[:-1], -1, GROUP * bits // 8).astype(np.int64)
    low = groups[..., :16]
    codes = np.concatenate([low & 15, low >> 4], axis=-1)
    if bits == 6:
        high = groups[..., 16:, None] >> np.array([0, 2, 4, 6]) & 3
        codes = codes + (high.reshape(codes.shape) << 4)
    return np.asarray(codes - 2 ** (bits - 1))
