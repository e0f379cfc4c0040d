"""Operands of a call as torch tensors over the same memory, and the one way to store a result."""

from collections.abc import Iterator

import torch
from torch.utils.dlpack import from_dlpack

from radiance_abi import Call, KernelError

SHAPE = -1
INVAL = -12
UNSUPPORTED = -18


def optional(call: Call, index: int) -> torch.Tensor | None:
    """Return operand ``index``, or None where the caller left it out."""
    operand = call.tensors[index]
    view: torch.Tensor | None = None if operand is None else from_dlpack(operand)
    return view


def operand(call: Call, index: int) -> torch.Tensor:
    """Return operand ``index``.

    Raises:
        KernelError: it is absent.
    """
    view = optional(call, index)
    if view is None:
        raise KernelError(f"operand {index}: expected a tensor, got none", INVAL)
    return view


def operands(call: Call) -> Iterator[torch.Tensor]:
    """Yield all operands in schema order, for ops that have no optional one."""
    return (operand(call, index) for index in range(len(call.tensors)))


def number(call: Call, name: str, default: float = 0.0) -> float:
    """Return a numeric param; an absent optional one is ``default``."""
    value = call.params.get(name)
    return default if value is None else float(value)


def integer(call: Call, name: str, default: int = 0) -> int:
    """Return an int param; an absent optional one is ``default``."""
    value = call.params.get(name)
    return default if value is None else int(value)


def in_groups(x: torch.Tensor, size: int) -> torch.Tensor:
    """Return a view of ``x`` [M,n] as [M,n/size,size]."""
    return x.view(x.shape[0], x.shape[1] // size, size)


def narrowed(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Round to f32 and then to the dtype of ``like``, as a stored intermediate is."""
    return value.to(torch.float32).to(like.dtype)


def store(out: torch.Tensor, value: torch.Tensor) -> None:
    """Write ``value`` into an output, rounded to f32 and then to the output's dtype."""
    out.copy_(value.to(torch.float32))
