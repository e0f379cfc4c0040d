"""Random step programs over a few int32 pools, and kernels in Python equal to those in C."""

from dataclasses import dataclass

import numpy as np

from radiance_abi import Call, Kernel, KernelLibrary
from radiance_core.execute.program import (
    SYMBOLS,
    Band,
    NodeTemplate,
    OperandTemplate,
    StepProgram,
)

MOST = 32
COLS = 8
PITCH = 11
NUM_POOLS = 4
MAX_SYMBOLS = [MOST] * len(SYMBOLS)
TOKENS, SEQS, _OUT_ROWS, DECODE_TOKENS, PREFILL_TOKENS = range(5)


def mix_rows(call: Call, first: int, last: int, worker: int) -> None:
    """The Python twin of the C kernel ``mix``, rows [first, last)."""
    assert worker == 0
    x, b, y = call.arrays()
    assert x is not None
    assert y is not None
    k = np.int32(call.params["k"])
    plus = 0 if b is None else b[0]
    for i in range(first, last):
        y[i] = y[i] * np.int32(3) + x[i] * k + np.int32(call.state or 0) + plus


def mix_all(call: Call) -> None:
    y = call.arrays()[2]
    assert y is not None
    mix_rows(call, 0, len(y), 0)


def mix_count(call: Call) -> int:
    y = call.arrays()[2]
    assert y is not None
    return len(y)


def python_kernels() -> list[Kernel]:
    """Kernels in Python: in one piece, and in tiles with a state."""
    return [
        Kernel(op="mix", name="py_whole", run=mix_all),
        Kernel(
            op="mix",
            name="py_tiled",
            run=mix_rows,
            tiles=mix_count,
            init=lambda g: g.get("tag", 0),
        ),
    ]


def operand(slot: int, rows: int, first_row: int = -1, offset: int = 0) -> OperandTemplate:
    """An int32 operand of a pool whose rows are PITCH apart."""
    return OperandTemplate(slot, offset, "i32", (MOST, COLS), (PITCH, 1), rows, 0, None, first_row)


def mix_node(
    rng: np.random.Generator, kernels: list[Kernel], index: int, rows: int | None = None
) -> NodeTemplate:
    """A random ``mix``: any kernel per band, any part of the step, at times an absent operand."""
    if rows is None:
        rows = int(rng.choice([TOKENS, SEQS, DECODE_TOKENS, PREFILL_TOKENS]))
    source, target = (int(s) for s in rng.choice(NUM_POOLS, 2, replace=False))
    first_row = DECODE_TOKENS if rows == PREFILL_TOKENS else -1
    offset = int(rng.integers(0, 3)) * 4
    b = operand(int(rng.integers(-1, NUM_POOLS)), -1)
    if b.slot == target:
        b = operand(-1, -1)
    cuts = sorted({int(c) for c in rng.integers(1, MOST, int(rng.integers(0, 3)))})
    uppers = [*cuts, int(rng.choice([MOST, 1 << 62]))]
    bands = []
    for upper in uppers:
        tag = int(rng.integers(1, 50)) if rng.random() < 0.5 else None
        params = (upper, COLS, int(rng.integers(-3, 4)), tag)
        bands.append(Band(upper, kernels[int(rng.integers(len(kernels)))], params))
    return NodeTemplate(
        "mix",
        f"blk.{index} mix",
        (operand(source, rows, first_row, offset), b, operand(target, rows, first_row)),
        ("M", "n", "k", "tag"),
        tuple(bands),
        rows,
        rows,
    )


def random_program(rng: np.random.Generator, kernels: list[Kernel], num_nodes: int) -> StepProgram:
    """A program of random nodes."""
    return StepProgram(tuple(mix_node(rng, kernels, i) for i in range(num_nodes)), NUM_POOLS)


def symbols_of(decode: int, prefill: int, seqs: int) -> np.ndarray:
    """Values of a step that has these parts."""
    return np.array([decode + prefill, seqs, seqs, decode, prefill, seqs, 0, prefill], np.int64)


@dataclass(frozen=True, slots=True)
class Memory:
    """The pools of a run and their addresses."""

    pools: np.ndarray

    @classmethod
    def random(cls, seed: int) -> "Memory":
        rng = np.random.default_rng(seed)
        return cls(rng.integers(-9, 9, (NUM_POOLS, MOST * 2, PITCH), np.int32))

    @property
    def slots(self) -> np.ndarray:
        return np.array([p.ctypes.data for p in self.pools], np.uint64)


def kernel(library: KernelLibrary, name: str) -> Kernel:
    return next(k for k in library.kernels if k.name == name)


def fault_node(library: KernelLibrary, status: int, at: int, slot: int = 0) -> NodeTemplate:
    """A node whose tile ``at`` gives ``status``; -1: counting its tiles does."""
    y = OperandTemplate(slot, 0, "i32", (MOST, 1), (1, 1), TOKENS, 0, None)
    band = Band(MOST, kernel(library, "fault"), (MOST, status, at))
    return NodeTemplate(
        "fault", "blk.7 fault", (y,), ("M", "status", "at"), (band,), TOKENS, TOKENS
    )
