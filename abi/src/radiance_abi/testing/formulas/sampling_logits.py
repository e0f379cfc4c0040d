"""Formulas of the sampling ops that see whole rows of logits."""

import numpy as np

from radiance_abi.testing.case import Array, Case
from radiance_abi.testing.formulas.expected import Exact, Expected, Formula, Near
from radiance_abi.testing.sampling_inputs import (
    BIAS,
    DRY,
    GREEDY,
    LOGPROBS,
    MASK,
    PENALTY,
    records,
    sampled_rows,
)

_LONGEST = 4096


def penalties(case: Case) -> Expected:
    """Repetition, then frequency, then presence, once per distinct token of the window."""
    logits, history = case.array("logits"), case.array("history").tolist()
    touched: dict[tuple[int, int], float] = {}
    for i, row in sampled_rows(case, PENALTY):
        window = _window(history, row, int(row["penalty_last_n"]))
        for token in sorted(set(window)):
            value = float(logits[i, token])
            if not np.isfinite(value) or token < 0:
                continue
            rep = float(row["rep_penalty"])
            value = value / rep if value > 0 else value * rep
            value -= window.count(token) * float(row["freq_penalty"]) + float(row["pres_penalty"])
            touched[i, token] = value
    return _finite(logits, touched)


def _finite(logits: Array, touched: dict[tuple[int, int], float]) -> Expected:
    """Return logits with some replaced by values that may differ by rounding, all others exact."""
    wanted = logits.astype(np.float64)
    size = np.zeros_like(wanted)
    for at, value in touched.items():
        size[at] = max(abs(value), abs(float(logits[at])))
        wanted[at] = value
    return {"logits": Near(wanted, size, special=True)}


def _window(plane: list[int], row: np.void, last_n: int) -> list[int]:
    mine = plane[int(row["hist_off"]) : int(row["hist_off"]) + int(row["hist_len"])]
    return mine if last_n < 0 else mine[len(mine) - min(last_n, len(mine)) :]


def keep(case: Case) -> Expected:
    """Copy rows whose log probabilities are wanted."""
    kept = case.array("kept").copy()
    for i, row in enumerate(records(case.array("params"))):
        if row["flags"] & LOGPROBS:
            kept[i] = case.array("logits")[i]
    return {"kept": Exact(kept)}


def dry(case: Case) -> Expected:
    """Lower what would go on with a repetition, once per token, by its longest one."""
    logits, history = case.array("logits"), case.array("history").tolist()
    breakers = case.array("breakers").tolist() if case.has("breakers") else [0] * len(history)
    touched: dict[tuple[int, int], float] = {}
    for i, row in sampled_rows(case, DRY):
        last_n, allowed = int(row["dry_penalty_last_n"]), int(row["dry_allowed_length"])
        allowed = allowed if allowed > 0 else 2
        window = _window(history, row, last_n)
        exempt = _window(breakers, row, last_n)
        cap = int(row["dry_rep_limit"]) if 0 < row["dry_rep_limit"] < _LONGEST else _LONGEST
        found: dict[int, int] = {}
        for j in range(len(window) - 1):
            length = 0
            while length <= j and length < cap and window[j - length] == window[-1 - length]:
                length += 1
            if length >= allowed and not exempt[j + 1]:
                found[window[j + 1]] = max(found.get(window[j + 1], 0), length)
        for token, length in found.items():
            if token >= 0 and np.isfinite(logits[i, token]):
                power = float(_power(row["dry_multiplier"], row["dry_base"], length - allowed))
                touched[i, token] = float(logits[i, token]) - power
    return _finite(logits, touched)


def _power(value: np.float32, base: np.float32, exponent: int) -> np.float32:
    for _ in range(exponent):
        with np.errstate(over="ignore"):
            if not np.isfinite(value * base):
                break
        value = value * base
    return value


