"""Norms and int8 codes against float64 and against the definition bit by bit."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

KINDS = [np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 17, 576, 4096, 5001])
def test_rmsnorm(levels: Any, n: int, kind: Any) -> None:
    """Rows are x / sqrt(mean(x^2) + eps) * (w + wadd), gains of any type, of any magnitude."""
    rng = np.random.default_rng()
    x = (rng.normal(size=(6, n)) * 10.0 ** rng.uniform(-6, 6, (6, 1)) + 0.1).astype(np.float32)
    w = rng.normal(size=n).astype(kind)
    x64, w64 = x.astype(np.float64), w.astype(np.float64)
    for wadd, eps in ((0.0, 1e-5), (1.0, 1e-6)):
        want = x64 / np.sqrt((x64**2).mean(1, keepdims=True) + eps) * (w64 + wadd)
        params = {"M": 6, "n": n, "eps": eps, "dtype": "f32", "wadd": wadd}
        for level in levels:
            y = np.empty_like(x)
            assert level.row("rmsnorm")([x, w, y], params) == 0
            np.testing.assert_allclose(y, want, rtol=2e-6, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 50, 1152])
def test_layernorm(levels: Any, n: int, kind: Any) -> None:
    """(x - mean) / sqrt(biased variance + eps) * w + b, with and without b."""
    rng = np.random.default_rng()
    x = (rng.normal(size=(5, n)) * 3 + rng.normal(size=(5, 1)) * 5).astype(np.float32)
    w, b = rng.normal(size=n).astype(kind), rng.normal(size=n).astype(kind)
    x64 = x.astype(np.float64)
    spread = np.sqrt(x64.var(1, keepdims=True) + 1e-5)
    unit = (x64 - x64.mean(1, keepdims=True)) / spread
    # The mean is rounded to f32 before it is subtracted, which a small spread magnifies.
    cancelled = 2.0**-22 * np.abs(x64).max(1, keepdims=True) / spread * np.abs(w.astype(np.float64))
    params = {"M": 5, "n": n, "eps": 1e-5, "dtype": "f32"}
    for bias in (b, None):
        want = unit * w.astype(np.float64) + (0 if bias is None else bias.astype(np.float64))
        for level in levels:
            y = np.empty_like(x)
            assert level.row("layernorm")([x, w, bias, y], params) == 0
            assert (np.abs(y - want) <= 1e-5 + 1e-5 * np.abs(want) + cancelled).all()


def codes_of(
    x: np.ndarray, group: int, planes: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The definition in f32: most / amax first, then the product, rounded half to even."""
    most = np.float32({1: 127, 2: 16256}[planes])
    parts = x.reshape(len(x), -1, group)
    amax = np.abs(parts).max(2)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = most / amax
        codes = np.where(amax[..., None] > 0, np.rint(parts * factor[..., None]), 0)
    codes = codes.astype(np.int32)
    sums = codes.sum(2, dtype=np.int32)
    codes = codes.reshape(x.shape)
    if planes == 2:
        high = np.floor((codes + 64) / 128).astype(np.int32)
        codes = np.hstack([high, codes - 128 * high])
        assert (codes[:, : x.shape[1]] >= -127).all()
        assert (np.abs(codes[:, x.shape[1] :] + 0.5) < 64).all()
    return codes.astype(np.int8), amax / most, sums


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([1, 7, 16, 32, 40, 64, 128, 300]),
    st.integers(1, 9),
    st.sampled_from([1, 2]),
    st.integers(0, 2**32 - 1),
)
def test_codes(levels: Any, group: int, groups: int, planes: int, seed: int) -> None:
    """Codes, scales and sums are the definition's to the bit, zero groups included."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, group * groups)) * 10.0 ** rng.uniform(-8, 8, (3, 1))
    x = x.astype(np.float32)
    x[1, :group] = 0
    x[2, ::3] = np.rint(x[2, ::3])
    n = x.shape[1]
    want = codes_of(x, group, planes)
    params = {"M": 3, "n": n, "group": group, "dtype": "f32", "planes": planes}
    for level in levels:
        got = [
            np.empty((3, planes * n), np.int8),
            np.empty((3, groups), np.float32),
            np.empty((3, groups), np.int32),
        ]
        assert level.row("quant_act_i8")([x, *got], params) == 0
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)
        y = np.empty_like(x)
        assert level.row("dequant")([*got[:2], y], params) == 0
        q = want[0].astype(np.int32)
        codes = q if planes == 1 else 128 * q[:, :n] + q[:, n:]
        back = codes.astype(np.float32).reshape(3, -1, group) * want[1][..., None]
        np.testing.assert_array_equal(y, back.reshape(3, n))


@pytest.mark.parametrize("planes", [1, 2])
def test_codes_show_what_is_not_finite(levels: Any, planes: int) -> None:
    """A NaN or an infinity makes its group's scale so, and leaves the other groups alone."""
    x = np.random.default_rng().normal(size=(1, 96)).astype(np.float32)
    x[0, 5], x[0, 40] = np.nan, -np.inf
    params = {"M": 1, "n": 96, "group": 32, "dtype": "f32", "planes": planes}
    want = codes_of(x[:, 64:], 32, planes)[0].reshape(planes, 32)
    for level in levels:
        q, scale = np.empty((1, planes * 96), np.int8), np.empty((1, 3), np.float32)
        assert level.row("quant_act_i8")([x, q, scale, np.empty((1, 3), np.int32)], params) == 0
        assert np.isnan(scale[0, 0])
        assert np.isinf(scale[0, 1])
        np.testing.assert_array_equal(q.reshape(planes, 96)[:, 64:], want)


@pytest.mark.parametrize("group", [0, -1, 7, 200])
def test_groups_must_divide(best: Any, group: int) -> None:
    """A group that does not divide the row is a status."""
    x = np.zeros((2, 100), np.float32)
    out = [np.zeros((2, 100), np.int8), np.zeros((2, 1), np.float32), np.zeros((2, 1), np.int32)]
    params = {"M": 2, "n": 100, "group": group, "dtype": "f32"}
    assert best.row("quant_act_i8")([x, *out], params) == -1


@pytest.mark.parametrize("planes", [0, -1, 3])
def test_planes_are_one_or_two(best: Any, planes: int) -> None:
    """Another number of planes is a status, in quantising and back."""
    x, scale = np.zeros((2, 64), np.float32), np.zeros((2, 2), np.float32)
    q = np.zeros((2, max(planes, 0) * 64), np.int8)
    params = {"M": 2, "n": 64, "group": 32, "dtype": "f32", "planes": planes}
    assert best.row("quant_act_i8")([x, q, scale, np.zeros((2, 2), np.int32)], params) == -12
    assert best.row("dequant")([q, scale, x], params) == -12
