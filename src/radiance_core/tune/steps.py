"""Steps to measure in: some conversations that go on, or one prompt, each with a past."""

from collections.abc import Mapping

import numpy as np

from radiance_core.execute.program import SYMBOLS
from radiance_core.plan.budget import KvPlan
from radiance_core.runtime import StepShape, fill_greedy

PAST = 512
"""Tokens that each conversation has behind it, where the model and the memory have room."""

_MOST_DECODED = 8
_PROMPT_ONLY = ("MAX_Q_LEN", "PREFILL_TOKENS", "PREFILL_SEQS")


def shape_of(ranged: str | None, rows: int) -> StepShape:
    """Return a step in which a symbol has the value ``rows``: of conversations up to 8."""
    decoded = rows <= _MOST_DECODED or ranged in ("SEQS", "DECODE_SEQS", "OUT_ROWS")
    if rows == 1 and ranged not in ("PREFILL_TOKENS", "PREFILL_SEQS"):
        return StepShape(1, 1, 1, 1, 1, 1)
    if decoded and ranged not in _PROMPT_ONLY:
        return StepShape(rows, rows, rows, 1, rows, rows)
    return StepShape(rows, 1, 1, rows)


def has_rows(shape: StepShape, ranged: str | None, rows: int) -> bool:
    """Return whether a step gives a symbol that value."""
    return ranged is None or int(shape.symbols()[SYMBOLS.index(ranged)]) == rows


def fill(
    inputs: Mapping[str, np.ndarray],
    groups: Mapping[str, KvPlan],
    shape: StepShape,
    max_context: int,
    n_vocab: int,
) -> None:
    """Write a step into a model's inputs: random tokens after a past of zeros.

    Args:
        inputs: as of ``StepModel``.
        groups: the pools; conversations share pages where those do not suffice.
        shape: as ``shape_of`` gives it.
        max_context: tokens of one conversation at most.
        n_vocab: token ids that the model reads.
    """
    rows, seqs = shape.tokens, shape.seqs
    each = rows // seqs
    past = max(0, min(PAST, max_context - each))
    positions = past + np.arange(rows, dtype=np.int32) % each
    inputs["tokens"][:rows] = np.random.default_rng().integers(n_vocab, size=rows)
    inputs["positions"][:rows] = positions
    inputs["cu_seqlens"][: seqs + 1] = np.arange(seqs + 1) * each
    inputs["out_ids"][: shape.out_rows] = (np.arange(shape.out_rows) + 1) * (rows // shape.out_rows)
    inputs["out_ids"][: shape.out_rows] -= 1
    if "sampling" in inputs:  # a graph that draws no tokens has none
        fill_greedy(inputs, shape.out_rows)
    owners = np.arange(rows) // each
    for name, group in groups.items():
        table = inputs[f"{name}.block_table"]
        width = min(table.shape[1], -(-(past + each) // group.block_size))
        pages = (np.arange(seqs)[:, None] * width + np.arange(width)) % group.pages
        table[:seqs, :width] = pages
        slots = pages[owners, positions // group.block_size] * group.block_size
        inputs[f"{name}.slot_mapping"][:rows] = slots + positions % group.block_size
        inputs[f"{name}.seqused"][:seqs] = past + each
