"""Activations as int8 codes with one f32 scale per group, and back."""

import torch

from radiance_abi import Call, KernelError
from radiance_libref.views import INVAL, in_groups, integer, operands, store

MOST = {1: 127, 2: 16256}
"""Largest code by the number of int8 planes that a code lies in."""


def quantize(
    x: torch.Tensor, group: int, planes: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (i8 [M,planes*n], scale f32 [M,n/group], code sums i32 [M,n/group]) of ``x`` [M,n].

    All in f32: scale = amax / most and code = round-half-even(x * (most / amax)). A group of zeros
    has scale 0 and codes 0. A NaN shows as a NaN scale. Of two planes the second holds the code's
    remainder in -64..63 by 128.

    Raises:
        KernelError: another number of planes than 1 and 2.
    """
    groups = in_groups(x.to(torch.float32), group)
    amax = groups.abs().amax(dim=2)
    # As a tensor: torch makes number / tensor a reciprocal and a product, which rounds twice.
    most = torch.full_like(amax, _most(planes))
    inverse = torch.where(amax > 0, most / amax, torch.zeros_like(amax))
    codes = (groups * inverse.unsqueeze(2)).round().nan_to_num(nan=0.0)
    codes = codes.clamp(-MOST[planes], MOST[planes]).to(torch.int32)
    return _split(codes.flatten(1), planes), amax / most, codes.sum(dim=2, dtype=torch.int32)


def _most(planes: int) -> int:
    if planes not in MOST:
        raise KernelError(f"planes: expected 1 or 2, got {planes}", INVAL)
    return MOST[planes]


def _split(codes: torch.Tensor, planes: int) -> torch.Tensor:
    """Lay codes into their planes, side by side."""
    if planes == 1:
        return codes.to(torch.int8)
    high = torch.div(codes + 64, 128, rounding_mode="floor")
    return torch.cat([high, codes - 128 * high], dim=1).to(torch.int8)


def dequantize(q: torch.Tensor, scale: torch.Tensor, group: int, planes: int) -> torch.Tensor:
    """Return codes * scale in f64, which holds the product exactly, [M,n].

    Raises:
        KernelError: another number of planes than 1 and 2.
    """
    _most(planes)
    codes = q.to(torch.float64)
    if planes == 2:
        high, low = codes.chunk(2, dim=1)
        codes = 128 * high + low
    groups = in_groups(codes, group)
    return (groups * scale.to(torch.float64).unsqueeze(2)).flatten(1)


def quantize_into(
    call: Call, x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor, asum: torch.Tensor
) -> None:
    """Quantise ``x`` into the three outputs of a quantising op."""
    made = quantize(x, integer(call, "group"), integer(call, "planes", 1))
    for out, value in zip((q, scale, asum), made, strict=True):
        out.copy_(value)


def quant_act_i8(call: Call) -> None:
    """Run the op of that name."""
    x, q, scale, asum = operands(call)
    quantize_into(call, x, q, scale, asum)


def dequant(call: Call) -> None:
    """Compute y = code * scale."""
    q, scale, y = operands(call)
    store(y, dequantize(q, scale, integer(call, "group"), integer(call, "planes", 1)))
