"""Sampling stages that see a whole row of logits, and what is told of it, in numpy."""

import numpy as np

from radiance_abi import Call, KernelError
from radiance_libref.sampling_rows import (
    BIAS,
    DRY,
    GREEDY,
    INVAL,
    LOGPROBS,
    MASK,
    PENALTY,
    arrays,
    probabilities,
    sampled,
    settings_of,
    window_of,
)

LONGEST_MATCH = 4096
"""Tokens that a repetition counts for DRY at most."""


def sample_keep(call: Call) -> None:
    """Copy the logits of rows whose log probabilities are wanted."""
    logits, params, kept = arrays(call)
    wanted = settings_of(params)["flags"] & LOGPROBS != 0
    kept[wanted] = logits[wanted]


def sample_penalties(call: Call) -> None:
    """Lower the logits of tokens in the window: repetition, then frequency, then presence."""
    logits, params, history = arrays(call)
    settings = settings_of(params)
    for i in sampled(settings, PENALTY):
        row = settings[i]
        window = history[window_of(history, row, int(row["penalty_last_n"]))]
        tokens, counts = np.unique(window, return_counts=True)
        known = (tokens >= 0) & (tokens < logits.shape[1])
        tokens, counts = tokens[known], counts[known].astype(np.float32)
        value = logits[i, tokens]
        value = np.where(value > 0, value / row["rep_penalty"], value * row["rep_penalty"])
        logits[i, tokens] = value - counts * row["freq_penalty"] - row["pres_penalty"]


def sample_dry(call: Call) -> None:
    """Lower the tokens that would go on with a repetition of the window's end."""
    logits, params, history, breakers = call.arrays()
    if logits is None or params is None or history is None:
        raise KernelError("sampling: expected every operand, got an absent one", INVAL)
    settings = settings_of(params)
    for i in sampled(settings, DRY):
        row = settings[i]
        kept = window_of(history, row, int(row["dry_penalty_last_n"]))
        exempt = np.zeros(len(history), bool) if breakers is None else breakers != 0
        for token, length in _repetitions(history[kept].tolist(), exempt[kept], row).items():
            if 0 <= token < logits.shape[1]:
                logits[i, token] -= _dry_penalty(row, length - _allowed(row))


def _allowed(row: np.void) -> int:
    allowed = int(row["dry_allowed_length"])
    return allowed if allowed > 0 else 2


def _repetitions(window: list[int], exempt: np.ndarray, row: np.void) -> dict[int, int]:
    """Return the longest match by the token that would go on with it."""
    limit = int(row["dry_rep_limit"])
    cap = min(limit, LONGEST_MATCH) if limit > 0 else LONGEST_MATCH
    longest: dict[int, int] = {}
    for end in range(1, len(window)):
        length = 0
        while length < min(cap, end) and window[end - 1 - length] == window[-1 - length]:
            length += 1
        if length >= _allowed(row) and not exempt[end]:
            longest[window[end]] = max(length, longest.get(window[end], 0))
    return longest


def _dry_penalty(row: np.void, excess: int) -> np.float32:
    penalty, base = row["dry_multiplier"], row["dry_base"]
    for _ in range(excess):
        with np.errstate(over="ignore"):
            grown = penalty * base
        if not np.isfinite(grown) or grown == penalty:
            break
        penalty = grown
    return np.float32(penalty)


def sample_bias(call: Call) -> None:
    """Add to single logits; a negative id ends a row's list."""
    logits, params, ids, values = arrays(call)
    for i in sampled(settings_of(params), BIAS):
        for token, value in zip(ids[i], values[i], strict=True):
            if token < 0:
                break
            if token < logits.shape[1]:
                logits[i, token] += value


def sample_temp(call: Call) -> None:
    """Divide a row by its temperature; temperatures of 1 and of at most 0 leave it."""
    logits, params = arrays(call)
    settings = settings_of(params)
    for i in sampled(settings):
        temp = settings[i]["temp"]
        if temp > 0 and temp != 1:
            logits[i] /= temp


def sample_mask(call: Call) -> None:
    """Forbid (-inf) every token whose bit is clear in the row's line of ``bitmask``."""
    logits, params, bitmask = arrays(call)
    settings = settings_of(params)
    for i in sampled(settings, MASK):
        line = int(settings[i]["mask_row"])
        if line < 0:
            continue
        words = np.ascontiguousarray(bitmask[line]).view(np.uint8)
        bits = np.unpackbits(words, bitorder="little", count=logits.shape[1])
        # A line that is shorter than the vocabulary forbids the rest: unpackbits pads with zeros.
        logits[i, bits == 0] = -np.inf


def sample_argmax(call: Call) -> None:
    """Give greedy rows the id of their largest logit, the lower id on a tie.

    A row with a NaN, or without a finite logit, gives -1.
    """
    logits, params, token = arrays(call)
    for i in np.flatnonzero(settings_of(params)["flags"] & GREEDY):
        row = logits[i]
        best = int(row.argmax())
        token[i, 0] = -1 if np.isnan(row).any() or row[best] == -np.inf else best


def sample_logprobs(call: Call) -> None:
    """Tell the log probability and rank of a token, and the most likely tokens."""
    kept, params, token, given, logprob, rank, top_idx, top_val = arrays(call)
    for i in np.flatnonzero(settings_of(params)["flags"] & LOGPROBS):
        row = kept[i]
        logprob[i], rank[i], top_idx[i], top_val[i] = -np.inf, 0, -1, -np.inf
        if np.isnan(row).any() or row.max() == -np.inf:
            continue
        with np.errstate(divide="ignore"):
            logs = np.log(probabilities(row)) if row.max() == np.inf else _log_softmax(row)
        order = np.argsort(-row, kind="stable")[: top_idx.shape[1]]
        order = order[row[order] > -np.inf]
        top_idx[i, : len(order)], top_val[i, : len(order)] = order, logs[order]
        told = int(token[i, 0] if given[i, 0] < 0 else given[i, 0])
        if 0 <= told < len(row):
            logprob[i], rank[i] = logs[told], 1 + np.count_nonzero(row > row[told])


def _log_softmax(row: np.ndarray) -> np.ndarray:
    away = row.astype(np.float64) - float(row.max())
    return np.asarray(away - np.log(np.exp(away).sum()))
