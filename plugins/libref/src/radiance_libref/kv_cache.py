"""Keys and values as a pool stores them: plain numbers, or codes and scales.

The packed forms are those of radiance_abi.kv_cache; their arithmetic is in f32 where it decides
what is stored, since every library stores the same bytes, and in f64 where it reads.
"""

from dataclasses import dataclass

import torch

from radiance_abi.kv_cache import GROUP, Half, cache_dtype, rotation

_LARGEST = 65504.0
_LEAST_POWER = -126
_NO_NUMBER = 255


@dataclass(frozen=True, slots=True)
class _Packed:
    """Views of one half of all pages: codes u8 [P, K, bytes], scales [P, K, B, n]."""

    half: Half
    codes: torch.Tensor
    scales: torch.Tensor

    def in_words(self) -> torch.Tensor:
        """Return codes as words of four bytes: [P, K, D / 4, B, 4], or [P, K, slots, D, 4]."""
        block = self.scales.shape[2]
        count = block if self.half.words == "dims" else self.scales.shape[3] * GROUP
        return _split(self.codes, -1, count, 4)


def _parts(cache: torch.Tensor, halves: tuple[Half, Half], head_dim: int) -> list[_Packed]:
    """Return keys and values of a packed pool u8 [P, K, B, row]."""
    block = cache.shape[2]
    flat = cache.flatten(2)
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
            scales.append(_split(run.view(torch.float16), -1, block).transpose(2, 3))
        else:
            scales.append(_split(run, block, 1))
        at += count
    return [_Packed(*p) for p in zip(halves, codes, scales, strict=True)]


def _split(x: torch.Tensor, *sizes: int) -> torch.Tensor:
    """Return a view of ``x`` whose last axis is several."""
    return x.view(*x.shape[:-1], *sizes)


def write(
    cache: torch.Tensor,
    kv_dtype: str,
    where: tuple[torch.Tensor, torch.Tensor],
    keys: torch.Tensor,
    values: torch.Tensor,
) -> None:
    """Store rows f32 [n, K, D] at pages and offsets i64 [n]."""
    halves = cache_dtype(kv_dtype).halves
    page, offset = where
    if halves is None:
        cache[page, :, offset] = torch.cat([keys, values], dim=2).to(cache.dtype)
        return
    for part, rows in zip(_parts(cache, halves, keys.shape[2]), (keys, values), strict=True):
        x = rows.clamp(-_LARGEST, _LARGEST)
        if part.half.rotated:
            count = rotation(rows.shape[2])
            x = (_transformed(_split(x, -1, count)) * (4 / count)).flatten(-2)
        codes, scales = _integers(x, part.half) if part.half.grouped else _e4m3(x)
        part.scales[page, :, offset] = scales
        if part.half.words is None:
            _split(part.codes, cache.shape[2], -1)[page, :, offset] = codes
        else:
            _write_words(part, page, offset, codes)


