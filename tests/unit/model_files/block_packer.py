"""Planes back to GGUF blocks, written element by element from the layouts, for round trips."""

from typing import Any

import numpy as np

from radiance_abi.encoding import Encoding, unpack
from radiance_core.model_files.gguf_types import TYPES

BLOCK_TYPES = {kind.name: (id_, kind) for id_, kind in TYPES.items() if kind.block > 1}


def random_blocks(name: str, count: int, rng: np.random.Generator) -> Any:
    """Return random blocks ``uint8 [count, block bytes]`` whose numbers f32 holds.

    Every bit pattern is drawn, so scales are negative, subnormal and as large as f16 goes.
    """
    blocks = rng.integers(0, 256, (count, BLOCK_TYPES[name][1].block_bytes), np.uint8)
    for at in HALVES[name]:
        field = np.ascontiguousarray(blocks[:, at : at + 2]).view(np.uint16)
        # An exponent of all ones is infinity or NaN.
        field[(field & 0x7C00) == 0x7C00] ^= 0x4000
        blocks[:, at : at + 2] = field.view(np.uint8)
    if name == "MXFP4":
        # Above 2^125 six times the scale is no f32, and the last one is NaN.
        blocks[:, 0] %= 253
    return blocks


HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "MXFP4": [],
}
"""Where the f16 fields of a block are."""


def pack_blocks(name: str, planes: dict[str, Any], rows: int, cols: int) -> bytes:
    """Return the block bytes that planes came from."""
    kind = BLOCK_TYPES[name][1]
    num = rows * cols // kind.block
    fields = {
        role: _fields(kind.encoding, role, planes[role], rows, cols).reshape(num, -1)
        for role in kind.encoding.roles
        if role != "table"
    }
    return b"".join(
        bytes(_PACKERS[name]({role: values[i] for role, values in fields.items()}))
        for i in range(num)
    )


def _fields(encoding: Encoding, role: str, plane: Any, rows: int, cols: int) -> Any:
    """Return a plane's unsigned fields: codes as stored bits, f16 as their 16 bits."""
    element = encoding.plane(role).element
    if element.name == "f16":
        return plane.view(np.uint16)
    if not element.packed:
        return plane.view(np.uint8)
    return unpack(plane, element.bits, False, encoding.plane_shape(role, rows, cols)[1])


def _half(values: Any) -> list[int]:
    return [int(values[0]) & 255, int(values[0]) >> 8]


def _minus(values: Any) -> list[int]:
    return _half([int(values[0]) ^ 0x8000])


def _nibble_bytes(codes: Any, width: int) -> list[int]:
    """Byte l of a run of ``width`` holds element l low and element l + width high."""
    out = []
    for start in range(0, len(codes), 2 * width):
        for i in range(width):
            out.append((int(codes[start + i]) & 15) | (int(codes[start + width + i]) & 15) << 4)
    return out


def _fifth_mask(codes: Any) -> list[int]:
    mask = sum((int(c) >> 4 & 1) << j for j, c in enumerate(codes))
    return list(mask.to_bytes(4, "little"))


def _strided(codes: Any, low: int, bits: int, width: int, count: int) -> list[int]:
    """Byte l of a run holds bits low..low+bits of elements l, l+width, ... (count of them)."""
    out = []
    for start in range(0, len(codes), width * count):
        for i in range(width):
            byte = 0
            for j in range(count):
                field = int(codes[start + j * width + i]) >> low & ((1 << bits) - 1)
                byte |= field << (bits * j)
            out.append(byte)
    return out


def _k_scales(scales: Any, mins: Any) -> list[int]:
    sc, mn = [int(s) for s in scales], [int(m) for m in mins]
    head = [sc[j] | sc[j + 4] >> 4 << 6 for j in range(4)]
    head += [mn[j] | mn[j + 4] >> 4 << 6 for j in range(4)]
    return head + [sc[j] & 15 | (mn[j] & 15) << 4 for j in range(4, 8)]


def _q3_scales(scales: Any) -> list[int]:
    raw = [int(s) ^ 32 for s in scales]
    out = [raw[k] & 15 | (raw[k + 8] & 15) << 4 for k in range(8)]
    for k in range(4):
        out.append(sum((raw[k + 4 * j] >> 4) << (2 * j) for j in range(4)))
    return out


def _iq4_scales(scales: Any) -> list[int]:
    raw = [int(s) ^ 32 for s in scales]
    top = sum((s >> 4) << (2 * j) for j, s in enumerate(raw))
    return [top & 255, top >> 8] + [raw[2 * j] & 15 | (raw[2 * j + 1] & 15) << 4 for j in range(4)]


_PACKERS: dict[str, Any] = {
    "Q4_0": lambda f: _half(f["scale"]) + _nibble_bytes(f["codes"] ^ 8, 16),
    "Q4_1": lambda f: _half(f["scale"]) + _minus(f["min"]) + _nibble_bytes(f["codes"], 16),
    "Q5_0": lambda f: (
        _half(f["scale"]) + _fifth_mask(f["codes"] ^ 16) + _nibble_bytes(f["codes"] ^ 16, 16)
    ),
    "Q5_1": lambda f: (
        _half(f["scale"])
        + _minus(f["min"])
        + _fifth_mask(f["codes"])
        + _nibble_bytes(f["codes"], 16)
    ),
    "Q8_0": lambda f: _half(f["scale"]) + f["codes"].tolist(),
    "Q2_K": lambda f: (
        [int(s) | int(m) << 4 for s, m in zip(f["scale"], f["min"], strict=True)]
        + _strided(f["codes"], 0, 2, 32, 4)
        + _half(f["scale.1"])
        + _half(f["min.1"])
    ),
    "Q3_K": lambda f: (
        _strided(f["codes"] ^ 4, 2, 1, 32, 8)
        + _strided(f["codes"], 0, 2, 32, 4)
        + _q3_scales(f["scale"])
        + _half(f["scale.1"])
    ),
    "Q4_K": lambda f: (
        _half(f["scale.1"])
        + _half(f["min.1"])
        + _k_scales(f["scale"], f["min"])
        + _nibble_bytes(f["codes"], 32)
    ),
    "Q5_K": lambda f: (
        _half(f["scale.1"])
        + _half(f["min.1"])
        + _k_scales(f["scale"], f["min"])
        + _strided(f["codes"], 4, 1, 32, 8)
        + _nibble_bytes(f["codes"], 32)
    ),
    "Q6_K": lambda f: (
        _nibble_bytes(f["codes"] ^ 32, 64)
        + _strided(f["codes"] ^ 32, 4, 2, 32, 4)
        + f["scale"].tolist()
        + _half(f["scale.1"])
    ),
    "IQ4_NL": lambda f: _half(f["scale"]) + _nibble_bytes(f["codes"], 16),
    "IQ4_XS": lambda f: (
        _half(f["scale.1"]) + _iq4_scales(f["scale"]) + _nibble_bytes(f["codes"], 16)
    ),
    "MXFP4": lambda f: f["scale"].tolist() + _nibble_bytes(f["codes"], 16),
}
