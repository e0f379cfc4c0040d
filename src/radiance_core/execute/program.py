"""A step program: the flat table that the binder makes of a resolved, planned and loaded graph.

A program holds no address. Memory is named by slots, and extents that vary from step to step by
symbols; a run supplies the values of both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from radiance_abi import Kernel, Layout, RadianceError

SYMBOLS = (
    "TOKENS",
    "SEQS",
    "OUT_ROWS",
    "DECODE_TOKENS",
    "PREFILL_TOKENS",
    "DECODE_SEQS",
    "PREFILL_SEQS",
    "MAX_Q_LEN",
)
"""Values that a step has; a symbol's number is its index here."""


class ProgramError(RadianceError):
    """A step program, or what a run supplies for it, does not fit together."""


class StepAborted(RadianceError):  # noqa: N818 (what was asked for, not a defect)
    """A step was asked to end before its last node; nothing that it wrote counts."""


@dataclass(frozen=True, slots=True)
class OperandTemplate:
    """One operand of a node.

    Args:
        slot: index into the base addresses of a run; -1 for an absent optional operand.
        offset: bytes from the slot's address to the first element.
        dtype: a dtype name; extents of packed types (u4) count bytes.
        shape: extents; ``shape[0]`` is replaced where ``rows`` is a symbol.
        strides: in elements, none negative.
        rows: symbol whose value becomes ``shape[0]``; -1 keeps it.
        rows_add: added to that value (cumulative lengths have SEQS + 1 rows).
        layout: what the kernel stores, for a laid-out weight.
        first_row: symbol whose value times ``strides[0]`` moves the data; -1 for none.
    """

    slot: int
    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    rows: int
    rows_add: int
    layout: Layout | None
    first_row: int = -1


@dataclass(frozen=True, slots=True)
class Band:
    """The kernel for ranged values up to ``upper``.

    ``params`` stand in the order of the node's names, None where an optional one without a default
    is absent. ``axes``: names and values of the kernel's; its hooks see them, a call in C does not.
    """

    upper: int
    kernel: Kernel
    params: tuple[int | float | str | None, ...]
    axes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """One call of a step.

    Args:
        op: op name.
        name: for messages, such as ``blk.3.attn_output gemm_nt_q``.
        operands: in schema order.
        param_names: the schema's params in its order.
        bands: ascending in ``upper``.
        ranged: symbol whose value chooses the band; -1 takes the first.
        rows: symbol; the node is skipped while its value is 0. -1 never skips.
    """

    op: str
    name: str
    operands: tuple[OperandTemplate, ...]
    param_names: tuple[str, ...]
    bands: tuple[Band, ...]
    ranged: int
    rows: int


@dataclass(frozen=True, slots=True)
class StepProgram:
    """The nodes of a step in order, over ``num_slots`` base addresses."""

    nodes: tuple[NodeTemplate, ...]
    num_slots: int


class Executor(Protocol):
    """Runs step programs; one run at a time."""

    def load(self, program: StepProgram, max_symbols: Sequence[int]) -> Any:
        """Check a program, make the states of its nodes and return a handle for ``run``.

        Args:
            program: what to run.
            max_symbols: the largest value that each symbol will have.

        Raises:
            ProgramError: the program does not fit together; names the node.
            KernelError: a kernel's init or scratch hook failed.
        """

    def run(
        self, handle: Any, symbols: np.ndarray, slots: np.ndarray, abort: np.ndarray | None = None
    ) -> None:
        """Run every node once; must not be called from two threads at once for one handle.

        Args:
            handle: from ``load``.
            symbols: int64, one value per symbol.
            slots: uint64 or int64, one address per slot; the memory is borrowed for the run.
            abort: int32 [1], which any thread may set to other than 0 to end the run between two
                nodes, or between two pieces of one.

        Raises:
            StepAborted: the run was ended so; what it wrote is undefined.
            KernelError: names node, kernel, geometry and status; later nodes did not run.
            ProgramError: symbols or slots are not what the program needs.
        """

    def close(self) -> None:
        """Free the states of all programs and end the threads; handles are dead after it."""
