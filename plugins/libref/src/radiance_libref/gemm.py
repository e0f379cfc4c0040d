"""Matrix products y[M,N] = a[M,K] . b[N,K]^T over decoded f32 weights, summed in f64."""

import torch

from radiance_abi import Call
from radiance_libref.elementwise import activation
from radiance_libref.quant import dequantize
from radiance_libref.views import integer, narrowed, operand, operands, optional, store

# A row is always multiplied inside a block of this many rows, so that the same code sums it in the
# same order whether it comes alone or in a batch.
ROW_BLOCK = 16

# Weight rows converted to f64 at a time: bounds the temporary and keeps it in cache.
_WEIGHT_BLOCK = 512


def product(a: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return a . weight^T in f64, [M,N], for ``a`` [M,K] and ``weight`` f32 [N,K]."""
    rows, depth = a.shape
    padded = torch.zeros(-(-rows // ROW_BLOCK) * ROW_BLOCK, depth, dtype=torch.float64)
    padded[:rows] = a
    out = torch.empty(len(padded), len(weight), dtype=torch.float64)
    for first in range(0, len(weight), _WEIGHT_BLOCK):
        part = slice(first, first + _WEIGHT_BLOCK)
        block = weight[part].to(torch.float64).T
        for row in range(0, len(padded), ROW_BLOCK):
            out[row : row + ROW_BLOCK, part] = padded[row : row + ROW_BLOCK] @ block
    return out[:rows]


def _quantized_product(call: Call) -> torch.Tensor:
    """Return the product of int8 activations, operands 0 to 3."""
    codes, a_scale, weight = operand(call, 0), operand(call, 1), operand(call, 3)
    group, planes = integer(call, "group"), integer(call, "planes", 1)
    return product(dequantize(codes, a_scale, group, planes), weight)


def _store_sum(y: torch.Tensor, value: torch.Tensor, addend: torch.Tensor) -> None:
    """Store value in y's dtype, then the sum of that and ``addend``, as two ops would."""
    store(y, narrowed(value, y).to(torch.float32) + addend.to(torch.float32))


def gemm_nt(call: Call) -> None:
    """Compute y = a . b^T."""
    a, weight, y = operands(call)
    store(y, product(a, weight))


def gemm_nt_add(call: Call) -> None:
    """gemm_nt, then add of res."""
    a, weight, res, y = operands(call)
    _store_sum(y, product(a, weight), res)


def gemm_nt_bias(call: Call) -> None:
    """Compute y = act(a . b^T + bias) + res, rounded after each of the three."""
    a, weight, bias = (operand(call, i) for i in range(3))
    res, y = optional(call, 3), operand(call, 4)
    value = narrowed(product(a, weight) + bias.to(torch.float64), y)
    act = activation(str(call.params.get("act") or "none"))
    value = narrowed(act(value.to(torch.float64)), y)
    if res is None:
        y.copy_(value)
    else:
        _store_sum(y, value, res)


def gemm_nt_q(call: Call) -> None:
    """Compute y[m,n] = sum over k of code * a_scale * b."""
    store(operand(call, 4), _quantized_product(call))


def gemm_nt_q_add(call: Call) -> None:
    """gemm_nt_q, then add of res."""
    _store_sum(operand(call, 5), _quantized_product(call), operand(call, 4))


def gemm_nt_q_bias(call: Call) -> None:
    """gemm_nt_q plus bias, rounded once."""
    store(operand(call, 5), _quantized_product(call) + operand(call, 4).to(torch.float64))
