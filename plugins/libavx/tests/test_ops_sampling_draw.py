"""sample_draw against the ops that it stands for, and what it costs to be no list of everything."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radiance_abi.testing import sampling_inputs

GREEDY, XTC = 1, 8
STAGES = ("topp", "minp", "typical", "xtc")
NEUTRAL: dict[str, float] = {}
WAYS: dict[str, dict[str, float]] = {
    "temperature": NEUTRAL, "top-p": {"top_p": 0.9}, "most of it": {"top_p": 0.9999},
    "min-p": {"min_p": 0.05}, "min-p of one": {"min_p": 1}, "more than all": {"min_p": 3},
    "top-p, min-p": {"top_p": 0.8, "min_p": 0.01}, "top-k": {"top_k": 40},
    "wide top-k, top-p": {"top_k": 700, "top_p": 0.95}, "typical": {"typical_p": 0.7},
    "top-p, typical": {"top_p": 0.97, "typical_p": 0.7},
    "xtc": {"flags": XTC, "xtc_probability": 0.5, "xtc_threshold": 0.02},
    "min-p, xtc": {"flags": XTC, "min_p": 0.02, "xtc_probability": 1, "xtc_threshold": 0.03},
    "greedy": {"flags": GREEDY},
}  # fmt: skip


def by_stages(level: Any, logits: np.ndarray, params: np.ndarray, token: np.ndarray) -> np.ndarray:
    """Return the tokens that the stages draw one after the other."""
    m, n = logits.shape
    ids, values, token = np.zeros((m, n), np.int32), np.zeros((m, n), np.float32), token.copy()
    sizes = {"M": m, "n_vocab": n, "n_cand": n}
    assert level.row("sample_topk")([logits, params, ids, values], sizes) == 0
    for stage in STAGES:
        assert level.row(f"sample_{stage}")([ids, values, params], {"M": m, "n_cand": n}) == 0
    assert level.row("sample_pick")([ids, values, params, token], {"M": m, "n_cand": n}) == 0
    return token


def drawn(level: Any, logits: np.ndarray, params: np.ndarray, token: np.ndarray) -> np.ndarray:
    """Return the tokens that sample_draw draws."""
    token = token.copy()
    sizes = {"M": len(logits), "n_vocab": logits.shape[1]}
    assert level.row("sample_draw")([logits, params, token], sizes, 2) == 0
    return token


def same(levels: Any, logits: np.ndarray, params: np.ndarray) -> None:
    """Hold every level to the stages of its own."""
    token = np.full((len(logits), 1), -7, np.int32)
    for level in levels:
        before = logits.copy()
        got = drawn(level, logits, params, token)
        np.testing.assert_array_equal(logits, before)
        np.testing.assert_array_equal(got, by_stages(level, logits, params, token))


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 900), st.sampled_from([0.01, 0.5, 3.0, 30.0]), st.integers(0, 2**32 - 1))
def test_draws_what_the_stages_draw(levels: Any, n: int, spread: float, seed: int) -> None:
    """Any settings, ties, tokens that are ruled out, a NaN, infinities and rows of nothing."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(24, n)) * spread + rng.choice([0, -500, 1e6])
    logits[1::3] = np.round(logits[1::3])
    logits[2::3][rng.random((8, n)) < 0.5] = -np.inf
    logits[3, int(rng.integers(n))] = np.nan
    logits[4] = -np.inf
    logits[5] = np.where(rng.random(n) < 0.5, 0.0, -0.0)
    logits[6, rng.random(n) < 0.1] = np.inf
    same(levels, logits.astype(np.float32), sampling_inputs.settings(24, rng))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("spread", [0.001, 1.0, 4.0, 12.0])
def test_draws_from_a_vocabulary(levels: Any, way: str, spread: float) -> None:
    """Flat and steep distributions over as many tokens as models have."""
    rng = np.random.default_rng()
    logits = (rng.normal(size=(12, 49_152)) * spread).astype(np.float32)
    logits[::4] = np.round(logits[::4])
    seeds = rng.integers(0, 2**63, 12)
    fields = [{"seed": int(s), "pos": i, **WAYS[way]} for i, s in enumerate(seeds)]
    same(levels, logits, sampling_inputs.settings_of(*fields))


def test_falls_on_the_tail(best: Any) -> None:
    """A draw beyond all but the least likely tokens is one of them, and the right one.

    Half of the probability lies in tokens of which each has a 60,000th, 9 below the first in
    logits, and then half of that again 30 below those, where f32 sums would not see it.
    """
    n = 200_000
    logits = np.full((64, n), -np.log(n), np.float32)
    logits[:, 77] = 0
    logits[:, n // 2 :] -= 30
    params = sampling_inputs.settings_of(*({"seed": 5, "pos": i} for i in range(64)))
    same([best], logits, params)


def test_the_largest_draw(best: Any) -> None:
    """Where u is all but one, sums of another order may not run out of candidates."""
    found = [(s, p) for s in range(40) for p in range(40_000) if _uniform(s, p) > 1 - 2e-6]
    rng = np.random.default_rng()
    logits = rng.normal(size=(len(found), 3_000)).astype(np.float32)
    params = sampling_inputs.settings_of(*({"seed": s, "pos": p} for s, p in found))
    same([best], logits, params)


def _uniform(seed: int, pos: int) -> float:
    m = 2**64 - 1
    z = (seed * 0x9E3779B97F4A7C15 + pos + 0x9E3779B97F4A7C15) & m
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & m
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & m
    return float((z ^ (z >> 31)) >> 40) / 2**24


def test_zeros_of_either_sign_are_equally_likely(levels: Any) -> None:
    """A -0 is as large as a +0, in whatever order they come."""
    params = sampling_inputs.settings_of(*({"seed": 11, "pos": i} for i in range(500)))
    for zeros in ([0.0, -0.0, -0.0], [-0.0, 0.0, -0.0]):
        logits = np.array([zeros] * 500, np.float32)
        same(levels, logits, params)
        seen = drawn(levels[0], logits, params, np.zeros((500, 1), np.int32))
        assert np.bincount(seen[:, 0], minlength=3).min() > 100


def test_refuses_wrong_operands(best: Any) -> None:
    """Too few rows of params or tokens, and other types, are statuses."""
    row = best.row("sample_draw")
    logits, token = np.zeros((2, 64), np.float32), np.zeros((2, 1), np.int32)
    params = sampling_inputs.settings_of({}, {})
    sizes = {"M": 2, "n_vocab": 64}
    assert row([logits, params, token], sizes) == 0
    assert row([logits, params[:1], token], sizes) < 0
    assert row([logits, params, token[:1]], sizes) < 0
    assert row([logits.astype(np.float64), params, token], sizes) < 0
