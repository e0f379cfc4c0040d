"""The packed forms of a cache: what slots take, and how near what is read comes to what was put."""

import re

import numpy as np
import pytest

from radiance_abi import AbiError, EncodingError, parse_schema
from radiance_abi.kv_cache import CACHE_DTYPES, Half, cache_dtype
from radiance_abi.ops import extent
from radiance_abi.testing.formulas import kv_rows

PACKED = [name for name, d in CACHE_DTYPES.items() if d.packed]


@pytest.mark.parametrize("head_dim", [32, 64, 96, 128, 256])
def test_what_a_slot_takes(head_dim: int) -> None:
    """E4M3 takes a byte a number and one a head; 32 integers 18 bytes of 4 bits, 26, 34."""
    groups = head_dim // 32
    rows = {name: cache_dtype(name).row(head_dim) for name in PACKED}
    assert rows["fp8"] == 2 * head_dim + 2
    assert rows["fp8_v4"] == head_dim + 1 + 18 * groups
    assert rows["k6_v4"] == (26 + 18) * groups
    assert rows["int8"] == 2 * 34 * groups
    assert rows["k8_v4"] == (34 + 18) * groups
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
    block = -(-tokens // 8) * 8
    cache = np.zeros((1, heads, block, cache_dtype(name).row(head_dim)), np.uint8)
    halves = kv_rows.parts(cache, name, head_dim)
    for part in halves:
        for token in range(tokens):
            kv_rows.write(part, 0, token, x[token])
    return [kv_rows.read(part)[0][0].swapaxes(0, 1)[:tokens] for part in halves]


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("head_dim", [32, 64, 160])
def test_what_is_read_is_near_what_was_stored(name: str, head_dim: int) -> None:
    """Within half a step of the codes: 1/16 of an E4M3 number, a step of a group's size."""
    rng = np.random.default_rng()
    x = rng.normal(size=(30, 2, head_dim)) * 10.0 ** rng.integers(-3, 3, (30, 1, 1))
    x = (x * np.where(rng.random(head_dim) < 0.05, 30, 1)).astype(np.float32)
    groups = x.astype(np.float64).reshape(30, 2, -1, 32)
    energy = (groups**2).sum(axis=-1)
    for half, got in zip(CACHE_DTYPES[name].halves or (), stored(name, x), strict=True):
        error = ((got.reshape(groups.shape) - groups) ** 2).sum(axis=-1)
        if not half.grouped:
            # A group far below the largest of its head counts in steps of that, which rotating
            # may have made larger.
            floor = 32 * 32 * (np.abs(x).max(axis=-1, keepdims=True) * 2.0**-17) ** 2
            assert (error <= energy / 16**2 + floor).all()
            # Three bits leave about 1/38 of a number, one bit more would leave 1/75. Each group
            # counts the same: of a sum, the few largest numbers alone would decide.
            assert (error / energy).mean() > 1 / 60**2, "E4M3 has no more than three bits"
        else:
            # The largest is at most all of the group's energy, its opposite a whole step off.
            assert (error <= 32 * energy / (2 ** (half.bits - 1)) ** 2).all()
            if half.rotated:
                # For normal numbers half a step is about a third of it, over sqrt(3).
                most = {4: 0.13, 6: 0.032, 8: 0.008}[half.bits]
                assert np.median(np.sqrt(error / energy)) < most
            else:
                # A step is the largest over 2^(bits - 1), and half of one over sqrt(3) is 0.29.
                step = np.abs(groups).max(axis=-1) / 2 ** (half.bits - 1)
                assert np.median(np.sqrt(error / 32) / step) < 0.35


@pytest.mark.parametrize("name", PACKED)
def test_scales_are_a_tokens_own(name: str) -> None:
    """The bytes of a token do not depend on which others are stored, or in which order."""
    rng = np.random.default_rng()
    x = (rng.normal(size=(8, 3, 64)) * 10.0 ** rng.integers(-3, 4, (8, 1, 1))).astype(np.float32)
    whole = stored(name, x)
    for token in range(8):
        alone = stored(name, x[token : token + 1])
        assert all((a[0] == w[token]).all() for a, w in zip(alone, whole, strict=True))


def by_hand(half: Half, head_dim: int, block: int, slot: int, number: int) -> tuple[int, int]:
    """Byte and shift of a code that lies in words, as ADR 0009 draws them."""
    if half.words == "dims":
        return np.ravel_multi_index((number // 4, slot, number % 4), (head_dim // 4, block, 4)), 0
    each = 32 // half.bits
    where = (slot // each, number, slot % 4)
    byte = np.ravel_multi_index(where, (block // each, head_dim, 4))
    return byte, 4 if half.bits == 4 and slot % 8 >= 4 else 0


@pytest.mark.parametrize("name", ["int8", "k8_v4"])
@pytest.mark.parametrize("block", [8, 16, 32])
def test_codes_in_words_lie_where_the_contract_says(name: str, block: int) -> None:
    """Each code is found at its byte and bits, alone there, and writing it leaves all others."""
    rng, head_dim, heads = np.random.default_rng(), 64, 2
    cache = rng.integers(0, 256, (3, heads, block, cache_dtype(name).row(head_dim)), np.uint8)
    for half, part in zip(CACHE_DTYPES[name].halves or (), kv_rows.parts(cache, name, head_dim),
                          strict=True):  # fmt: skip
        before = part.slots().copy()
        want = before[1, 1].copy()
        seen = set()
        for slot, number in np.ndindex(block, head_dim):
            byte, shift = by_hand(half, head_dim, block, slot, number)
            want[slot, number] = part.codes[1, 1, byte] >> shift & (2**half.bits - 1)
            seen.add((byte, shift))
        assert (want == before[1, 1]).all()
        assert len(seen) * half.bits == part.codes.shape[2] * 8
        x = rng.normal(size=(heads, head_dim)).astype(np.float32)
        slot = int(rng.integers(block))
        kv_rows.write(part, 1, slot, x)
        after = part.slots()
        changed = np.argwhere(after != before)
        assert {tuple(c[:1]) + tuple(c[2:3]) for c in changed} <= {(1, slot)}
        codes = after[1, :, slot].astype(np.int64)
        codes -= (256 * (codes >= 128)) if half.signed else 2 ** (half.bits - 1)
        scaled = codes.reshape(heads, -1, 32) * part.scales[1, :, slot, :, None].astype(float)
        if half.rotated:
            scaled = scaled @ hadamard(32).T / 4
        assert np.abs(scaled.reshape(x.shape) - x).max() < 2.0 ** (4 - half.bits) * np.abs(x).max()


def hadamard(count: int) -> np.ndarray:
    """The matrix of the transform of ``count`` numbers."""
    one = np.ones((1, 1))
    while len(one) < count:
        one = np.block([[one, one], [one, -one]])
    return one
