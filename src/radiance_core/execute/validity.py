"""Checks of a step program before it is turned into tables that C trusts."""

from collections.abc import Sequence

import numpy as np

from radiance_abi import EncodingError, native
from radiance_abi.dtypes import dtype
from radiance_core.execute.program import (
    SYMBOLS,
    NodeTemplate,
    OperandTemplate,
    ProgramError,
    StepProgram,
)

_MAX_RANK = 6
_MAX_PARAMS = 64


def check_program(program: StepProgram, max_symbols: Sequence[int]) -> None:
    """Check that every number in the program is in range.

    Raises:
        ProgramError: names the node and the number.
    """
    if len(max_symbols) != len(SYMBOLS) or min(max_symbols) < 0:
        raise ProgramError(
            f"step program: expected {len(SYMBOLS)} largest values ({', '.join(SYMBOLS)}), none "
            f"negative, got {tuple(max_symbols)}"
        )
    checked: set[int] = set()  # layers share most of their operands
    for node in program.nodes:
        _check_node(node, max_symbols)
        for i, operand in enumerate(node.operands):
            if id(operand) not in checked:
                _check_operand(f"{node.name}: operand {i}", operand, program.num_slots)
                checked.add(id(operand))


def check_run(
    program: StepProgram, symbols: np.ndarray, slots: np.ndarray, abort: np.ndarray | None = None
) -> None:
    """Check the arrays of a run, whose memory C reads.

    Raises:
        ProgramError: wrong type or length.
    """
    if symbols.dtype != np.int64 or symbols.shape != (len(SYMBOLS),):
        raise ProgramError(
            f"symbols of a step: expected int64[{len(SYMBOLS)}], got {symbols.dtype}{symbols.shape}"
        )
    if slots.dtype.kind not in "iu" or slots.itemsize != 8 or slots.shape != (program.num_slots,):
        raise ProgramError(
            f"slots of a step: expected 64-bit addresses[{program.num_slots}], got "
            f"{slots.dtype}{slots.shape}"
        )
    if not (symbols.flags.c_contiguous and slots.flags.c_contiguous):
        raise ProgramError(
            "symbols and slots of a step: expected contiguous arrays, got a strided one"
        )
    if abort is not None and (abort.dtype != np.int32 or abort.shape != (1,)):
        raise ProgramError(
            f"abort word of a step: expected int32(1,), got {abort.dtype}{abort.shape}"
        )


def _check_node(node: NodeTemplate, max_symbols: Sequence[int]) -> None:
    for what, symbol in (("ranged", node.ranged), ("rows", node.rows)):
        _check_symbol(f"{node.name}: {what}", symbol)
    uppers = [band.upper for band in node.bands]
    if not uppers or uppers != sorted(set(uppers)):
        raise ProgramError(f"{node.name}: expected bands with ascending bounds, got {uppers}")
    if node.ranged >= 0 and uppers[-1] < max_symbols[node.ranged]:
        raise ProgramError(
            f"{node.name}: expected bands up to {SYMBOLS[node.ranged]}={max_symbols[node.ranged]}, "
            f"got the last one ending at {uppers[-1]}; add a kernel for larger values or lower the "
            f"capacity"
        )
    if len(node.param_names) > _MAX_PARAMS:
        raise ProgramError(
            f"{node.name}: expected at most {_MAX_PARAMS} params, got {len(node.param_names)}"
        )
    for band in node.bands:
        if len(band.params) != len(node.param_names):
            raise ProgramError(
                f"{node.name}: band up to {band.upper}: expected values for {node.param_names}, "
                f"got {band.params}"
            )
        if band.kernel.native:
            _check_native(node, band.kernel.native, band.kernel.name)


def _check_native(node: NodeTemplate, address: int, kernel: str) -> None:
    """C kernels find operands and params by position."""
    schema = native.schema_of(address)
    names = tuple(p.name for p in schema.params)
    if schema.op != node.op or node.param_names[: len(names)] != names:
        raise ProgramError(
            f"{node.name}: kernel {kernel}: expected {schema.op} with params {names}, got "
            f"{node.op} with {node.param_names}"
        )
    if len(node.operands) != len(schema.operands):
        raise ProgramError(
            f"{node.name}: kernel {kernel}: expected {len(schema.operands)} operands, got "
            f"{len(node.operands)}; an absent one has slot -1"
        )


def _check_symbol(subject: str, symbol: int) -> None:
    if not -1 <= symbol < len(SYMBOLS):
        raise ProgramError(
            f"{subject}: expected a symbol number from -1 to {len(SYMBOLS) - 1}, got {symbol}"
        )


def _check_operand(subject: str, operand: OperandTemplate, num_slots: int) -> None:
    if not -1 <= operand.slot < num_slots:
        raise ProgramError(
            f"{subject}: expected a slot from -1 to {num_slots - 1}, got {operand.slot}"
        )
    if operand.slot < 0:
        return
    for what, symbol in (("rows", operand.rows), ("first_row", operand.first_row)):
        _check_symbol(f"{subject}: {what}", symbol)
    rank = len(operand.shape)
    if not 1 <= rank <= _MAX_RANK or len(operand.strides) != rank:
        raise ProgramError(
            f"{subject}: expected 1 to {_MAX_RANK} extents and as many strides, got shape "
            f"{operand.shape} and strides {operand.strides}"
        )
    if min(operand.shape) < 0 or min(operand.strides) < 0 or operand.offset < 0:
        raise ProgramError(
            f"{subject}: expected extents, strides and offset from 0 up, got shape "
            f"{operand.shape}, strides {operand.strides}, offset {operand.offset}"
        )
    if operand.rows_add < 0:
        raise ProgramError(f"{subject}: expected rows_add from 0 up, got {operand.rows_add}")
    try:
        dtype(operand.dtype)
    except EncodingError as err:
        raise ProgramError(f"{subject}: {err}") from err
