"""The packed forms of a cache: what slots take, and how near what is read comes to what was put."""

import re

import numpy as np
import pytest

from radiance_abi import AbiError, EncodingError, parse_schema
from radiance_abi.kv_cache import CACHE_DTYPES, cache_dtype
from radiance_abi.ops import extent
from radiance_abi.testing.formulas import kv_rows

PACKED = [name for name, d in CACHE_DTYPES.items() if d.packed]


@pytest.mark.parametrize("head_dim", [32, 64, 96, 128, 256])
def test_what_a_slot_takes(head_dim: int) -> None:
    """E4M3 takes a byte a number and one a head; 32 integers 18 bytes of 4 bits, 26 of 6."""
    groups = head_dim // 32
    rows = {name: cache_dtype(name).row(head_dim) for name in PACKED}
    assert rows["fp8"] == 2 * head_dim + 2
    assert rows["fp8_v4"] == head_dim + 1 + 18 * groups
    assert rows["k6_v4"] == (26 + 18) * groups
    # 25/32 and 22/32 of E4M3, whose powers of two are all that is more.
    assert 0 <= 25 / 32 - rows["fp8_v4"] / rows["fp8"] < 0.5 / head_dim
    assert 0 <= 22 / 32 - rows["k6_v4"] / rows["fp8"] < 0.75 / head_dim
    assert cache_dtype("f16").row(head_dim) == 2 * head_dim
    assert cache_dtype("f16").row_bytes(head_dim) == (2 * head_dim, 2 * head_dim)


def test_heads_that_no_form_takes_are_refused() -> None:
    """What cannot be packed says what can, and an unknown word is no cache dtype."""
    with pytest.raises(AbiError, match=re.escape(
        "kv_dtype k6_v4: expected a head_dim that is a multiple of 32, got 80; use fp8 or a wider "
        "type for this model"
    )):  # fmt: skip
        cache_dtype("k6_v4").row(80)
    with pytest.raises(AbiError, match=re.escape(
        "packed cache: expected a head_dim that is a multiple of 8, got 100; use f16 for this model"
    )):  # fmt: skip
        cache_dtype("fp8").row(100)
    with pytest.raises(EncodingError, match="expected a known dtype, got 'fp9'"):
        cache_dtype("fp9")


def test_the_schema_knows_the_width_of_a_slot() -> None:
    """``kv_row`` is for ops with kv_dtype and head_dim, and is open until both are known."""
    text = "o(M~, head_dim, kv_dtype:s) state c[_,kv_row]:kv_dtype ->"
    assert str(parse_schema(text)) == text
    assert extent("kv_row", {"head_dim": 64, "kv_dtype": "k6_v4"}) == 88
    assert extent("kv_row", {"head_dim": 64}) is None
    with pytest.raises(AbiError, match="extent kv_row: 'kv_row' is no int param of the op"):
        parse_schema("o(M~, dtype:s) x[M,kv_row] ->")


def stored(name: str, x: np.ndarray) -> list[np.ndarray]:
    """Keys and values that are read after ``x`` f32 [tokens, K, D] was stored as both."""
    tokens, heads, head_dim = x.shape
    cache = np.zeros((1, heads, tokens, cache_dtype(name).row(head_dim)), np.uint8)
    halves = kv_rows.parts(cache, name, head_dim)
    for part in halves:
        for token in range(tokens):
            kv_rows.write(part, 0, token, x[token])
    return [kv_rows.read(part)[0][0].swapaxes(0, 1) for part in halves]


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("head_dim", [32, 64, 160])
def test_what_is_read_is_near_what_was_stored(name: str, head_dim: int) -> None:
    """Within half a step of the codes: 1/16 of an E4M3 number, 1/62 and 1/14 of a group's size."""
    rng = np.random.default_rng()
    x = rng.normal(size=(30, 2, head_dim)) * 10.0 ** rng.integers(-3, 3, (30, 1, 1))
    x = (x * np.where(rng.random(head_dim) < 0.05, 30, 1)).astype(np.float32)
    groups = x.astype(np.float64).reshape(30, 2, -1, 32)
    energy = (groups**2).sum(axis=-1)
    for bits, got in zip(
        (h.bits for h in CACHE_DTYPES[name].halves or ()), stored(name, x), strict=True
    ):
        error = ((got.reshape(groups.shape) - groups) ** 2).sum(axis=-1)
        if bits == 8:
            # A group far below the largest of its head counts in steps of that, which rotating
            # may have made larger.
            floor = 32 * 32 * (np.abs(x).max(axis=-1, keepdims=True) * 2.0**-17) ** 2
            assert (error <= energy / 16**2 + floor).all()
            # Three bits leave about 1/38 of a number, one bit more would leave 1/75. Each group
            # counts the same: of a sum, the few largest numbers alone would decide.
            assert (error / energy).mean() > 1 / 60**2, "E4M3 has no more than three bits"
        else:
            # The largest is at most all of the group's energy, its opposite a whole step off.
            assert (error <= 32 * energy / (2 ** (bits - 1)) ** 2).all()
            # For normal numbers half a step is about a third of it, over sqrt(3).
            assert np.median(np.sqrt(error / energy)) < {4: 0.13, 6: 0.032}[bits]


@pytest.mark.parametrize("name", PACKED)
def test_scales_are_a_tokens_own(name: str) -> None:
    """The bytes of a token do not depend on which others are stored, or in which order."""
    rng = np.random.default_rng()
    x = (rng.normal(size=(8, 3, 64)) * 10.0 ** rng.integers(-3, 4, (8, 1, 1))).astype(np.float32)
    whole = stored(name, x)
    for token in range(8):
        alone = stored(name, x[token : token + 1])
        assert all((a[0] == w[token]).all() for a, w in zip(alone, whole, strict=True))
