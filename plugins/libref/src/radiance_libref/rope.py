"""Rotary positions, in place, on the query and key heads of a fused row."""

import torch

from radiance_abi import Call, KernelError
from radiance_libref.norms import rms_normed
from radiance_libref.views import INVAL, SHAPE, in_groups, integer, number, operand, optional, store


def _frequencies(call: Call, rotary: int, given: torch.Tensor | None) -> torch.Tensor:
    """Return radians per position, f64 [rotary/2]."""
    if given is not None:
        if len(given) != rotary // 2:
            raise KernelError(
                f"freqs: expected {rotary // 2} of them for {rotary} rotated elements, "
                f"got {len(given)}",
                SHAPE,
            )
        return given.to(torch.float64)
    exponent = torch.arange(0, rotary, 2, dtype=torch.float64) / rotary
    return number(call, "theta") ** -exponent / number(call, "scale", 1.0)


def _pairs(heads: torch.Tensor, rotary: int, mode: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return views of the two members of every rotated pair, [M,H,rotary/2] each."""
    if mode == "neox":
        return heads[..., : rotary // 2], heads[..., rotary // 2 : rotary]
    if mode == "gptj":
        return heads[..., 0:rotary:2], heads[..., 1:rotary:2]
    raise KernelError(f"mode: expected neox or gptj, got {mode!r}", INVAL)


def _heads(call: Call) -> torch.Tensor:
    """Return the rotating heads as a view [M,n_head+n_head_kv,head_dim]."""
    head_dim = integer(call, "head_dim")
    width = (integer(call, "n_head") + integer(call, "n_head_kv")) * head_dim
    return in_groups(operand(call, 0)[:, :width], head_dim)


def _rotate(call: Call, heads: torch.Tensor, freqs: torch.Tensor | None) -> None:
    rotary = integer(call, "rotary_dim") or integer(call, "head_dim")
    positions = operand(call, 1).to(torch.float64)
    angles = positions[:, None] * _frequencies(call, rotary, freqs)
    mscale = torch.tensor(number(call, "mscale", 1.0), dtype=torch.float32)
    # Narrowed before the factor, so that a table of f32 cosines gives the same answer.
    cos = (torch.cos(angles).to(torch.float32) * mscale).to(torch.float64)[:, None]
    sin = (torch.sin(angles).to(torch.float32) * mscale).to(torch.float64)[:, None]
    first, second = _pairs(heads, rotary, str(call.params.get("mode") or "neox"))
    a, b = first.to(torch.float64), second.to(torch.float64)
    store(first, a * cos - b * sin)
    store(second, a * sin + b * cos)


def rope(call: Call) -> None:
    """Rotate every pair of a head by position * frequency."""
    _rotate(call, _heads(call), optional(call, 2))


def qk_norm_rope(call: Call) -> None:
    """Rmsnorm of every query and key head, stored, then rope."""
    heads = _heads(call)
    n_head, eps, wadd = integer(call, "n_head"), number(call, "eps"), number(call, "wadd")
    for index, part in ((2, heads[:, :n_head]), (3, heads[:, n_head:])):
        store(part, rms_normed(part, operand(call, index), eps, wadd))
    _rotate(call, heads, optional(call, 4))
