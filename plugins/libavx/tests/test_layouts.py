"""What weights look like when stored: lossless, from any row ranges, unknown encodings refused."""

import numpy as np
import pytest

from radiance_abi.encoding import Encoding
from radiance_abi.native import arguments

PARAMS = {"M": 1, "n_embd": 256, "n_vocab": 1, "dtype": "f32"}


def test_planes_come_back(best, encoded, rng, draw):
    """Unrelayout of relayout is the identity, whatever row ranges either is asked for."""
    row = best.row("embed_lookup")
    rows, cols = int(rng.integers(1, 300)), 256 * int(rng.integers(1, 4))
    weight = draw(encoded, rows, cols, rng)
    _, layout = row.layout(weight.encoding, rows, cols, PARAMS, 1)
    step = layout.row_block
    cuts = sorted({int(c) * step for c in rng.integers(0, rows // step + 1, size=3)} - {0, rows})
    stored = row.store(weight.encoding, weight.planes, rows, cols, PARAMS, 1, cuts)
    whole = row.unstore(weight.encoding, stored, rows, cols, PARAMS, 1, 0, rows)
    for role, plane in weight.planes.items():
        np.testing.assert_array_equal(whole[role].view(np.uint8), plane.view(np.uint8))


def test_equal_bytes_from_any_ranges(best, encoded, rng, draw):
    """The stored bytes, padding too, do not depend on the ranges in which they were made."""
    row, rows, cols = best.row("embed_lookup"), 300, 256
    weight = draw(encoded, rows, cols, rng)
    step = row.layout(weight.encoding, rows, cols, PARAMS, 1)[1].row_block
    cuts = list(range(step, rows, step))
    once = row.store(weight.encoding, weight.planes, rows, cols, PARAMS, 1)
    parts = row.store(weight.encoding, weight.planes, rows, cols, PARAMS, 1, cuts)
    np.testing.assert_array_equal(once.array, parts.array)


def test_one_layout_for_all_ops(best, encoded, spellings):
    """Embedding, products and head ask for the same layout, so a tied table is stored once."""
    encoding, names = Encoding.parse(spellings[encoded]), set()
    for op, operand in (("embed_lookup", 1), ("gemm_nt_q", 3), ("logits_gemm_q", 3)):
        status, layout = best.row(op).layout(encoding, 64, 256, PARAMS, operand)
        if status == 0:
            names.add(arguments.layout_from_c(layout))
    assert len(names) == 1


def test_size_is_about_the_files(best, encoded, spellings):
    """A stored weight is at most 5 % larger than its planes."""
    encoding = Encoding.parse(spellings[encoded])
    _, layout = best.row("embed_lookup").layout(encoding, 4096, 4096, PARAMS, 1)
    assert layout.shape[0] * layout.shape[1] <= 1.05 * encoding.total_bytes(4096, 4096)


@pytest.mark.parametrize(
    "text",
    [
        "i4*f16[1x32]/fwht32",
        "i4*f16[1x24]",
        "i4*f16[1x16]",
        "i4*f16[2x32]",
        "u2*f16[1x128]-u8[1x128]",
        "fp4_e2m1",
        "fp4_e2m1*e8m0[1x16]",
        "fp4_e2m1*e8m0[2x32]",
        "fp4_e2m1*f16[1x32]",
        "fp4_e2m1*fp8_e4m3[1x16]*f32[*x*]",
        "affine:codes=fp4_e2m1[1x1],scale=e8m0[1x32],min=e8m0[1x32]",
        "i4*e8m0[1x32]",
        "fp8_e4m3*e8m0[128x128]",
        "fp8_e5m2",
        "fp8_e4m3*bf16[128x100]",
        "fp8_e4m3*bf16[4x128]",
        "i8",
        "u7*f16[1x32]",
        "affine:codes=u4[1x1],scale=f16[1x32],table=f32{1x16}",
        "affine:codes=u4[1x1],scale=f16[1x32],min=bf16[1x32]",
        "affine:codes=u4[1x1],scale=u6[1x32],scale.1=f16[1x256],min=f16[1x32]",
    ],
)
def test_unknown_encodings_are_refused(best, text):
    """An encoding that is not read is answered with RAD_DTYPE by every op."""
    for op, operand in (("embed_lookup", 1), ("gemm_nt_q", 3), ("logits_gemm_q", 3)):
        status, _ = best.row(op).layout(Encoding.parse(text), 64, 256, PARAMS, operand)
        assert status == -2


def test_columns_that_no_group_divides_are_refused(best):
    """Integer codes come in groups of 32 columns."""
    status, _ = best.row("embed_lookup").layout(Encoding.parse("i4*f16[1x32]"), 8, 40, PARAMS, 1)
    assert status == -2
