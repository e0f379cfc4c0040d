"""embed_lookup against the decoded table."""

import numpy as np


def params(weight, **more):
    given = {"M": 64, "n_embd": weight.cols, "n_vocab": weight.rows, "dtype": "f32"}
    return given | more


def look_up(level, weight, ids, out, **more):
    row, given = level.row("embed_lookup"), params(weight, **more)
    stored = row.store(weight.encoding, weight.planes, weight.rows, weight.cols, given, 1)
    return row([ids, stored, out], given, 1)


def test_rows_of_the_table(levels, encoded, rng, draw):
    """Row i is the decoded table row of id i, times wscale; negative ids give zeros."""
    weight = draw(encoded, int(rng.integers(1, 100)), 256, rng)
    ids = rng.integers(-2, weight.rows, size=23).astype(np.int32)
    values = weight.values
    for wscale in (None, 16.03122):
        want = np.where(ids[:, None] < 0, 0, values[np.maximum(ids, 0)]) * (wscale or 1)
        for level in levels:
            out = np.full((23, 256), np.nan, np.float32)
            assert look_up(level, weight, ids, out, **({"wscale": wscale} if wscale else {})) == 0
            np.testing.assert_allclose(out, want, rtol=1e-6, atol=1e-6 * np.abs(values).max())


def test_ids_past_the_vocabulary_are_an_error(levels, rng, draw):
    """An id that the table has no row for is answered with RAD_INVAL, inside padding rows too."""
    weight = draw("q4_0", 20, 64, rng)
    for level in levels:
        for bad in (20, 31, 32, 1 << 30):
            out = np.zeros((2, 64), np.float32)
            assert look_up(level, weight, np.array([0, bad], np.int32), out) == -12


def test_into_columns_of_a_wider_buffer(levels, rng, draw):
    """Only the operand's columns are written."""
    weight = draw("bf16", 20, 33, rng)
    wide = np.full((5, 50), 7, np.float32)
    ids = np.array([3, 1, 4, 1, 19], np.int32)
    for level in levels:
        assert look_up(level, weight, ids, wide[:, 2:35]) == 0
        np.testing.assert_array_equal(wide[:, 2:35], weight.values[ids].astype(np.float32))
        assert (wide[:, :2] == 7).all()
        assert (wide[:, 35:] == 7).all()


def test_products_see_the_same_numbers(levels, encoded, rng, draw):
    """A unit vector through logits_gemm reads what embed_lookup gives: a tied table is one."""
    weight = draw(encoded, 40, 256, rng)
    one = np.eye(256, dtype=np.float32)[[0, 17, 255]]
    for level in levels:
        table = np.zeros((40, 256), np.float32)
        assert look_up(level, weight, np.arange(40, dtype=np.int32), table) == 0
        row, given = (
            level.row("logits_gemm"),
            {"M": 3, "n_vocab": 40, "n_embd": 256, "dtype": "f32"},
        )
        stored = row.store(weight.encoding, weight.planes, 40, 256, given, 1)
        logits = np.zeros((3, 40), np.float32)
        assert row([one, stored, logits], given) == 0
        np.testing.assert_array_equal(logits, table[:, [0, 17, 255]].T)
