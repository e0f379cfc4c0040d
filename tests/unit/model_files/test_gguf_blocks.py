"""Every block type is split losslessly and means what the public gguf package says it does."""

from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from radiance_abi.encoding import check_planes, decode
from radiance_core.model_files.gguf_blocks import split_blocks

from .block_packer import BLOCK_TYPES, pack_blocks, random_blocks

# Products of three fields can need 25 bits, one more than f32 holds; all others are exact.
ROUNDED_ONCE_MORE = {"Q6_K", "IQ4_XS"}


def draw(name: str, rows: int, blocks_per_row: int) -> tuple[Any, dict[str, Any], int]:
    """Return random blocks, their planes and the columns."""
    kind = BLOCK_TYPES[name][1]
    blocks = random_blocks(name, rows * blocks_per_row, np.random.default_rng())
    cols = kind.block * blocks_per_row
    return blocks, split_blocks(kind, blocks.reshape(-1), rows, cols), cols


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_planes_decode_to_the_public_dequantisation(name: str) -> None:
    """Decoding in double and rounding once equals gguf's f32 result (to an ulp where it rounds)."""
    id_, kind = BLOCK_TYPES[name]
    blocks, planes, cols = draw(name, 7, 33)
    check_planes(kind.encoding, planes, (7, cols))
    ours = decode(kind.encoding, planes, (7, cols), np.float64).astype(np.float32)
    theirs = dequantize(blocks.reshape(7, -1), GGMLQuantizationType(id_))
    if name in ROUNDED_ONCE_MORE:
        assert (np.abs(ours - theirs) <= np.spacing(np.abs(theirs))).all()
    else:
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_planes_pack_back_to_the_same_bytes(name: str) -> None:
    """Nothing is lost: an independent packer restores every block from the planes."""
    blocks, planes, cols = draw(name, 3, 5)
    assert pack_blocks(name, planes, 3, cols) == blocks.tobytes()


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_long_runs_equal_short_ones(name: str) -> None:
    """Converting in cache-sized runs gives the planes that row by row conversion gives."""
    kind = BLOCK_TYPES[name][1]
    rows = (1 << 19) // kind.block_bytes // 8 + 3
    blocks, planes, cols = draw(name, rows, 8)
    rowwise = blocks.reshape(rows, -1)
    for row in (0, rows // 2, rows - 1):
        alone = split_blocks(kind, rowwise[row], 1, cols)
        for role, plane in alone.items():
            expected = planes[role] if role == "table" else planes[role][row : row + 1]
            assert np.array_equal(plane.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_encodings_hold_the_stored_bits(name: str) -> None:
    """The planes together have exactly the bits of the blocks, tables and padding aside."""
    kind = BLOCK_TYPES[name][1]
    planes = [p.role for p in kind.encoding if not p.is_table]
    assert sum(kind.encoding.plane_bytes(r, 1, kind.block) for r in planes) == kind.block_bytes


def test_scales_of_mxfp4_reach_both_ends() -> None:
    """As MX 1.0 says: 0 is 2^-127 exactly, 254 is 2^127, and 255 makes all of a block NaN."""
    kind = BLOCK_TYPES["MXFP4"][1]
    blocks = random_blocks("MXFP4", 4, np.random.default_rng())
    blocks[:, 0] = 0, 1, 254, 255
    blocks[:, 1:3] = 0x21, 0x7A
    planes = split_blocks(kind, blocks.reshape(-1), 4, 32)
    values = decode(kind.encoding, planes, (4, 32), np.float64)
    codes = np.array([0.5, -1.0, 1.0, 6.0])
    for row, scale in enumerate((2.0**-127, 2.0**-126, 2.0**127)):
        assert np.array_equal(values[row, [0, 1, 16, 17]], scale * codes)
    assert np.isnan(values[3]).all()
    assert pack_blocks("MXFP4", planes, 4, 32) == blocks.tobytes()
