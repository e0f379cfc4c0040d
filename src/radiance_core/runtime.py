"""A built model: fill the step's inputs, run one step, read its results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from radiance_core.bind import Bound
from radiance_core.execute.program import SYMBOLS, Executor
from radiance_core.plan.budget import Budget, KvPlan


@dataclass(frozen=True, slots=True)
class StepShape:
    """How much of each input a step uses; decode rows come first."""

    tokens: int
    seqs: int
    out_rows: int
    max_q_len: int
    decode_tokens: int = 0
    decode_seqs: int = 0

    def symbols(self) -> np.ndarray:
        """Return the values of all symbols, int64, in the order of ``SYMBOLS``."""
        values = (
            self.tokens,
            self.seqs,
            self.out_rows,
            self.decode_tokens,
            self.tokens - self.decode_tokens,
            self.decode_seqs,
            self.seqs - self.decode_seqs,
            self.max_q_len,
        )
        assert len(values) == len(SYMBOLS), "every symbol has a value"
        return np.array(values, np.int64)


@dataclass(frozen=True, slots=True)
class ToldRows:
    """What the last step told of its rows that ask for log probabilities; others hold anything.

    ``logprob`` f32 and ``rank`` i32 [O, 1]: of the row's token. ``top_idx`` i32 and ``top_val`` f32
    [O, N]: the most likely tokens.
    """

    logprob: np.ndarray
    rank: np.ndarray
    top_idx: np.ndarray
    top_val: np.ndarray


class StepModel:
    """One model in memory, ready for steps; not safe for use from two threads at once.

    ``inputs``: arrays to fill before a step, at their greatest extents: tokens, positions [T],
    cu_seqlens [S+1], out_ids, sampling [O, 96] u8, history, dry_breakers u8, bias_ids and
    bias_values [O, B], bitmask [O, V / 32], logprob_ids [O, 1]; per cache group g: "g.slot_mapping"
    [T], "g.block_table" [S, pages of one sequence], "g.seqused" [S]. ``groups``: the pools.
    """

    def __init__(self, bound: Bound, executor: Executor, handle: Any, budget: Budget) -> None:
        self._bound = bound
        self._executor = executor
        self._handle = handle
        self.budget = budget
        self.inputs: Mapping[str, np.ndarray] = bound.inputs
        self.groups: Mapping[str, KvPlan] = {g.name: g for g in budget.groups}
        self._token = bound.outputs["token"][:, 0]
        names = ("logprob", "rank", "top_idx", "top_val")
        self.told = ToldRows(*(bound.outputs[name] for name in names))

    def run(self, shape: StepShape, abort: np.ndarray | None = None) -> None:
        """Run one step over what the inputs hold.

        Args:
            shape: how much of the inputs.
            abort: int32 [1], which any thread may set to other than 0 to end the step early.

        Raises:
            StepAborted: the step was ended so; the caches beyond what was computed are undefined.
            KernelError: a kernel failed; the caches of the step's sequences are undefined.
        """
        self._executor.run(self._handle, shape.symbols(), self._bound.slots, abort)

    def copy_page(self, group: str, source: int, target: int) -> None:
        """Copy what a page of a group holds, between two steps."""
        pool = self._bound.pools[group]
        pool[target] = pool[source]

    def clear_page(self, group: str, page: int) -> None:
        """Overwrite what a page of a group holds with zeros, between two steps."""
        self._bound.pools[group][page] = 0

    @property
    def n_vocab(self) -> int:
        """Token ids that the model reads and draws."""
        return int(self.logits.shape[1])

    @property
    def logits(self) -> np.ndarray:
        """Logits of the last step, f32 [max out rows, V]; penalised and scaled on sampled rows."""
        return self._bound.outputs["logits"]

    @property
    def tokens(self) -> np.ndarray:
        """Sampled ids of the last step, i32 [max out rows]; -1 where logits were not finite."""
        return self._token

    def close(self) -> None:
        """Stop the threads; the model cannot run afterwards."""
        self._executor.close()


def fill_greedy(inputs: Mapping[str, np.ndarray], count: int) -> None:
    """Have the first ``count`` rows of a step draw their likeliest token, and nothing else."""
    inputs["sampling"][:count] = 0
    inputs["sampling"].view(np.int32)[:count, 22] = 1


def sequence_logits(
    model: StepModel, token_ids: Sequence[int], chunks: Sequence[int]
) -> np.ndarray:
    """Return logits f32 [len(token_ids), V] of one sequence fed in ``chunks`` of tokens.

    Uses pages 0.. of every pool; the model must be built with as many out rows as the largest
    chunk.
    """
    inputs = model.inputs
    rows = []
    done = 0
    for size in chunks:
        ids = np.asarray(token_ids[done : done + size], np.int32)
        positions = np.arange(done, done + size, dtype=np.int32)
        inputs["tokens"][:size] = ids
        inputs["positions"][:size] = positions
        inputs["cu_seqlens"][:2] = (0, size)
        inputs["out_ids"][:size] = np.arange(size)
        fill_greedy(inputs, size)
        for name in model.groups:
            table = inputs[f"{name}.block_table"]
            table[0] = np.arange(table.shape[1])
            inputs[f"{name}.slot_mapping"][:size] = positions
            inputs[f"{name}.seqused"][0] = done + size
        model.run(StepShape(size, 1, size, size))
        rows.append(model.logits[:size].copy())
        done += size
    return np.concatenate(rows)
