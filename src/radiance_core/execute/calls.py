"""Run one node in Python: operands become tensors over the same memory that C would see."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from radiance_abi import Call, KernelError, Tensor
from radiance_abi.dtypes import DType, dtype
from radiance_abi.native import status_name
from radiance_core.execute.program import (
    SYMBOLS,
    Band,
    NodeTemplate,
    OperandTemplate,
    ProgramError,
    StepAborted,
)
from radiance_core.execute.states import geometry

INVAL = -12
_BYTES = np.dtype(np.uint8)


def storage(name: str) -> "np.dtype[Any]":
    """Return the array type that holds elements of a dtype; packed types are bytes."""
    return dtype(name).numpy or _BYTES


def choose_band(node: NodeTemplate, symbols: Sequence[int]) -> int:
    """Return the index of the band that serves this step.

    Raises:
        ProgramError: the value lies above all bands; cannot happen below ``max_symbols``.
    """
    if node.ranged < 0:
        return 0
    for i, band in enumerate(node.bands):
        if symbols[node.ranged] <= band.upper:
            return i
    raise ProgramError(
        f"{node.name}: expected {SYMBOLS[node.ranged]} up to {node.bands[-1].upper}, got "
        f"{symbols[node.ranged]}"
    )


def run_node(
    node: NodeTemplate, band: Band, state: Any, symbols: Sequence[int], slots: Sequence[int]
) -> None:
    """Run one node on this thread.

    Raises:
        KernelError: the kernel returned a negative status or raised.
        ProgramError: a slot that the node needs is empty.
    """
    tensors = [
        _tensor(operand, node.name, i, symbols, slots) for i, operand in enumerate(node.operands)
    ]
    layouts = [operand.layout for operand in node.operands]
    call = Call(tensors, geometry(node, band), layouts, state)
    kernel = band.kernel
    doing = "run"
    try:
        if kernel.tiles is None:
            kernel.run(call)
            return
        doing = "count its tiles"
        tiles = int(kernel.tiles(call))
        doing = "run"
        if tiles > 0:
            kernel.run(call, 0, tiles, 0)
    except KernelError as err:
        raise failure(node, band, doing, err.status, symbols, str(err)) from err
    except KeyboardInterrupt:
        raise
    except BaseException as err:
        # SystemExit included: a kernel must not be able to end the program that serves others.
        detail = f"{type(err).__name__}: {err}"
        raise failure(node, band, doing, INVAL, symbols, detail) from err
    if tiles < 0:
        raise failure(node, band, "count its tiles", tiles, symbols)


def failure(
    node: NodeTemplate,
    band: Band,
    doing: str,
    status: int,
    symbols: Sequence[int],
    detail: str = "",
) -> KernelError:
    """Return the error of a node that failed in a step."""
    params = " ".join(f"{name}={value}" for name, value in geometry(node, band).items())
    step = " ".join(f"{n}={int(v)}" for n, v in zip(SYMBOLS, symbols, strict=True))
    return KernelError(
        f"{node.name}: expected kernel {band.kernel.name} of {node.op} to {doing}, got status "
        f"{status} ({status_name(status)}) at {params}, in a step of {step}"
        f"{': ' + detail if detail else ''}; this step's requests fail, report it to the author of "
        f"the kernel",
        status,
    )


def aborted(name: str) -> StepAborted:
    """Return the error of a step that was asked to end before or in a node."""
    return StepAborted(f"{name}: expected the step to run to its end, got a request to end it here")


def empty_slot(name: str, index: int, slot: int) -> ProgramError:
    """Return the error of an operand whose slot has no address in this run."""
    return ProgramError(
        f"{name}: operand {index}: expected an address in slot {slot}, got 0; fill it before "
        f"the run"
    )


def outside(index: int, value: int, largest: int) -> ProgramError:
    """Return the error of a symbol's value that the program was not loaded for."""
    return ProgramError(
        f"symbols of a step: expected {SYMBOLS[index]} from 0 to {largest}, got {value}; load the "
        f"program for a larger capacity"
    )


def _tensor(
    operand: OperandTemplate, name: str, index: int, symbols: Sequence[int], slots: Sequence[int]
) -> Tensor | None:
    if operand.slot < 0:
        return None
    base = int(slots[operand.slot])
    if base == 0:
        raise empty_slot(name, index, operand.slot)
    held, element = _types(operand.dtype)
    shape = operand.shape
    if operand.rows >= 0:
        shape = (int(symbols[operand.rows]) + operand.rows_add, *shape[1:])
    strides = tuple(stride * held.itemsize for stride in operand.strides)
    address = base + operand.offset
    if operand.first_row >= 0:
        address += int(symbols[operand.first_row]) * strides[0]
    span = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    size = span + held.itemsize if min(shape) > 0 else 0
    memory: Any = (ctypes.c_char * size).from_address(address)
    return Tensor(np.ndarray(shape, held, memory, 0, strides), element)


@lru_cache(maxsize=64)
def _types(name: str) -> tuple["np.dtype[Any]", DType]:
    return storage(name), dtype(name)
