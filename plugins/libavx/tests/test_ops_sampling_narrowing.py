"""Stages that narrow candidates, against their definitions in float64."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .test_ops_sampling import (
    GREEDY,
    HOLE,
    XTC,
    as_bytes,
    call,
    candidates,
    rows_of,
    softmax,
    uniform,
)


def kept_by_topp(values: np.ndarray, p: float) -> np.ndarray:
    total = np.cumsum(softmax(values))
    return np.concatenate([[0], total[:-1]]) < p


def kept_by_minp(values: np.ndarray, p: float) -> np.ndarray:
    return np.asarray(np.exp(values.astype(np.float64) - float(values[0])) >= p)


def kept_by_typical(values: np.ndarray, p: float) -> np.ndarray:
    q = softmax(values)
    distance = np.abs(-np.log(q) - -(q * np.log(q)).sum())
    enough = [d for d in np.sort(distance) if q[distance <= d].sum() >= p]
    return np.asarray(distance <= (enough[0] if enough else np.inf))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["topp", "minp", "typical"]),
    st.floats(0.02, 0.99),
    st.integers(1, 90),
    st.integers(0, 2**32 - 1),
)
def test_narrowing(levels: Any, stage: str, p: float, width: int, seed: int) -> None:
    """Candidates that the definition keeps move to the front in order; the rest are holes."""
    rng = np.random.default_rng(seed)
    field, keep = {
        "topp": ("top_p", kept_by_topp), "minp": ("min_p", kept_by_minp),
        "typical": ("typical_p", kept_by_typical),
    }[stage]  # fmt: skip
    ids, values = candidates(rng, 9, width)
    p32 = float(np.float32(p))
    fields = [{field: p}] * 7 + [{field: p, "flags": GREEDY}, {field: 0.0}]
    params = as_bytes(rows_of(*fields))
    for level in levels:
        got_ids, got_values = ids.copy(), values.copy()
        operands = [got_ids, got_values, params]
        assert call(level, f"sample_{stage}", operands, 2, n_cand=width) == 0
        for r in range(9):
            live = int((ids[r] >= 0).sum())
            kept = np.ones(live, bool)
            if r < 7 and live:
                kept = keep(values[r, :live], p32)
                assert kept.any()
            want = ids[r, :live][kept]
            assert got_ids[r].tolist() == [*want, *[-1] * (width - len(want))]
            np.testing.assert_array_equal(got_values[r, : len(want)], values[r, :live][kept])
            assert (got_values[r, len(want) :] == HOLE).all()


@pytest.mark.parametrize("stage", ["topp", "minp", "typical"])
def test_narrowing_of_whole_vocabularies(levels: Any, stage: str) -> None:
    """With every token a candidate, as many stay as the definition keeps, give or take rounding."""
    rng = np.random.default_rng()
    n = 100_000
    values = -np.sort(-rng.normal(size=(1, n)) * 2).astype(np.float32)
    ids = rng.permutation(n).astype(np.int32)[None]
    field, keep, p = {
        "topp": ("top_p", kept_by_topp, 0.9), "minp": ("min_p", kept_by_minp, 0.01),
        "typical": ("typical_p", kept_by_typical_of_many, 0.7),
    }[stage]  # fmt: skip
    params = as_bytes(rows_of({field: p}))
    want = keep(values[0], float(np.float32(p))).sum()
    for level in levels:
        got_ids, got_values = ids.copy(), values.copy()
        assert call(level, f"sample_{stage}", [got_ids, got_values, params], n_cand=n) == 0
        kept = int((got_ids >= 0).sum())
        assert abs(kept - want) <= 2
        assert (np.diff(got_values[0, :kept]) <= 0).all()
        assert set(got_ids[0, :kept].tolist()) <= set(ids[0].tolist())
        assert (got_ids[0, kept:] == -1).all()


def kept_by_typical_of_many(values: np.ndarray, p: float) -> np.ndarray:
    q = softmax(values)
    distance = np.abs(-np.log(q) - -(q * np.log(q)).sum())
    order = np.argsort(distance)
    farthest = distance[order[np.searchsorted(np.cumsum(q[order]), p)]]
    return np.asarray(distance <= farthest)


def test_topp_and_typical_at_one_keep_all(best: Any) -> None:
    """1 and more, like 0 and less, switch the stages off."""
    ids, values = candidates(np.random.default_rng(), 4, 20)
    for stage, field in (("topp", "top_p"), ("typical", "typical_p")):
        params = as_bytes(rows_of(*({field: v} for v in (1.0, 2.0, 0.0, -1.0))))
        got_ids, got_values = ids.copy(), values.copy()
        assert call(best, f"sample_{stage}", [got_ids, got_values, params], n_cand=20) == 0
        np.testing.assert_array_equal(got_ids, ids)
        np.testing.assert_array_equal(got_values, values)


def test_xtc(levels: Any) -> None:
    """Fires by its own stream; drops all that reach the threshold but the last of them."""
    rng = np.random.default_rng()
    m, width = 64, 12
    ids, values = candidates(rng, m, width)
    seeds = rng.integers(0, 2**63, m)
    rows = rows_of(
        *(
            {"seed": s, "pos": i, "flags": XTC, "xtc_probability": 0.5, "xtc_threshold": 0.1}
            for i, s in enumerate(seeds)
        )
    )
    rows["flags"][:3] = 0, GREEDY | XTC, GREEDY
    fired = 0
    for level in levels:
        got_ids, got_values = ids.copy(), values.copy()
        assert call(level, "sample_xtc", [got_ids, got_values, as_bytes(rows)], n_cand=width) == 0
        for r in range(m):
            live = int((ids[r] >= 0).sum())
            drop = 0
            if r >= 3 and live and uniform(int(seeds[r]) ^ 0x58544311, r) < 0.5:
                above = int((softmax(values[r, :live]) >= np.float32(0.1)).sum())
                drop = max(above - 1, 0)
                fired += drop > 0
            want = ids[r, drop:live]
            assert got_ids[r].tolist() == [*want, *[-1] * (width - len(want))]
    assert fired > 0, "some row had two candidates above the threshold"
