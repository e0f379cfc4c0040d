"""Products of bf16 activations with bf16 weights, against float64."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from radiance_abi import Encoding

DTYPE = -2  # RAD_DTYPE
OPS = ("gemm_nt_bf16", "gemm_nt_bf16_add", "logits_gemm_bf16")


def with_products(levels):
    """The levels that should have these products, one at most."""
    has_instruction = "avx512_bf16" in Path("/proc/cpuinfo").read_text().split()
    return [level for level in levels if has_instruction and level.name == "avx512vnni"]


@pytest.fixture(scope="module")
def level(levels):
    """The level that has these products, if this processor has the instruction."""
    if not (found := with_products(levels)):
        pytest.skip("this processor has no vdpbf16ps")
    return found[0]


def reads_bf16(level, op):
    status, _layout = level.row(op).layout(Encoding.parse("bf16"), 16, 32, params(op, 1, 16, 32), 1)
    assert status in (0, DTYPE)
    return status == 0


@pytest.mark.parametrize("op", OPS)
def test_one_level_has_these_products(levels, op):
    """The others refuse the encoding: they have no instruction for it, or f32 is faster there."""
    assert [level for level in levels if reads_bf16(level, op)] == with_products(levels)


def params(op, tokens, rows, cols):
    names = ("n_vocab", "n_embd") if op.startswith("logits") else ("N", "K")
    return {"M": tokens, names[0]: rows, names[1]: cols, "dtype": "f32"}


def run(level, op, a, weight, *more, grouping=0):
    (tokens, cols), rows = a.shape, weight.rows
    row, given = level.row(op), params(op, tokens, rows, cols)
    stored = row.store(weight.encoding, weight.planes, rows, cols, given, 1)
    out = np.full((tokens, rows), np.nan, np.float32)
    assert row([a, stored, *more, out], given, grouping) == 0
    return out


def bf16(rng, tokens, cols):
    return rng.normal(size=(tokens, cols)).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("tokens", [1, 3, 12, 13, 70, 200])
def test_matches_float64(level, tokens, rng, draw):
    """The product of the narrowed numbers comes out within 1e-5 of their sizes."""
    rows = int(rng.choice([1, 7, 17, 577]))
    weight = draw("bf16", rows, 32 * int(rng.integers(1, 60)), rng)
    a = bf16(rng, tokens, weight.cols)
    x, w = a.astype(np.float64), np.asarray(weight.values, np.float64)
    off = np.abs(run(level, "gemm_nt_bf16", a, weight) - x @ w.T)
    assert (off <= 1e-5 * (np.abs(x) @ np.abs(w).T) + 1e-35).all()


def test_same_bits_for_any_number_of_tokens(level, rng, draw):
    """Token t of a call of M tokens has the bits of a call with t alone, however pieces are cut."""
    weight = draw("bf16", 35, 32 * int(rng.integers(1, 40)), rng)
    a = bf16(rng, 130, weight.cols)
    op = "gemm_nt_bf16"
    alone = np.concatenate([run(level, op, a[t : t + 1], weight) for t in range(40)])
    for tokens in (1, 2, 3, 5, 8, 9, 12, 13, 40, 130):
        got = run(level, op, a[:tokens], weight, grouping=1)[:40]
        np.testing.assert_array_equal(got.view(np.int32), alone[:tokens].view(np.int32))


def test_forms_are_the_same_product(level, rng, draw):
    """With a residual it is the product plus that; the head's is the product."""
    weight = draw("bf16", 50, 352, rng)
    a, res = bf16(rng, 5, 352), rng.normal(size=(5, 50)).astype(np.float32)
    plain = run(level, "gemm_nt_bf16", a, weight)
    np.testing.assert_array_equal(run(level, "gemm_nt_bf16_add", a, weight, res), plain + res)
    np.testing.assert_array_equal(run(level, "logits_gemm_bf16", a, weight), plain)


@pytest.mark.parametrize("op", OPS)
def test_reads_bf16_alone(level, op, rng, draw):
    """Weights of other encodings are for other products; so are f32 activations."""
    row, given = level.row(op), params(op, 3, 16, 64)
    for spelt in ("f32", "f16", "i8*f16[1x32]", "fp8_e4m3"):
        assert row.layout(Encoding.parse(spelt), 16, 64, given, 1)[0] != 0
    weight = draw("bf16", 16, 64, rng)
    stored = row.store(weight.encoding, weight.planes, 16, 64, given, 1)
    more = [np.zeros((3, 16), np.float32)] * (op.endswith("add") + 1)
    assert row([bf16(rng, 3, 64).astype(np.float32), stored, *more], given) < 0
    assert row([bf16(rng, 3, 33), stored, *more], given) < 0
