"""Programs that do not fit together are refused at load, with the node and the number."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from radiance_abi import KernelLibrary
from radiance_core.execute.program import NodeTemplate, OperandTemplate, ProgramError, StepProgram
from radiance_core.execute.twin import TwinExecutor
from radiance_core.execute.validity import check_program

from .programs import MAX_SYMBOLS, NUM_POOLS, TOKENS, kernel, mix_node, python_kernels

Change = Callable[[NodeTemplate], NodeTemplate]


def with_x(**changes: object) -> Change:
    """Change the first operand."""

    def change(node: NodeTemplate) -> NodeTemplate:
        x: OperandTemplate = replace(node.operands[0], **changes)  # type: ignore[arg-type]
        return replace(node, operands=(x, *node.operands[1:]))

    return change


def with_node(**changes: object) -> Change:
    return lambda node: replace(node, **changes)  # type: ignore[arg-type]


def cut_band(node: NodeTemplate) -> NodeTemplate:
    return replace(node, bands=(replace(node.bands[-1], upper=31),))


def twice_a_band(node: NodeTemplate) -> NodeTemplate:
    return replace(node, bands=(node.bands[-1], node.bands[-1]))


def short_params(node: NodeTemplate) -> NodeTemplate:
    return replace(node, bands=(replace(node.bands[-1], params=(1, 2)),))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (with_x(slot=4), r"blk\.5 mix: operand 0: expected a slot from -1 to 3, got 4"),
        (with_x(slot=-2), r"operand 0: expected a slot from -1 to 3, got -2"),
        (with_x(rows=8), r"operand 0: rows: expected a symbol number from -1 to 7, got 8"),
        (
            with_x(first_row=9),
            r"operand 0: first_row: expected a symbol number from -1 to 7, got 9",
        ),
        (
            with_x(shape=(1,) * 7, strides=(1,) * 7),
            r"operand 0: expected 1 to 6 extents and as many st",
        ),
        (with_x(shape=(), strides=()), r"operand 0: expected 1 to 6 extents"),
        (
            with_x(strides=(8,)),
            r"operand 0: expected 1 to 6 extents and as many strides, got shape",
        ),
        (
            with_x(offset=-4),
            r"operand 0: expected extents, strides and offset from 0 up, got .* -4",
        ),
        (with_x(strides=(-8, 1)), r"operand 0: expected extents, strides and offset from 0 up"),
        (with_x(rows_add=-1), r"operand 0: expected rows_add from 0 up, got -1"),
        (with_x(dtype="f17"), r"operand 0: dtype: expected a known dtype, got 'f17'"),
        (with_node(ranged=8), r"blk\.5 mix: ranged: expected a symbol number from -1 to 7, got 8"),
        (with_node(rows=-3), r"blk\.5 mix: rows: expected a symbol number from -1 to 7, got -3"),
        (with_node(bands=()), r"blk\.5 mix: expected bands with ascending bounds, got \[\]"),
        (
            with_node(operands=()),
            r"kernel tiled: expected 3 operands, got 0; an absent one has slot -1",
        ),
        (
            with_node(op="fault"),
            r"kernel tiled: expected mix with params \('M', 'n', 'k', 'tag'\), got f",
        ),
        (
            with_node(param_names=tuple("abcd")),
            r"kernel tiled: expected mix with params .*got mix with",
        ),
        (with_node(param_names=("p",) * 65), r"expected at most 64 params, got 65"),
        (cut_band, r"expected bands up to TOKENS=32, got the last one ending at 31; add a kernel"),
        (twice_a_band, r"expected bands with ascending bounds, got"),
        (short_params, r"expected values for \('M', 'n', 'k', 'tag'\), got \(1, 2\)"),
    ],
)
def test_programs_are_checked(library: KernelLibrary, change: Change, text: str) -> None:
    """Each number out of range stops the load and is named."""
    node = mix_node(np.random.default_rng(), [kernel(library, "tiled")], 5, rows=TOKENS)
    check_program(StepProgram((node,), NUM_POOLS), MAX_SYMBOLS)
    with pytest.raises(ProgramError, match=text):
        check_program(StepProgram((change(node),), NUM_POOLS), MAX_SYMBOLS)


@pytest.mark.parametrize("largest", [[1] * 7, [-1, *[1] * 7]])
def test_largest_values_are_checked(largest: list[int]) -> None:
    """There is one largest value per symbol and none is negative."""
    with pytest.raises(
        ProgramError, match=r"step program: expected 8 largest values \(TOKENS, SEQS"
    ):
        TwinExecutor().load(StepProgram((), 0), largest)


def test_python_kernels_need_no_schema() -> None:
    """Positions are a matter of C kernels only."""
    node = mix_node(np.random.default_rng(), python_kernels(), 0, rows=TOKENS)
    check_program(StepProgram((replace(node, op="mine"),), NUM_POOLS), MAX_SYMBOLS)