def bias(case: Case) -> Expected:
    """Add to single logits, in f32 and in the list's order: an id may come twice."""
    logits = case.array("logits").copy()
    for i, _ in sampled_rows(case, BIAS):
        for token, value in zip(case.array("ids")[i], case.array("values")[i], strict=True):
            if token < 0:
                break
            if token < logits.shape[1]:
                logits[i, token] += value
    return {"logits": Exact(logits)}


def temp(case: Case) -> Expected:
    """Divide by the temperature."""
    logits = case.array("logits").copy()
    for i, row in sampled_rows(case):
        if row["temp"] > 0 and row["temp"] != 1:
            logits[i] = logits[i] / row["temp"]
    size = np.where(np.isfinite(logits), np.abs(logits), 0).astype(np.float64)
    return {"logits": Near(logits.astype(np.float64), size, special=True)}


def mask(case: Case) -> Expected:
    """Forbid tokens whose bit is clear."""
    logits = case.array("logits").copy()
    words = case.array("bitmask")
    for i, row in sampled_rows(case, MASK):
        line = int(row["mask_row"])
        if line >= 0:
            for token in range(logits.shape[1]):
                if not (int(words[line, token // 32]) >> (token % 32)) & 1:
                    logits[i, token] = -np.inf
    return {"logits": Exact(logits)}


def argmax(case: Case) -> Expected:
    """The first largest logit of greedy rows."""
    logits, token = case.array("logits"), case.array("token").copy()
    for i, row in enumerate(records(case.array("params"))):
        if row["flags"] & GREEDY:
            best = max(range(logits.shape[1]), key=lambda t, r=logits[i]: (r[t], -t))  # type: ignore[misc]
            hopeless = np.isnan(logits[i]).any() or logits[i, best] == -np.inf
            token[i] = -1 if hopeless else best
    return {"token": Exact(token)}


def logprobs(case: Case) -> Expected:
    """Log-softmax of what was kept; ranks count larger logits."""
    kept, width = case.array("kept"), case.integer("n_top")
    names = ("logprob", "rank", "top_idx", "top_val")
    logprob, rank, ids, values = (case.array(name).copy() for name in names)
    for i, row in enumerate(records(case.array("params"))):
        if not row["flags"] & LOGPROBS:
            continue
        logprob[i], rank[i], ids[i], values[i] = -np.inf, 0, -1, -np.inf
        if np.isnan(kept[i]).any() or kept[i].max() == -np.inf:
            continue
        logits = kept[i].astype(np.float64)
        logs = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        best = sorted(np.flatnonzero(logits > -np.inf), key=lambda t, r=logits: (-r[t], t))  # type: ignore[misc]
        for place, token in enumerate(best[:width]):
            ids[i, place], values[i, place] = token, logs[token]
        given = int(case.array("given")[i, 0])
        told = int(case.array("token")[i, 0]) if given < 0 else given
        if 0 <= told < len(logits):
            logprob[i], rank[i] = logs[told], 1 + int((logits > logits[told]).sum())
    return {
        "logprob": _difference_of_logits(logprob, kept),
        "top_val": _difference_of_logits(values, kept),
        "rank": Exact(rank),
        "top_idx": Exact(ids),
    }


def _difference_of_logits(value: Array, kept: Array) -> Near:
    """Return what is right within rounding of the logits that are subtracted."""
    wanted = value.astype(np.float64)
    finite = np.abs(np.where(np.isfinite(kept), kept, 0))
    size = np.where(np.isfinite(wanted), np.abs(wanted), 0) + finite.max(axis=1, keepdims=True)
    return Near(wanted, size, special=True)


FORMULAS: dict[str, Formula] = {
    "sample_keep": keep,
    "sample_penalties": penalties,
    "sample_dry": dry,
    "sample_bias": bias,
    "sample_temp": temp,
    "sample_mask": mask,
    "sample_argmax": argmax,
    "sample_logprobs": logprobs,
}
