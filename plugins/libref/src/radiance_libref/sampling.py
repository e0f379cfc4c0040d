"""From logits to a token, one op a stage, in numpy: rows are few and each is a short list.

Every per-request number comes from ``params``, one row of 96 bytes a request. Greedy rows belong
to sample_argmax; all other stages leave them alone. Candidates lie in descending (logit, lower id
first); a dropped one becomes (-1, -inf) and those that remain move to the front. A draw depends on
(seed, pos) alone.
"""

from collections.abc import Callable

import numpy as np

from radiance_abi import Call
from radiance_libref.sampling_rows import (
    XTC,
    XTC_STREAM,
    arrays,
    probabilities,
    sampled,
    settings_of,
    uniform,
)


def sample_topk(call: Call) -> None:
    """List a row's largest logits, at most top_k of them; a row with a NaN lists none."""
    _topk(*arrays(call))


def _topk(logits: np.ndarray, params: np.ndarray, ids: np.ndarray, values: np.ndarray) -> None:
    settings = settings_of(params)
    for i in sampled(settings):
        row = logits[i]
        ids[i], values[i] = -1, -np.inf
        if np.isnan(row).any():
            continue
        width = ids.shape[1]
        top_k = int(settings[i]["top_k"])
        count = width if top_k <= 0 else min(top_k, width)
        order = np.argsort(-row, kind="stable")[:count]
        order = order[row[order] > -np.inf]
        ids[i, : len(order)], values[i, : len(order)] = order, row[order]


def _live(ids: np.ndarray, values: np.ndarray) -> int:
    """Return how many candidates a row still has; they lie in front."""
    return int(np.count_nonzero((ids >= 0) & (values > -np.inf)))


_Keep = Callable[[np.ndarray, np.void], np.ndarray | None]


def _narrow(operands: list[np.ndarray], keep: _Keep, flag: int = 0) -> None:
    """Keep the candidates that ``keep(values, settings)`` marks; None keeps all."""
    ids, values, params = operands
    settings = settings_of(params)
    for i in sampled(settings, flag):
        count = _live(ids[i], values[i])
        kept = keep(values[i, :count], settings[i]) if count else None
        if kept is None:
            continue
        chosen = np.flatnonzero(kept)
        left_ids, left_values = ids[i, chosen], values[i, chosen]
        ids[i], values[i] = -1, -np.inf
        ids[i, : len(chosen)], values[i, : len(chosen)] = left_ids, left_values


def _topp(values: np.ndarray, row: np.void) -> np.ndarray | None:
    if not 0 < row["top_p"] < 1:
        return None
    before = np.concatenate(([0.0], np.cumsum(probabilities(values))[:-1]))
    # A candidate stays while those before it have not reached top_p.
    return np.asarray(before < np.float64(row["top_p"]))


def sample_topp(call: Call) -> None:
    """Keep the shortest prefix whose probability reaches top_p, at least one candidate."""
    _narrow(arrays(call), _topp)


def _minp(values: np.ndarray, row: np.void) -> np.ndarray | None:
    if not row["min_p"] > 0:
        return None
    p = probabilities(values)
    return np.asarray((p >= p[0] * np.float64(row["min_p"])) | (np.arange(len(p)) == 0))


def sample_minp(call: Call) -> None:
    """Drop candidates whose probability is below min_p times that of the first."""
    _narrow(arrays(call), _minp)


def _typical(values: np.ndarray, row: np.void) -> np.ndarray | None:
    if not 0 < row["typical_p"] < 1:
        return None
    p = probabilities(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = -np.log(p)
        entropy = np.where(p > 0, p * surprise, 0.0).sum()
    distance = np.abs(surprise - entropy)
    order = np.argsort(distance, kind="stable")
    mass = np.cumsum(p[order])
    enough = min(int(np.searchsorted(mass, np.float64(row["typical_p"]))), len(p) - 1)
    return np.asarray(distance <= distance[order[enough]])


def sample_typical(call: Call) -> None:
    """Keep the candidates nearest to the entropy whose probability reaches typical_p.

    Those that are as near as the last one kept stay too.
    """
    _narrow(arrays(call), _typical)


def _xtc(values: np.ndarray, row: np.void) -> np.ndarray | None:
    if uniform(int(row["seed"]) ^ XTC_STREAM, int(row["pos"])) >= row["xtc_probability"]:
        return None
    above = np.flatnonzero(probabilities(values) >= np.float64(row["xtc_threshold"]))
    kept = np.ones(len(values), bool)
    kept[above[:-1]] = False
    return kept


def sample_xtc(call: Call) -> None:
    """Drop all candidates above the threshold but the least likely one.

    Happens with probability xtc_probability, by a stream of draws of its own.
    """
    _narrow(arrays(call), _xtc, XTC)


def sample_pick(call: Call) -> None:
    """Draw a token from the candidates by inverse CDF; a row without candidates gives -1."""
    _pick(*arrays(call))


def _pick(ids: np.ndarray, values: np.ndarray, params: np.ndarray, token: np.ndarray) -> None:
    settings = settings_of(params)
    for i in sampled(settings):
        count = _live(ids[i], values[i])
        if not count:
            token[i, 0] = -1
            continue
        cumulative = np.cumsum(probabilities(values[i, :count]))
        draw = uniform(int(settings[i]["seed"]), int(settings[i]["pos"]))
        first = int(np.searchsorted(cumulative, draw, side="right"))
        token[i, 0] = ids[i, min(first, count - 1)]


def sample_draw(call: Call) -> None:
    """Go from logits to a token by all of these stages; every logit may be a candidate."""
    logits, params, token = arrays(call)
    ids, values = np.full(logits.shape, -1, np.int32), np.full_like(logits, -np.inf)
    _topk(logits, params, ids, values)
    for keep, flag in ((_topp, 0), (_minp, 0), (_typical, 0), (_xtc, XTC)):
        _narrow([ids, values, params], keep, flag)
    _pick(ids, values, params, token)
