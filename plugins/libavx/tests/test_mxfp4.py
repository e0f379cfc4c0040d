"""Weights of MXFP4 whose scales are anything that eight bits of exponent say."""

import numpy as np
import pytest

from radiance_abi.encoding import Encoding, decode, pack

ENCODING = Encoding.parse("fp4_e2m1*e8m0[1x32]")
SCALES = 255
"""How many are numbers; the last one is NaN."""


@pytest.fixture
def planes(rng):
    """A row for each scale, every code in it; those of the largest are small enough for f32."""
    codes = np.array([rng.permutation(32) % 16 for _ in range(SCALES + 1)])
    codes[253:SCALES] &= 0b1011
    scales = np.arange(SCALES + 1, dtype=np.uint8)[:, None]
    return {"codes": pack(codes, 4), "scale": scales.view(ENCODING.plane("scale").element.numpy)}


@pytest.fixture
def values(planes):
    """What the rows mean, f32 [256, 32]; all are exact."""
    exact = decode(ENCODING, planes, (SCALES + 1, 32), np.float64)
    np.testing.assert_array_equal(exact, exact.astype(np.float32))
    assert np.isnan(exact[SCALES]).all()
    assert np.abs(exact[0]).max() == 6 * 2.0**-127
    return exact.astype(np.float32)


def test_every_scale_is_exact(levels, planes, values):
    """Looked up and through a unit matrix, in f32 and in codes, for few tokens and for many."""
    ids, one = np.arange(SCALES + 1, dtype=np.int32), np.eye(32, dtype=np.float32)
    codes, by, sums = one.astype(np.int8), np.ones((32, 1), np.float32), np.ones((32, 1), np.int32)
    embedding = {"M": 256, "n_embd": 32, "n_vocab": 256, "dtype": "f32"}
    product = {"M": 32, "N": 256, "K": 32, "dtype": "f32"}
    coded = {**product, "group": 32, "planes": 1}
    for level in levels:
        row = level.row("embed_lookup")
        stored = row.store(ENCODING, planes, 256, 32, embedding, 1)
        table = np.zeros((256, 32), np.float32)
        assert row([ids, stored, table], embedding) == 0
        np.testing.assert_array_equal(table, values)
        for tokens in (1, 2, 3, 8, 32):
            y = np.zeros((tokens, 256), np.float32)
            assert level.row("gemm_nt")([one[:tokens], stored, y], product) == 0
            np.testing.assert_array_equal(y[:, :SCALES], values[:SCALES, :tokens].T)
            assert np.isnan(y[:, SCALES]).all()
            y = np.zeros((tokens, 256), np.float32)
            act = [codes[:tokens], by[:tokens], sums[:tokens]]
            assert level.row("gemm_nt_q")([*act, stored, y], coded) == 0
            np.testing.assert_array_equal(y[:, :SCALES], values[:SCALES, :tokens].T)
            assert np.isnan(y[:, SCALES]).all()


def test_planes_come_back_with_any_scale(best, planes):
    """All 256 of them, NaN too."""
    row, given = best.row("gemm_nt_q"), {"M": 1, "N": 256, "K": 32, "group": 32, "dtype": "f32"}
    stored = row.store(ENCODING, planes, 256, 32, given, 3, [112])
    whole = row.unstore(ENCODING, stored, 256, 32, given, 3, 0, 256)
    for role, plane in planes.items():
        np.testing.assert_array_equal(whole[role].view(np.uint8), plane.view(np.uint8))
