"""Rotary positions against rotation by complex numbers in float64."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def rotated(
    x: np.ndarray, positions: np.ndarray, freqs: np.ndarray, mode: str, mscale: float
) -> np.ndarray:
    """Turn x [M,H,D] in float64: pair (a, b) becomes (a + ib) * mscale * e^(i pos f)."""
    rot = 2 * len(freqs)
    x = x.astype(np.float64).copy()
    first = slice(0, rot // 2) if mode == "neox" else slice(0, rot, 2)
    second = slice(rot // 2, rot) if mode == "neox" else slice(1, rot, 2)
    turn = mscale * np.exp(1j * positions[:, None, None] * freqs[None, None])
    z = (x[..., first] + 1j * x[..., second]) * turn
    x[..., first], x[..., second] = z.real, z.imag
    return x


def frequencies(params: dict[str, Any]) -> np.ndarray:
    rot = params.get("rotary_dim") or params["head_dim"]
    freqs = np.float64(params["theta"]) ** (-2 * np.arange(rot // 2) / rot)
    return np.asarray(freqs / params.get("scale", 1))


CASES = [
    {"head_dim": 64, "n_head": 9, "n_head_kv": 3, "theta": 1e5},
    {"head_dim": 256, "n_head": 4, "n_head_kv": 1, "theta": 1e6, "scale": 8.0},
    {"head_dim": 80, "n_head": 4, "n_head_kv": 4, "theta": 1e4, "rotary_dim": 32},
    {"head_dim": 64, "n_head": 2, "n_head_kv": 2, "theta": 1e4, "mode": "gptj", "mscale": 1.2},
    {"head_dim": 48, "n_head": 3, "n_head_kv": 1, "theta": 1e4, "mode": "gptj", "rotary_dim": 10},
    {"head_dim": 128, "n_head": 1, "n_head_kv": 0, "theta": 5e5, "mode": "neox", "rotary_dim": 2},
]


@pytest.mark.parametrize("params", CASES, ids=str)
@pytest.mark.parametrize("given_freqs", [False, True])
@pytest.mark.parametrize("normed", [False, True])
def test_rotation(levels: Any, params: dict[str, Any], given_freqs: bool, normed: bool) -> None:
    """Both pairings, partial rotation, scaling and given frequencies, far positions included."""
    rng = np.random.default_rng()
    hd, heads, kv = params["head_dim"], params["n_head"], params["n_head_kv"]
    rotating = (heads + kv) * hd
    x = rng.normal(size=(7, rotating + kv * hd + 3)).astype(np.float32)
    positions = np.array([0, 1, 2, 1000, 4095, 131071, 999999], np.int32)
    freqs = frequencies(params)
    given_array = None
    if given_freqs:
        given_array = (freqs * rng.uniform(0.2, 1, len(freqs))).astype(np.float32)
        freqs = given_array.astype(np.float64)
    inside = x[:, :rotating].reshape(7, heads + kv, hd).astype(np.float64)
    operands: list[Any] = [None, positions]
    full = {"M": 7, "dtype": "f32", **params}
    if normed:
        q_w, k_w = rng.normal(size=hd).astype(np.float32), rng.normal(size=hd).astype(np.float16)
        gains = np.array([q_w] * heads + [k_w] * kv, np.float64) + 0.5
        inside = inside / np.sqrt((inside**2).mean(2, keepdims=True) + 1e-6) * gains
        operands += [q_w, k_w]
        full |= {"eps": 1e-6, "wadd": 0.5}
    operands.append(given_array)
    mode, mscale = params.get("mode", "neox"), params.get("mscale", 1.0)
    want = rotated(inside, positions, freqs, mode, mscale).reshape(7, rotating)
    for level in levels:
        got = x.copy()
        operands[0] = got
        assert level.row("qk_norm_rope" if normed else "rope")(operands, full, 2) == 0
        assert np.abs(got[:, :rotating] - want).max() <= 1e-6 * np.abs(want).max()
        np.testing.assert_array_equal(got[:, rotating:], x[:, rotating:])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**20), st.integers(0, 2**20), st.integers(0, 2**32 - 1))
def test_only_distances_matter(levels: Any, a: int, b: int, seed: int) -> None:
    """Query at a against k at b has the dot product that the distance alone gives."""
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(2, 32)).astype(np.float32)
    params = {"M": 1, "head_dim": 32, "n_head": 1, "n_head_kv": 0, "theta": 1e4, "dtype": "f32"}

    def turn(x: np.ndarray, position: int) -> np.ndarray:
        out = x[None].copy()
        at = np.array([position], np.int32)
        assert levels[0].row("rope")([out, at, None], params) == 0
        return np.asarray(out[0], np.float64)

    shift = min(a, b)
    far, near = turn(q, a) @ turn(k, b), turn(q, a - shift) @ turn(k, b - shift)
    assert abs(far - near) <= 1e-5 * np.linalg.norm(q) * np.linalg.norm(k)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"rotary_dim": 65}, -1),
        ({"rotary_dim": 130}, -1),
        ({"n_head": 5}, -1),
        ({"head_dim": 0}, -1),
        ({"mode": "mrope"}, -12),
    ],
)
def test_refuses(levels: Any, change: dict[str, Any], status: int) -> None:
    """Odd or too many rotated elements, too many heads and unknown modes are a status."""
    base = {"M": 2, "head_dim": 128, "n_head": 2, "n_head_kv": 1, "theta": 1e4, "dtype": "f32"}
    x, positions = np.zeros((2, 512), np.float32), np.zeros(2, np.int32)
    for level in levels:
        assert level.row("rope")([x, positions, None], {**base, **change}) == status
