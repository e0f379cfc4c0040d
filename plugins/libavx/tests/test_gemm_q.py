"""Products of int8 activations with integer-coded weights, against float64."""

import numpy as np
import pytest

OPS = ("gemm_nt_q", "gemm_nt_q_add", "gemm_nt_q_bias", "logits_gemm_q")


def acts(rng, tokens, cols, planes=1):
    """Return planes over the whole int8 range (-128 too), scales and sums."""
    q = rng.integers(-128, 128, size=(tokens, planes * cols)).astype(np.int8)
    scale = rng.uniform(0.001, 0.1, size=(tokens, cols // 32)).astype(np.float32)
    sums = codes_of((q, scale)).reshape(tokens, -1, 32).sum(-1, dtype=np.int32)
    return q, scale, sums


def codes_of(act):
    """Return codes as integers: 128 * high + low of two planes."""
    q, cols = act[0].astype(np.int32), 32 * act[1].shape[1]
    return q if q.shape[1] == cols else 128 * q[:, :cols] + q[:, cols:]


def params(op, tokens, rows, cols, planes=1):
    names = ("n_vocab", "n_embd") if op.startswith("logits") else ("N", "K")
    sizes = {"M": tokens, names[0]: rows, names[1]: cols}
    return {**sizes, "group": 32, "dtype": "f32", "planes": planes}


def run(level, op, act, weight, extra=None, grouping=0):
    tokens, cols, rows = len(act[0]), weight.cols, weight.rows
    row, given = level.row(op), params(op, tokens, rows, cols, act[0].shape[1] // cols)
    stored = row.store(weight.encoding, weight.planes, rows, cols, given, 3)
    out = np.full((tokens, rows), np.nan, np.float32)
    operands = [*act, stored, *([] if extra is None else [extra]), out]
    assert row(operands, given, grouping) == 0
    return out


def values(act):
    return codes_of(act) * np.repeat(act[1].astype(np.float64), 32, axis=1)


def cols_for(name):
    return 512 if name.endswith(("_k", "_xs")) else 352


def assert_close(got, want, a, weight, most=1e-5):
    """Compare on the scale of the largest output, or of a typical one where there are few."""
    spread = np.linalg.norm(a, axis=1).max() * np.linalg.norm(weight, axis=1).max()
    largest = max(np.abs(want).max(), spread / np.sqrt(weight.shape[1]))
    worst = np.abs(got - want).max()
    # As a product, since all of it may be zero: one weight of one row can be.
    assert worst <= most * largest, f"largest difference {worst:.2e}, largest output {largest:.2e}"


PLANES = pytest.mark.parametrize("planes", [1, 2])


@PLANES
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 13, 70])
def test_matches_float64(levels, integer, tokens, planes, rng, draw):
    """Y is the product of the decoded numbers within 1e-5 of the largest output."""
    rows, cols = int(rng.choice([1, 7, 17, 577])), cols_for(integer)
    weight, act = draw(integer, rows, cols, rng), acts(rng, tokens, cols, planes)
    a, w = values(act), weight.values
    want = a @ w.T
    for level in levels:
        assert_close(run(level, "gemm_nt_q", act, weight), want, a, w)


@PLANES
def test_levels_agree_bit_for_bit(levels, integer, planes, rng, draw):
    """Every instruction level gives the same bits."""
    cols = cols_for(integer)
    weight, act = draw(integer, 49, cols, rng), acts(rng, 15, cols, planes)
    first, *others = [run(level, "gemm_nt_q", act, weight) for level in levels]
    for other in others:
        np.testing.assert_array_equal(first.view(np.int32), other.view(np.int32))


@PLANES
def test_rows_do_not_depend_on_their_number(levels, integer, planes, rng, draw):
    """Token t of a call of M tokens has the bits of a call with t alone, for M = 1..40 and 200."""
    cols = cols_for(integer)
    weight, act = draw(integer, 35, cols, rng), acts(rng, 200, cols, planes)
    for level in levels:
        alone = np.concatenate(
            [run(level, "gemm_nt_q", [x[t : t + 1] for x in act], weight) for t in range(40)]
        )
        for tokens in [*range(2, 41, 3), 40, 200]:
            got = run(level, "gemm_nt_q", [x[:tokens] for x in act], weight, grouping=1)
            np.testing.assert_array_equal(got[:40], alone[:tokens])


@pytest.mark.parametrize("tokens", [1, 9, 30])
def test_planes_add_up_exactly(levels, integer, tokens, rng, draw):
    """An empty high plane gives the bits of its low plane alone, the other way round 128 times.

    So the sum over both is made in integers: scaling by 128 moves an f32's exponent only.
    """
    cols = cols_for(integer)
    weight, (q, scale, sums) = draw(integer, 21, cols, rng), acts(rng, tokens, cols)
    none = np.zeros_like(q)
    for level in levels:
        one = run(level, "gemm_nt_q", (q, scale, sums), weight)
        low = run(level, "gemm_nt_q", (np.hstack([none, q]), scale, sums), weight)
        high = run(level, "gemm_nt_q", (np.hstack([q, none]), scale, 128 * sums), weight)
        np.testing.assert_array_equal(low, one)
        np.testing.assert_array_equal(high, 128 * one)


@pytest.mark.parametrize("tokens", [4, 12])
def test_largest_codes_of_both_signs(levels, integer, tokens, rng, draw):
    """Activations of extreme bytes in both planes sum exactly, whatever wraps on the way.

    Rows of columns, planes and neighbours that agree or differ in sign are all there.
    """
    cols = cols_for(integer)
    weight, (_, scale, _) = draw(integer, 33, cols, rng), acts(rng, tokens, cols)
    q = rng.choice(np.array([-128, 127], np.int8), size=(tokens, 2 * cols))
    q[0], q[1], q[2, :cols], q[2, cols:] = -128, 127, -128, 127
    sums = codes_of((q, scale)).reshape(tokens, -1, 32).sum(-1, dtype=np.int32)
    act = (q, scale, sums)
    a, w = values(act), weight.values
    want = a @ w.T
    for level in levels:
        got = run(level, "gemm_nt_q", act, weight)
        assert_close(got, want, a, w)
        alone = run(level, "gemm_nt_q", [x[:1] for x in act], weight)
        np.testing.assert_array_equal(got[:1], alone)


def constant_codes(plane, codes, value):
    """Fill rows of codes with the bits of one value."""
    bits = value >> np.arange(plane.element.bits) & 1
    count = codes.shape[1] * codes.itemsize * 8 // len(bits)
    row = np.packbits(np.tile(bits, count).astype(np.uint8), bitorder="little")
    codes.view(np.uint8)[:] = row


@PLANES
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 12])
def test_largest_codes_of_weights_and_activations(levels, integer, tokens, planes, rng, draw):
    """Sums of the largest products, of either sign, are exact: nothing on the way saturates.

    Rows of weights hold the most of unsigned, of signed, and of the bits in between.
    """
    cols = cols_for(integer)
    weight, (_, scale, _) = draw(integer, 48, cols, rng), acts(rng, tokens, cols)
    plane = next(p for p in weight.encoding.planes if p.role == "codes")
    for i, part in enumerate(np.array_split(weight.planes["codes"], 4)):
        constant_codes(plane, part, (1 << plane.element.bits) - 1 >> i)
    q = np.full((tokens, planes * cols), rng.choice([-128, 127]), np.int8)
    q[tokens // 2 :] ^= -1
    sums = codes_of((q, scale)).reshape(tokens, -1, 32).sum(-1, dtype=np.int32)
    act = (q, scale, sums)
    a, w = values(act), weight.values
    want = a @ w.T
    for level in levels:
        assert_close(run(level, "gemm_nt_q", act, weight), want, a, w)


@PLANES
def test_residual_and_bias_are_added_after_the_product(levels, planes, rng, draw):
    """The forms have the bits of product plus operand; the head has those of the product."""
    weight, act = draw("q4_k", 77, 256, rng), acts(rng, 9, 256, planes)
    res = rng.normal(size=(9, 77)).astype(np.float32)
    for level in levels:
        plain = run(level, "gemm_nt_q", act, weight)
        np.testing.assert_array_equal(run(level, "gemm_nt_q_add", act, weight, res), plain + res)
        np.testing.assert_array_equal(run(level, "logits_gemm_q", act, weight), plain)
        for kind in ("f32", "f16", "bf16"):
            bias = draw(kind, 1, 77, rng).planes["codes"][0]
            got = run(level, "gemm_nt_q_bias", act, weight, bias)
            np.testing.assert_array_equal(got, plain + bias.astype(np.float32))


@PLANES
def test_strided_and_unaligned_operands(levels, integer, planes, rng, draw):
    """Columns of wider buffers, at any address, give the same bits and nothing else is written."""
    cols, tokens = cols_for(integer), 14
    weight, act = draw(integer, 37, cols, rng), acts(rng, tokens, cols, planes)
    wide = [np.pad(x, ((0, 0), (3, 5)))[:, 3:-5] for x in act]
    res = np.pad(rng.normal(size=(tokens, 37)).astype(np.float32), ((0, 0), (5, 18)))[:, 5:-18]
    wide_y = np.full((tokens, 90), 7, np.float32)
    for level in levels:
        want = run(level, "gemm_nt_q_add", act, weight, res.copy())
        row = level.row("gemm_nt_q_add")
        given = params("gemm_nt_q_add", tokens, 37, cols, planes)
        stored = row.store(weight.encoding, weight.planes, 37, cols, given, 3)
        assert row([*wide, stored, res, wide_y[:, 11:48]], given, 2) == 0
        np.testing.assert_array_equal(wide_y[:, 11:48], want)
        assert (wide_y[:, :11] == 7).all()
        assert (wide_y[:, 48:] == 7).all()


@PLANES
def test_wide_rows_are_cut_without_changing_them(levels, planes, rng, draw):
    """Columns past what is decoded at a time take part like the others."""
    for name in ("q4_1", "q6_k", "q8_0"):
        weight, act = draw(name, 20, 8192 + 256, rng), acts(rng, 6, 8192 + 256, planes)
        a, w = values(act), weight.values
        want = a @ w.T
        for level in levels:
            got = run(level, "gemm_nt_q", act, weight)
            assert_close(got, want, a, w)
            alone = run(level, "gemm_nt_q", [x[5:] for x in act], weight)
            np.testing.assert_array_equal(got[5:], alone)


def test_weights_of_floats_are_refused(best, plain, draw, rng):
    """int8 activations need integer codes; others are answered with RAD_DTYPE."""
    weight = draw(plain, 16, 64, rng)
    for op in OPS:
        given = params(op, 1, 16, 64)
        assert best.row(op).layout(weight.encoding, 16, 64, given, 3)[0] == -2


def test_operands_that_do_not_fit_are_refused(best, rng, draw):
    """Wrong extents and element types are answered by status, not by reading on."""
    weight, row, given = draw("q4_0", 32, 64, rng), best.row("gemm_nt_q"), params("", 2, 32, 64)
    stored = row.store(weight.encoding, weight.planes, 32, 64, given, 3)
    (a, scale, sums), y = acts(rng, 2, 64), np.zeros((2, 32), np.float32)
    assert row([a, scale, sums, stored, y], given) == 0
    assert row([a[:, :32], scale[:, :1], sums[:, :1], stored, y], given) == -1
    assert row([a[:, :48], scale, sums, stored, y], given) == -1
    assert row([a, scale[:1], sums, stored, y], given) == -1
    assert row([a, scale, sums, stored, np.zeros((2, 48), np.float32)], given) == -1
    assert row([a.astype(np.int32), scale, sums, stored, y], given) == -2
    assert row([a, scale.astype(np.float16), sums, stored, y], given) == -2
    assert row([a, scale, sums, stored.array, y], given) == -2
    assert row([a, scale, sums, stored, y], {**given, "planes": 2}) == -1
    assert row([np.hstack([a, a]), scale, sums, stored, y], given) == -1
    for planes in (0, -1, 3):
        assert row([a, scale, sums, stored, y], {**given, "planes": planes}) == -12