def _write_words(
    part: _Packed, page: torch.Tensor, offset: torch.Tensor, codes: torch.Tensor
) -> None:
    """Store codes u8 [n, K, D] in words."""
    words = part.in_words()
    if part.half.words == "dims":
        words[page, :, :, offset] = _split(codes, -1, 4)
    elif part.half.bits == 8:
        words[page, :, offset // 4, :, offset % 4] = codes
    else:
        # Two slots share a byte, and both may be among these.
        for high in (False, True):
            some = (offset % 8 >= 4) == high
            at = page[some], slice(None), offset[some] // 8, slice(None), offset[some] % 4
            words[at] = words[at] & 15 | codes[some] << 4 if high else words[at] & 240 | codes[some]


def read(
    cache: torch.Tensor, kv_dtype: str, pages: torch.Tensor, head_dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values f64 [pages, K, B, D] of some pages i64."""
    halves = cache_dtype(kv_dtype).halves
    taken = cache[pages]
    if halves is None:
        wide = taken.to(torch.float64)
        return wide[..., :head_dim], wide[..., head_dim:]
    keys, values = (_decoded(part) for part in _parts(taken, halves, head_dim))
    return keys, values


def _e4m3(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes u8 [n, K, D], times the least power of two that keeps them within 448."""
    most = x.abs().amax(dim=-1, keepdim=True)
    fraction, exponent = torch.frexp(most.nan_to_num(0))
    power = exponent - 9 + (fraction > 0.875).to(torch.int32)
    power = torch.where(most > 0, power, _LEAST_POWER).clamp(min=_LEAST_POWER)
    lost = most.isnan()
    codes = torch.ldexp(x, -power).to(torch.float8_e4m3fn).view(torch.uint8)
    byte = torch.where(lost, _NO_NUMBER, power + 127)
    return torch.where(lost, 0, codes), byte.to(torch.uint8)


def _transformed(groups: torch.Tensor) -> torch.Tensor:
    """Return the Walsh-Hadamard transform of groups [..., n]."""
    y = groups
    step = 1
    while step < groups.shape[-1]:
        a, b = _split(y, -1, 2, step).unbind(-2)
        y = torch.stack([a + b, a - b], dim=-2).flatten(-3)
        step *= 2
    return y


def _integers(x: torch.Tensor, half: Half) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes u8 [n, K, bytes], one in each byte for words, and scales f16 [n, K, D/32]."""
    most = 2 ** (half.bits - 1)
    y = _split(x, -1, GROUP)
    high, low = y.amax(dim=-1), y.amin(dim=-1)
    scale = (torch.where(high >= -low, high, low) / -most).to(torch.float16)
    scale = torch.where(scale == 0, 0.0, torch.where(scale.isnan(), torch.nan, scale))
    scale = scale.to(torch.float16)
    codes = torch.round(y / scale.to(torch.float32).unsqueeze(-1)).clamp(-most, most - 1)
    codes = codes.nan_to_num(0).masked_fill((scale == 0).unsqueeze(-1), 0).to(torch.int64) + most
    if half.words is not None:
        return (codes - most if half.signed else codes).flatten(-2).to(torch.uint8), scale
    planes = [(codes[..., :16] & 15) | (codes[..., 16:] & 15) << 4]
    if half.bits == 6:
        shifts = torch.tensor([0, 2, 4, 6])
        planes.append((_split(codes >> 4, 8, 4) << shifts).sum(dim=-1))
    return torch.cat(planes, dim=-1).flatten(-2).to(torch.uint8), scale


def _decoded(part: _Packed) -> torch.Tensor:
    """Return what one half stands for, f64 [P, K, B, D]."""
    stored = _of_integers(part) if part.half.grouped else _of_e4m3(part)
    if not part.half.rotated:
        return stored
    # The transform is its own inverse but for a factor, of which 4 is left.
    groups = _split(stored, -1, rotation(stored.shape[-1]))
    return (_transformed(groups) / 4).flatten(-2)


def _of_e4m3(part: _Packed) -> torch.Tensor:
    power = torch.exp2(part.scales.to(torch.float64) - 127)
    power = torch.where(part.scales == _NO_NUMBER, torch.nan, power)
    codes = _split(part.codes.view(torch.float8_e4m3fn), part.scales.shape[2], -1)
    return codes.to(torch.float64) * power


def _of_integers(part: _Packed) -> torch.Tensor:
    signed = _signed(part) if part.half.words is None else _signed_in_words(part)
    return (signed * part.scales.to(torch.float64).unsqueeze(-1)).flatten(-2)


def _signed(part: _Packed) -> torch.Tensor:
    """Return codes i64 [P, K, B, D/32, 32] that lie slot by slot."""
    block, groups = part.scales.shape[2:]
    bytes_ = _split(part.codes, block, groups, -1).to(torch.int64)
    low = bytes_[..., :16]
    codes = torch.cat([low & 15, low >> 4], dim=-1)
    if part.half.bits == 6:
        high = (bytes_[..., 16:, None] >> torch.tensor([0, 2, 4, 6])) & 3
        codes = codes + (high.flatten(-2) << 4)
    signed: torch.Tensor = codes - 2 ** (part.half.bits - 1)
    return signed


def _signed_in_words(part: _Packed) -> torch.Tensor:
    """Return codes i64 [P, K, B, D/32, 32] that lie in words."""
    words = part.in_words()
    if part.half.words == "dims":
        codes = words.transpose(2, 3).flatten(-2).to(torch.int64) - 128
    elif part.half.bits == 8:
        codes = words.view(torch.int8).transpose(3, 4).flatten(2, 3).to(torch.int64)
    else:
        nibbles = torch.stack([words & 15, words >> 4], dim=3)  # [P, K, B / 8, 2, D, 4]
        codes = nibbles.transpose(4, 5).flatten(2, 4).to(torch.int64) - 8
    return _split(codes, -1, GROUP)
