"""What of a request's rows is the same in every step, worked out once."""

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from radiance_core.engine.breakers import BreakerFinder
from radiance_core.engine.interface import Request
from radiance_core.engine.sampling import SamplingParams
from radiance_core.engine.sampling_row import (
    GREEDY,
    LOGPROBS,
    avoids_repetition,
    flags_of,
    pack_row,
    penalised,
)
from radiance_core.engine.token_history import TokenHistory
from radiance_core.graph.sampler import MOST_BIASES, TOP_LOGPROBS


@dataclass(slots=True, eq=False)
class RowPlan:
    """How the rows of one request are written.

    Args:
        plain, masked: the row of a draw among all tokens, and among those that a mask leaves.
        given: the row that only tells the log probability of a token that is known.
        flags: of ``plain`` and of ``masked``.
        look_back: tokens of history that a row brings; 0 none, negative all.
        dry_allowed: repetitions shorter than this cost nothing; 0 without DRY.
        history: the text as an array, when rows bring history.
        bias: token ids i32 and what is added to their logits f32, a negative id at the end.
        no_end: the mask that leaves out what would end the text, i32 [ceil(V / 32)].
        min_tokens: draws that this mask is for.
        is_plain: whether a row without a mask brings nothing along.
        is_told: whether log probabilities are wanted of anything.
    """

    plain: bytes
    masked: bytes
    given: bytes
    flags: tuple[int, int]
    look_back: int
    dry_allowed: int
    history: TokenHistory | None
    bias: tuple[np.ndarray, np.ndarray] | None
    no_end: np.ndarray | None
    min_tokens: int
    is_plain: bool
    is_told: bool


def plan_rows(
    request: Request,
    seed: int,
    stop_ids: Collection[int],
    n_vocab: int,
    token_bytes: Callable[[int], bytes],
) -> RowPlan:
    """Return the plan of a request in which ``row_fault`` finds nothing.

    Args:
        request: the request.
        seed: key of its draws.
        stop_ids: tokens that end its text.
        n_vocab: ids of the model.
        token_bytes: what a token spells.
    """
    s = request.sampling
    flags = flags_of(s, masked=False), flags_of(s, masked=True)
    dry = avoids_repetition(s)
    look_back = _widest(
        s.penalty_last_n if penalised(s) else 0,
        s.dry_last_n if dry else 0,
    )
    finder = BreakerFinder(s.dry_breakers, token_bytes) if dry else None
    return RowPlan(
        plain=pack_row(s, seed, flags[0]),
        masked=pack_row(s, seed, flags[1]),
        given=pack_row(s, seed, GREEDY | LOGPROBS),
        flags=flags,
        look_back=look_back,
        dry_allowed=(s.dry_allowed_length if s.dry_allowed_length > 0 else 2) if dry else 0,
        history=TokenHistory(finder) if look_back else None,
        bias=_biases(s) if s.logit_bias else None,
        no_end=_all_but(stop_ids, n_vocab) if s.min_tokens else None,
        min_tokens=s.min_tokens,
        is_plain=not look_back and not s.logit_bias and s.logprobs is None,
        is_told=s.logprobs is not None or s.prompt_logprobs is not None,
    )


def row_fault(s: SamplingParams, n_vocab: int) -> str | None:
    """Return what no row can hold, which would otherwise be found in a step, among others."""
    for name, count in (("logprobs", s.logprobs), ("prompt_logprobs", s.prompt_logprobs)):
        if count is not None and not 0 <= count <= TOP_LOGPROBS:
            return f"{name}: expected 0 to {TOP_LOGPROBS}, got {count}"
    if len(s.logit_bias) > MOST_BIASES:
        return f"logit_bias: expected at most {MOST_BIASES} tokens, got {len(s.logit_bias)}"
    for token in s.logit_bias:
        if not 0 <= token < n_vocab:
            return f"logit_bias: expected token ids from 0 to {n_vocab - 1}, got {token}"
    try:
        pack_row(s, 0, flags_of(s, masked=False))
    except (struct.error, OverflowError) as error:
        return f"sampling: expected numbers that a sampling row can hold: {error}"
    return None


def _widest(*windows: int) -> int:
    return -1 if min(windows) < 0 else max(windows)


def _biases(s: SamplingParams) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array([*s.logit_bias, -1], np.int32)[:MOST_BIASES]
    return ids, np.array([*s.logit_bias.values(), 0], np.float32)[:MOST_BIASES]


def _all_but(ids: Collection[int], n_vocab: int) -> np.ndarray:
    """Return a mask that allows all tokens but those of ``ids``."""
    words = np.full(-(-n_vocab // 32), 0xFFFFFFFF, np.uint32)
    for token in ids:
        if 0 <= token < n_vocab:
            words[token // 32] &= np.uint32(0xFFFFFFFF ^ 1 << token % 32)
    return words.view(np.int32)
