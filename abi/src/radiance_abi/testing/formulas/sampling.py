"""Formulas of the sampling ops over candidates: one row at a time, a list of (id, logit)."""

from collections.abc import Callable

import numpy as np

from radiance_abi.testing.case import F64, Case
from radiance_abi.testing.formulas import sampling_logits
from radiance_abi.testing.formulas.expected import Exact, Expected, Formula
from radiance_abi.testing.sampling_inputs import XTC, sampled_rows

_XTC_KEY = 0x58544311
_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def draw(seed: int, pos: int) -> float:
    """Return the uniform number of (seed, pos): the top 24 bits of splitmix64."""
    z = (seed * _GOLDEN + pos) & _WORD
    z = (z + _GOLDEN) & _WORD
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = ((z ^ (z >> shift)) * factor) & _WORD
    return float(((z ^ (z >> 31)) & _WORD) >> 40) * 2.0**-24


def topk(case: Case) -> Expected:
    """The largest logits in order; ties to the lower id."""
    logits, width = case.array("logits"), case.integer("n_cand")
    ids, values = case.array("cand_idx").copy(), case.array("cand_val").copy()
    for i, row in sampled_rows(case):
        ids[i], values[i] = -1, -np.inf
        if np.isnan(logits[i]).any():
            continue
        alive = [t for t in range(logits.shape[1]) if logits[i, t] > -np.inf]
        alive.sort(key=lambda t, r=logits[i]: (-r[t], t))  # type: ignore[misc]
        k = int(row["top_k"])
        for place, token in enumerate(alive[: min(k, width) if k > 0 else width]):
            ids[i, place], values[i, place] = token, logits[i, token]
    return {"cand_idx": Exact(ids), "cand_val": Exact(values)}


def _narrowing(keep: Callable[[F64, np.void], list[int]], flag: int = 0) -> Formula:
    """Return the formula of an op that keeps the candidates at some places of the list."""

    def formula(case: Case) -> Expected:
        ids, values = case.array("cand_idx").copy(), case.array("cand_val").copy()
        for i, row in sampled_rows(case, flag):
            alive = [c for c in range(ids.shape[1]) if ids[i, c] >= 0]
            if not alive:
                continue
            e = np.exp(values[i, alive].astype(np.float64) - float(values[i, alive[0]]))
            kept = [alive[c] for c in keep(e / e.sum(), row)]
            left = [(ids[i, c], values[i, c]) for c in kept]
            ids[i], values[i] = -1, -np.inf
            for place, (token, value) in enumerate(left):
                ids[i, place], values[i, place] = token, value
        return {"cand_idx": Exact(ids), "cand_val": Exact(values)}

    return formula


def _topp(p: F64, row: np.void) -> list[int]:
    if not 0 < row["top_p"] < 1:
        return list(range(len(p)))
    total, kept = 0.0, []
    for c, share in enumerate(p):
        kept.append(c)
        total += float(share)
        if total >= float(row["top_p"]):
            break
    return kept


def _minp(p: F64, row: np.void) -> list[int]:
    return [c for c in range(len(p)) if c == 0 or p[c] / p[0] >= float(row["min_p"])]


def _typical(p: F64, row: np.void) -> list[int]:
    if not 0 < row["typical_p"] < 1:
        return list(range(len(p)))
    surprise = -np.log(p)
    distance = np.abs(surprise - float(p @ surprise))
    for limit in sorted(distance):
        kept = [c for c in range(len(p)) if distance[c] <= limit]
        if sum(float(p[c]) for c in kept) >= float(row["typical_p"]):
            return kept
    return list(range(len(p)))


def _xtc(p: F64, row: np.void) -> list[int]:
    everything = list(range(len(p)))
    if draw(int(row["seed"]) ^ _XTC_KEY, int(row["pos"])) >= float(row["xtc_probability"]):
        return everything
    likely = [c for c in everything if p[c] >= float(row["xtc_threshold"])]
    return [c for c in everything if c not in likely[:-1]]


def pick(case: Case) -> Expected:
    """Inverse CDF over the candidates in their order."""
    ids, values = case.array("cand_idx"), case.array("cand_val")
    token = case.array("token").copy()
    for i, row in sampled_rows(case):
        alive = [c for c in range(ids.shape[1]) if ids[i, c] >= 0 and values[i, c] > -np.inf]
        if not alive:
            token[i] = -1
            continue
        e = np.exp(values[i, alive].astype(np.float64) - float(values[i, alive[0]]))
        u = draw(int(row["seed"]), int(row["pos"])) * float(e.sum())
        above = [c for c, total in zip(alive, np.cumsum(e), strict=True) if u < total]
        token[i] = ids[i, above[0] if above else alive[-1]]
    return {"token": Exact(token)}


def whole(case: Case) -> Expected:
    """All stages from the logits to the token, with room for every logit."""
    logits = case.array("logits")
    operands = dict(case.operands)
    operands["cand_idx"] = np.full(logits.shape, -1, np.int32)
    operands["cand_val"] = np.full_like(logits, -np.inf)
    params = {**case.params, "n_cand": logits.shape[1]}
    for formula in (topk, *(_STAGES[f"sample_{s}"] for s in ("topp", "minp", "typical", "xtc"))):
        found = formula(Case(case.schema, params, operands))
        operands |= {name: want.value for name, want in found.items() if isinstance(want, Exact)}
    return pick(Case(case.schema, params, operands))


_STAGES: dict[str, Formula] = {
    "sample_topp": _narrowing(_topp),
    "sample_minp": _narrowing(_minp),
    "sample_typical": _narrowing(_typical),
    "sample_xtc": _narrowing(_xtc, XTC),
}
FORMULAS: dict[str, Formula] = {
    **sampling_logits.FORMULAS,
    "sample_topk": topk,
    **_STAGES,
    "sample_pick": pick,
    "sample_draw": whole,
}
