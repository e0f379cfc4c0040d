"""Elementwise ops, softmax, casts and gathers against float64."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

N = 4096


def values(rng: np.random.Generator, reach: float = 90.0) -> np.ndarray:
    """All magnitudes on both sides, dense near zero."""
    wide = rng.uniform(-reach, reach, (4, N))
    small = rng.normal(size=(4, N)) * 10.0 ** rng.uniform(-20, 1, (4, N))
    return np.concatenate([wide, small]).clip(-reach, reach).astype(np.float32)


def run(level: Any, op: str, x: np.ndarray, **params: Any) -> np.ndarray:
    y = np.full_like(x, np.nan)
    full = {"M": len(x), "n": x.shape[1], "dtype": "f32", **params}
    assert level.row(op)([x, y], full) == 0
    return y


def ulps(got: np.ndarray, want: np.ndarray) -> float:
    """Return the largest error in units of the last place; below the normal range one is 2^-126."""
    unit = np.maximum(np.spacing(np.abs(want).astype(np.float32)).astype(np.float64), 2.0**-126)
    return float((np.abs(got - want) / unit).max())


_phi = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    # 0.5 (1 + tanh w) is the logistic of 2 w, which keeps its digits below zero.
    return np.asarray(x / (1 + np.exp(-2 * 0.7978845608 * (x + 0.044715 * x**3))))


@pytest.mark.parametrize(
    ("op", "function", "params", "reach", "bound"),
    [
        ("silu", lambda x: x / (1 + np.exp(-x)), {}, 86.0, 4),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), {}, 86.0, 4),
        ("gelu", lambda x: x * _phi(x), {}, 12.0, 12),
        ("gelu_tanh", _gelu_tanh, {}, 3.0, 24),
        ("gelu_tanh", _gelu_tanh, {}, 9.0, 400),  # results to 1e-28: the exponent is rounded at 66
        ("softcap", lambda x: 30.0 * np.tanh(x / 30.0), {"cap": 30.0}, 400.0, 4),
        ("softcap", lambda x: 0.25 * np.tanh(x / 0.25), {"cap": 0.25}, 3.0, 4),
        ("scale", lambda x: x * np.float64(np.float32(0.3)), {"factor": 0.3}, 90.0, 0.5),
    ],
)
def test_functions(
    levels: Any, op: str, function: Any, params: dict[str, float], reach: float, bound: float
) -> None:
    """Within a few units of the last place, also where the result is tiny."""
    x = values(np.random.default_rng(), reach)
    want = function(x.astype(np.float64))
    for level in levels:
        assert ulps(run(level, op, x, **params), want) <= bound


@pytest.mark.parametrize("op", ["silu", "sigmoid", "gelu", "gelu_tanh"])
def test_limits(levels: Any, op: str) -> None:
    """Far out the functions reach their limits; a NaN stays a NaN and touches no other lane."""
    x = np.array([[np.inf, 3e38, 1e4, np.nan, -1e4, 0.0, -0.0, 2.0]], np.float32)
    for level in levels:
        y = run(level, op, x)[0]
        right = 1.0 if op == "sigmoid" else x[0, :3]
        np.testing.assert_array_equal(y[:3], right)
        assert np.isnan(y[3])
        assert y[4] == 0
        assert np.isfinite(y[5:]).all()


def test_exponential(levels: Any) -> None:
    """exp, seen through softmax of pairs (x, 0) with weights far apart, keeps 3 ulp to the end."""
    rng = np.random.default_rng()
    x = np.stack([-rng.uniform(0, 103, 20000), np.zeros(20000)], 1).astype(np.float32)
    want = np.exp(x[:, 0].astype(np.float64))
    want = want / (1 + want)
    for level in levels:
        assert ulps(run(level, "softmax", x)[:, 0], want) <= 3


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.floats(0.01, 50), st.integers(0, 2**32 - 1))
def test_softmax(levels: Any, n: int, spread: float, seed: int) -> None:
    """Rows sum to one and agree with float64, masked entries are exact zeros."""
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(3, n)) * spread).astype(np.float32)
    x[0, rng.random(n) < 0.3] = -np.inf
    x[0, 0] = 1.0
    weights = np.exp(x - x.max(1, keepdims=True).astype(np.float64))
    want = weights / weights.sum(1, keepdims=True)
    for level in levels:
        y = run(level, "softmax", x)
        assert np.abs(y - want).max() <= 1e-6
        assert (y[x == -np.inf] == 0).all()


def test_add_mul(levels: Any) -> None:
    """Sums and products are the exact f32 ones; mul repeats a single row, add refuses it."""
    rng = np.random.default_rng()
    a, b = values(rng), values(rng)
    params = {"M": 8, "n": N, "dtype": "f32"}
    for level in levels:
        y = np.empty_like(a)
        assert level.row("add")([a, b, y], params) == 0
        np.testing.assert_array_equal(y, a + b)
        assert level.row("mul")([a, b, y], params) == 0
        np.testing.assert_array_equal(y, a * b)
        assert level.row("mul")([a, b[:1], y], params) == 0
        np.testing.assert_array_equal(y, a * b[:1])
        assert level.row("add")([a, b[:1], y], params) == -1
        assert level.row("mul")([a, b[:3], y], params) == -1


@pytest.mark.parametrize("source", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("target", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_casts(levels: Any, source: Any, target: Any) -> None:
    """Every bit pattern converts as IEEE says, ties to even; a NaN stays a NaN."""
    rng = np.random.default_rng()
    bits = rng.integers(0, 2**32, (3, 30000), np.uint32)
    bits[0] &= 0xFFFF8000  # ties between bf16 neighbours
    x = bits.view(np.float32).copy()
    if source is not np.float32:
        x = np.arange(65536, dtype=np.uint16).view(source).reshape(4, -1)
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(np.float32).astype(target)
    names = {np.float32: "f32", np.float16: "f16", ml_dtypes.bfloat16: "bf16"}
    params = {"M": len(x), "n": x.shape[1], "from": names[source], "to": names[target]}
    for level in levels:
        y = np.zeros(x.shape, target)
        assert level.row("cast")([x, y], params) == 0
        nan = np.isnan(want.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(y.astype(np.float32)), nan)
        bytewise = np.uint32 if y.itemsize == 4 else np.uint16
        np.testing.assert_array_equal(y.view(bytewise)[~nan], want.view(bytewise)[~nan])


def test_gather(levels: Any) -> None:
    """Row i is x[idx[i]]; a negative index gives zeros, one past the end a status."""
    rng = np.random.default_rng()
    x = values(rng)
    idx = np.array([3, -1, 7, 3, -5], np.int32)
    want = np.where(idx[:, None] < 0, 0, x[idx])
    params = {"M": 5, "n": N, "dtype": "f32"}
    for level in levels:
        y = np.full((5, N), np.nan, np.float32)
        assert level.row("gather_rows")([x, idx, y], params) == 0
        np.testing.assert_array_equal(y, want)
        bad = np.array([0, 1, 8, 0, 0], np.int32)
        assert level.row("gather_rows")([x, bad, y], params) == -12
