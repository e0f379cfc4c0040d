"""Norms over the last axis. Sums run in f64; gains are read as f32."""

import torch

from radiance_abi import Call
from radiance_libref.quant import quantize_into
from radiance_libref.views import narrowed, number, operand, operands, optional, store


def rms_normed(
    x: torch.Tensor, weight: torch.Tensor, eps: float, wadd: float, over: torch.Tensor | None = None
) -> torch.Tensor:
    """Return x * rsqrt(mean(over^2) + eps) * (weight + wadd) in f64.

    ``over`` is what the mean is taken of, ``x`` itself unless given.
    """
    gain = (weight.to(torch.float32) + wadd).to(torch.float64)
    x = x.to(torch.float64)
    over = x if over is None else over.to(torch.float64)
    mean = over.square().mean(dim=-1, keepdim=True)
    return x * torch.rsqrt(mean + eps) * gain


def rmsnorm(call: Call) -> None:
    """Compute y = x * rsqrt(mean(x^2) + eps) * (w + wadd)."""
    x, weight, y = operands(call)
    store(y, rms_normed(x, weight, number(call, "eps"), number(call, "wadd")))


def rmsnorm_quant_i8(call: Call) -> None:
    """Rmsnorm, stored in dtype, then quant_act_i8 of what was stored."""
    x, weight, q, scale, asum = operands(call)
    y = narrowed(rms_normed(x, weight, number(call, "eps"), number(call, "wadd")), x)
    quantize_into(call, y, q, scale, asum)


def _added(call: Call, residual_out: torch.Tensor) -> torch.Tensor:
    """Store x + residual; return its norm in the operands' dtype.

    The mean is taken of the f32 sum before it was rounded, the product of the rounded one.
    """
    x, residual, weight = (operand(call, i) for i in range(3))
    total = x.to(torch.float32) + residual.to(torch.float32)
    residual_out.copy_(total)
    normed = rms_normed(residual_out, weight, number(call, "eps"), number(call, "wadd"), over=total)
    return narrowed(normed, x)


def rmsnorm_add(call: Call) -> None:
    """Compute residual_out = x + residual; y = rmsnorm of it."""
    operand(call, 3).copy_(_added(call, operand(call, 4)))


def rmsnorm_add_quant_i8(call: Call) -> None:
    """rmsnorm_add, then quant_act_i8 of its y."""
    q, scale, asum, residual_out = (operand(call, i) for i in range(3, 7))
    quantize_into(call, _added(call, residual_out), q, scale, asum)


def layernorm(call: Call) -> None:
    """Compute y = (x - mean) / sqrt(variance + eps) * w + b, with the biased variance."""
    x, weight, bias, y = operand(call, 0), operand(call, 1), optional(call, 2), operand(call, 3)
    centred = x.to(torch.float64)
    centred = centred - centred.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    value = centred * torch.rsqrt(variance + number(call, "eps")) * weight.to(torch.float64)
    store(y, value if bias is None else value + bias.to(torch.float64))
