"""Products of f32 activations with weights of every encoding, against float64."""

import math

import numpy as np
import pytest


def params(op, tokens, rows, cols, **more):
    names = ("n_vocab", "n_embd") if op.startswith("logits") else ("N", "K")
    return {"M": tokens, names[0]: rows, names[1]: cols, "dtype": "f32"} | more


def run(level, op, a, weight, *more, grouping=0, **given):
    (tokens, cols), rows = a.shape, weight.rows
    row, given = level.row(op), params(op, tokens, rows, cols, **given)
    stored = row.store(weight.encoding, weight.planes, rows, cols, given, 1)
    out = np.full((tokens, rows), np.nan, np.float32)
    assert row([a, stored, *more, out], given, grouping) == 0
    return out


def cols_for(name, rng):
    if name.endswith(("_k", "_xs")):
        return 512
    odd = name.startswith(("f", "bf"))
    return int(rng.choice([1, 31, 333, 1100])) if odd else int(rng.choice([32, 352, 1088]))


def assert_close(got, want, a, weight, most=1e-5):
    """Compare on the scale of the largest output, or of a typical one where there are few."""
    spread = np.linalg.norm(a, axis=1).max() * np.linalg.norm(weight, axis=1).max()
    largest = max(np.abs(want).max(), spread / np.sqrt(weight.shape[1]))
    worst = np.abs(got - want).max()
    # As a product, since all of it may be zero: one weight of one row can be.
    assert worst <= most * largest, f"largest difference {worst:.2e}, largest output {largest:.2e}"


@pytest.mark.parametrize("tokens", [1, 3, 4, 11, 70])
def test_matches_float64(levels, encoded, tokens, rng, draw):
    """The product of the decoded numbers comes out within 1e-5 of the largest output."""
    rows = int(rng.choice([1, 7, 17, 577]))
    weight = draw(encoded, rows, cols_for(encoded, rng), rng)
    a = rng.normal(size=(tokens, weight.cols)).astype(np.float32)
    want = a.astype(np.float64) @ weight.values.T
    for level in levels:
        assert_close(run(level, "gemm_nt", a, weight), want, a, weight.values)


def test_same_bits_for_any_level_and_number_of_tokens(levels, encoded, rng, draw):
    """Token t of a call of M tokens has the bits of a call with t alone, at every level."""
    weight = draw(encoded, 35, 32 * int(rng.integers(1, 40)), rng)
    if encoded.endswith(("_k", "_xs")):
        weight = draw(encoded, 35, 1280, rng)
    a = rng.normal(size=(130, weight.cols)).astype(np.float32)
    alone = np.concatenate([run(levels[0], "gemm_nt", a[t : t + 1], weight) for t in range(40)])
    for level in levels:
        for tokens in [1, 2, 3, 4, 5, 12, 13, 40, 130]:
            got = run(level, "gemm_nt", a[:tokens], weight, grouping=1)[:40]
            np.testing.assert_array_equal(got.view(np.int32), alone[:tokens].view(np.int32))


def test_residual_is_added_after_the_product(levels, rng, draw):
    """gemm_nt_add has the bits of gemm_nt plus res."""
    weight, a = draw("bf16", 77, 96, rng), rng.normal(size=(9, 96)).astype(np.float32)
    res = rng.normal(size=(9, 77)).astype(np.float32)
    for level in levels:
        plain = run(level, "gemm_nt", a, weight)
        np.testing.assert_array_equal(run(level, "gemm_nt_add", a, weight, res), plain + res)


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("act", [None, "none", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("with_res", [False, True])
def test_bias_then_act_then_residual(levels, kind, act, with_res, rng, draw):
    """gemm_nt_bias is res + act(product + bias), with biases of any plain type."""
    weight, a = draw("q8_0", 23, 64, rng), rng.normal(size=(5, 64)).astype(np.float32) / 100
    bias = draw(kind, 1, 23, rng).planes["codes"][0]
    res = rng.normal(size=(5, 23)).astype(np.float32) if with_res else None
    want = a.astype(np.float64) @ weight.values.T + bias.astype(np.float64)
    want = {"gelu": gelu, "gelu_tanh": gelu_tanh}.get(act, lambda x: x)(want)
    want = want + (0 if res is None else res)
    given = {} if act is None else {"act": act}
    for level in levels:
        got = run(level, "gemm_nt_bias", a, weight, bias, res, **given)
        assert_close(got, want, a, weight.values)


def test_head_is_the_same_product(levels, encoded, rng, draw):
    """logits_gemm gives the bits of gemm_nt."""
    weight = draw(encoded, 100, 256, rng)
    a = rng.normal(size=(3, 256)).astype(np.float32)
    for level in levels:
        got = run(level, "logits_gemm", a, weight)
        np.testing.assert_array_equal(got, run(level, "gemm_nt", a, weight))


def test_strided_and_unaligned_operands(levels, encoded, rng, draw):
    """Columns of wider buffers, at any address, give the same bits and nothing else is written."""
    weight, tokens = draw(encoded, 37, 256, rng), 14
    wide_a = rng.normal(size=(tokens, 300)).astype(np.float32)
    wide_res = rng.normal(size=(tokens, 60)).astype(np.float32)
    wide_y = np.full((tokens, 90), 7, np.float32)
    a, res, y = wide_a[:, 3:259], wide_res[:, 5:42], wide_y[:, 11:48]
    for level in levels:
        want = run(level, "gemm_nt_add", a.copy(), weight, res.copy())
        row, given = level.row("gemm_nt_add"), params("gemm_nt_add", tokens, 37, 256)
        stored = row.store(weight.encoding, weight.planes, 37, 256, given, 1)
        assert row([a, stored, res, y], given, 2) == 0
        np.testing.assert_array_equal(y, want)
        assert (wide_y[:, :11] == 7).all()
        assert (wide_y[:, 48:] == 7).all()


def test_residual_may_be_the_output(levels, rng, draw):
    """The sum may be written over the residual."""
    weight, a = draw("q4_1", 40, 64, rng), rng.normal(size=(6, 64)).astype(np.float32)
    for level in levels:
        y = rng.normal(size=(6, 40)).astype(np.float32)
        want = run(level, "gemm_nt_add", a, weight, y.copy())
        row, given = level.row("gemm_nt_add"), params("gemm_nt_add", 6, 40, 64)
        stored = row.store(weight.encoding, weight.planes, 40, 64, given, 1)
        assert row([a, stored, y, y], given) == 0
        np.testing.assert_array_equal(y, want)


def test_operands_that_do_not_fit_are_refused(best, rng, draw):
    """Wrong extents, element types and strides are answered by status, not by reading on."""
    weight, row = draw("q4_0", 32, 64, rng), best.row("gemm_nt")
    given = params("gemm_nt", 2, 32, 64)
    stored = row.store(weight.encoding, weight.planes, 32, 64, given, 1)
    a, y = np.zeros((2, 64), np.float32), np.zeros((2, 32), np.float32)
    assert row([a, stored, y], given) == 0
    assert row([a[:, :32], stored, y], given) == -1
    assert row([a, stored, np.zeros((2, 48), np.float32)], given) == -1
    assert row([a, stored, np.zeros((1, 32), np.float32)], given) == -1
    assert row([a.astype(np.float16), stored, y], given) == -2
    assert row([np.zeros((2, 128), np.float32)[:, ::2], stored, y], given) == -4
