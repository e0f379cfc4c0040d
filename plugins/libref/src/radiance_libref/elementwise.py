"""Ops that look at one element or one row at a time, and row copies."""

import math
from collections.abc import Callable

import torch

from radiance_abi import Call, KernelError
from radiance_libref.quant import quantize_into
from radiance_libref.views import INVAL, narrowed, number, operands, store

Function = Callable[[torch.Tensor], torch.Tensor]


def _silu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS: dict[str, Function] = {
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "none": lambda x: x,
}
"""Activations by the name that a param gives them; in and out f64."""


def activation(name: str) -> Function:
    """Return the activation of that name.

    Raises:
        KernelError: there is none.
    """
    if name not in ACTIVATIONS:
        raise KernelError(f"act: expected one of {', '.join(ACTIVATIONS)}, got {name!r}", INVAL)
    return ACTIVATIONS[name]


def _map(call: Call, function: Function) -> None:
    x, y = operands(call)
    store(y, function(x.to(torch.float64)))


def add(call: Call) -> None:
    """Compute y = a + b."""
    a, b, y = operands(call)
    store(y, a.to(torch.float32) + b.to(torch.float32))


def mul(call: Call) -> None:
    """Compute y = a * b; one row of b serves all rows of a."""
    a, b, y = operands(call)
    if b.shape[0] not in (1, a.shape[0]):
        raise KernelError(
            f"mul: expected b of 1 or {a.shape[0]} rows, got {b.shape[0]}; narrow it first", INVAL
        )
    store(y, a.to(torch.float32) * b.to(torch.float32))


def scale(call: Call) -> None:
    """Compute y = x * factor, with factor narrowed to f32."""
    x, y = operands(call)
    factor = torch.tensor(number(call, "factor"), dtype=torch.float32)
    store(y, x.to(torch.float32) * factor)


def softcap(call: Call) -> None:
    """Compute y = cap * tanh(x / cap)."""
    cap = number(call, "cap")
    _map(call, lambda x: cap * torch.tanh(x / cap))


def silu(call: Call) -> None:
    """Compute y = x * sigmoid(x)."""
    _map(call, _silu)


def gelu(call: Call) -> None:
    """Compute y = x * Phi(x), the erf form."""
    _map(call, _gelu)


def gelu_tanh(call: Call) -> None:
    """Gelu by its tanh approximation."""
    _map(call, _gelu_tanh)


def sigmoid(call: Call) -> None:
    """Compute y = 1 / (1 + exp(-x))."""
    _map(call, torch.sigmoid)


def softmax(call: Call) -> None:
    """Softmax of every row."""
    _map(call, lambda x: torch.softmax(x, dim=-1))


def _gated(gate_up: torch.Tensor, function: Function) -> torch.Tensor:
    """Return act(gate) * up in the operands' dtype, which act(gate) is rounded to first."""
    gate, up = gate_up.chunk(2, dim=1)
    active = narrowed(function(gate.to(torch.float64)), gate_up)
    return narrowed(active.to(torch.float32) * up.to(torch.float32), gate_up)


def silu_mul(call: Call) -> None:
    """Compute y = silu(first half) * second half."""
    gate_up, y = operands(call)
    y.copy_(_gated(gate_up, _silu))


def gelu_tanh_mul(call: Call) -> None:
    """Compute y = gelu_tanh(first half) * second half."""
    gate_up, y = operands(call)
    y.copy_(_gated(gate_up, _gelu_tanh))


def gated_quant_i8(call: Call) -> None:
    """Compute act(first half) * second half, stored in dtype, then quant_act_i8."""
    gate_up, q, scale_, asum = operands(call)
    y = _gated(gate_up, activation(str(call.params["act"])))
    quantize_into(call, y, q, scale_, asum)


def cast(call: Call) -> None:
    """Compute y = x in another float type, rounded to nearest even."""
    x, y = operands(call)
    store(y, x)


def _rows(table: torch.Tensor, index: torch.Tensor, what: str) -> torch.Tensor:
    """Return table[index]; a negative index gives a row of zeros."""
    if index.numel() and int(index.max()) >= table.shape[0]:
        raise KernelError(
            f"{what}: expected indices below {table.shape[0]}, got {int(index.max())}", INVAL
        )
    index = index.to(torch.int64)
    rows = table[index.clamp(min=0)]
    return torch.where((index < 0).unsqueeze(1), torch.zeros_like(rows), rows)


def gather_rows(call: Call) -> None:
    """Compute y[i] = x[idx[i]]; a negative index gives zeros."""
    x, index, y = operands(call)
    y.copy_(_rows(x, index, "gather_rows") if x.shape[0] else torch.zeros_like(y))


def embed_lookup(call: Call) -> None:
    """Compute x[i] = wte[tokens[i]] * wscale; a negative token gives zeros."""
    tokens, table, x = operands(call)
    factor = torch.tensor(number(call, "wscale", 1.0), dtype=torch.float32)
    store(x, _rows(table, tokens, "embed_lookup") * factor)
