"""Rows of elements of any width as bit streams, lowest bits first.

Element j of a row occupies bits ``j*b .. (j+1)*b`` counted from bit 0 of the row's first byte;
elements may straddle bytes and every row starts on a byte::

    b = 3:   byte 0            byte 1
             c c b b b a a a   f e e e d d d c        (a = element 0)
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from radiance_abi.errors import EncodingError

MAX_BITS = 16

# Groups converted at a time, so that temporaries stay in a core's cache.
_CHUNK = 1 << 14

# For widths that divide a byte, one byte becomes one little-endian word with an element in each
# byte: (word, steps of (shift, mask) that spread the elements apart).
_SPREAD: dict[int, tuple[str, tuple[tuple[int, int], ...]]] = {
    4: ("<u2", ((4, 0x0F0F),)),
    2: ("<u4", ((12, 0x000F000F), (6, 0x03030303))),
    1: ("<u8", ((28, 0x0000000F0000000F), (14, 0x0003000300030003), (7, 0x0101010101010101))),
}


def _lane_steps(bits: int) -> tuple[tuple[np.uint64, np.uint64, np.uint64], ...]:
    """Return (shift, low mask, high mask) that close the gaps between eight codes of a word.

    Neighbouring lanes of 8, 16 and 32 bits are joined in turn: the upper code of each pair moves
    down by the gap, so that after three steps the codes fill the lowest ``8 * bits`` bits.
    """
    steps = []
    for codes in (1, 2, 4):
        lane = 16 * codes
        low = sum(((1 << (codes * bits)) - 1) << (lane * i) for i in range(64 // lane))
        steps.append(
            (np.uint64(codes * (8 - bits)), np.uint64(low), np.uint64(low << (codes * bits)))
        )
    return tuple(steps)


_LANES = {bits: _lane_steps(bits) for bits in (3, 5, 6, 7)}


def pack(values: npt.ArrayLike, bits: int, *, check: bool = True) -> npt.NDArray[np.uint8]:
    """Pack integers into bit-stream rows.

    Args:
        values: integers, ``[..., count]``; negative ones are stored in two's complement.
        bits: width of one element, 1..16.
        check: refuse values that do not fit; a caller that has masked them may skip the pass.

    Returns:
        ``uint8 [..., ceil(count * bits / 8)]``, the unused high bits of the last byte zero.

    Raises:
        EncodingError: a width outside 1..16, values that are not integers, or do not fit.
    """
    _check_bits(bits)
    array: npt.NDArray[Any] = np.atleast_1d(np.asarray(values))
    if array.dtype.kind not in "iub":
        raise EncodingError(f"pack: expected integers, got an array of {array.dtype}")
    if check and array.size:
        low, high = int(array.min()), int(array.max())
        if low < -(1 << (bits - 1)) or high >= (1 << bits) or (low < 0 and high >> (bits - 1) > 0):
            raise EncodingError(
                f"pack: expected values that fit {bits} bits with one sign, got {low} .. {high}"
            )
    group, group_bytes = _group(bits)
    count = array.shape[-1]
    codes = _in_runs(array, group)
    out = np.zeros((len(codes), group_bytes), np.uint8)
    for first in range(0, len(codes), _CHUNK):
        _pack_groups(codes[first : first + _CHUNK], out[first : first + _CHUNK], bits)
    runs = -(-count // group)
    return out.reshape(*array.shape[:-1], runs * group_bytes)[..., : (count * bits + 7) // 8]


def unpack(stream: npt.NDArray[np.uint8], bits: int, signed: bool, count: int) -> npt.NDArray[Any]:
    """Expand bit-stream rows into one integer per item.

    Args:
        stream: ``uint8 [..., row_bytes]`` with row_bytes at least ``ceil(count * bits / 8)``.
        bits: width of one element, 1..16.
        signed: read elements as two's complement.
        count: elements of a row.

    Returns:
        ``[..., count]`` of int8 or uint8 up to 8 bits, else of int16 or uint16.

    Raises:
        EncodingError: a width outside 1..16, not bytes, or rows shorter than count demands.
    """
    _check_bits(bits)
    row_bytes = (count * bits + 7) // 8
    if stream.dtype != np.uint8 or stream.shape[-1] < row_bytes:
        raise EncodingError(
            f"unpack: expected uint8 rows of at least {row_bytes} bytes for {count} elements of "
            f"{bits} bits, got {stream.dtype} rows of {stream.shape[-1]}"
        )
    group, group_bytes = _group(bits)
    source = _in_runs(stream[..., :row_bytes], group_bytes)
    out = np.empty((len(source), group), np.uint8 if bits <= 8 else np.uint16)
    item: Any = np.int8 if bits <= 8 else np.int16
    spare = item(out.itemsize * 8 - bits)
    for first in range(0, len(source), _CHUNK):
        part = out[first : first + _CHUNK]
        _unpack_groups(source[first : first + _CHUNK], part, bits)
        if signed:
            # Two's complement: shift the sign bit up to the top and back.
            part = part.view(item)
            part <<= spare
            part >>= spare
    codes = out.view(item) if signed else out
    return codes.reshape(*stream.shape[:-1], -(-count // group) * group)[..., :count]


def _in_runs(array: npt.NDArray[Any], run: int) -> npt.NDArray[Any]:
    """Return rows as contiguous runs ``[all runs, run]``, each row padded to whole runs."""
    spare = -array.shape[-1] % run
    if spare:
        array = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, spare)])
    return np.ascontiguousarray(array).reshape(-1, run)


def _pack_groups(values: npt.NDArray[Any], out: npt.NDArray[np.uint8], bits: int) -> None:
    """Pack ``[n, group]`` integers into the zeroed ``[n, group bytes]``."""
    wide: Any = np.uint8 if bits <= 8 else np.uint32
    codes = values.astype(wide) & wide((1 << bits) - 1)
    if bits in _SPREAD:
        word, steps = _SPREAD[bits]
        words = codes.view(word)
        masks = [*reversed([mask for _, mask in steps[:-1]]), 0xFF]
        for (shift, _), mask in zip(reversed(steps), masks, strict=True):
            words |= words >> words.dtype.type(shift)
            words &= words.dtype.type(mask)
        out[:] = words
        return
    if bits in _LANES:
        lanes = codes.view("<u8")
        for gap, low, high in _LANES[bits]:
            lanes[:] = (lanes & low) | ((lanes >> gap) & high)
        # Column by column: copies of a few bytes a row are several times slower.
        for byte in range(bits):
            out[:, byte] = codes[:, byte]
        return
    for k in range(codes.shape[1]):
        byte, shift = divmod(k * bits, 8)
        out[:, byte] |= (codes[:, k] << wide(shift)).astype(np.uint8)
        for done in range(8 - shift, bits, 8):
            byte += 1
            out[:, byte] |= (codes[:, k] >> wide(done)).astype(np.uint8)


def _unpack_groups(source: npt.NDArray[np.uint8], out: npt.NDArray[Any], bits: int) -> None:
    """Expand ``[n, group bytes]`` into unsigned ``[n, group]``."""
    if bits in _SPREAD:
        word, steps = _SPREAD[bits]
        words = out.view(word)
        words[:] = source
        for shift, mask in steps:
            words |= words << words.dtype.type(shift)
            words &= words.dtype.type(mask)
        return
    if bits in _LANES:
        for byte in range(bits):
            out[:, byte] = source[:, byte]
        out[:, bits:] = 0
        lanes = out.view("<u8")
        for gap, low, high in reversed(_LANES[bits]):
            lanes[:] = (lanes & low) | ((lanes & high) << gap)
        return
    wide: Any = np.uint8 if bits <= 8 else np.uint32
    for k in range(out.shape[1]):
        byte, shift = divmod(k * bits, 8)
        value = source[:, byte].astype(wide) >> wide(shift)
        for done in range(8 - shift, bits, 8):
            byte += 1
            value |= source[:, byte].astype(wide) << wide(done)
        out[:, k] = value & wide((1 << bits) - 1)


def _group(bits: int) -> tuple[int, int]:
    """Return a run of elements that fills whole bytes, and those bytes."""
    group = 8 if bits in _LANES else 8 // math.gcd(8, bits)
    return group, group * bits // 8


def _check_bits(bits: int) -> None:
    if not 1 <= bits <= MAX_BITS:
        raise EncodingError(f"bit stream: expected a width of 1 to {MAX_BITS} bits, got {bits}")
