"""Bit-stream rows against a definition written with Python integers."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processor_time import least

from radiance_abi.encoding import pack, unpack
from radiance_abi.errors import EncodingError


@given(st.data(), st.integers(1, 16), st.booleans(), st.integers(0, 70), st.integers(1, 3))
def test_streams_follow_the_definition_and_come_back(
    data: st.DataObject, bits: int, signed: bool, count: int, rows: int
) -> None:
    """Packing equals one big integer with element j at bit j*b; unpacking inverts it."""
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    values = np.array(
        data.draw(
            st.lists(
                st.lists(st.integers(low, high), min_size=count, max_size=count),
                min_size=rows,
                max_size=rows,
            )
        ),
        np.int64,
    ).reshape(rows, count)
    packed = pack(values, bits)
    row_bytes = (count * bits + 7) // 8
    assert packed.shape == (rows, row_bytes)
    for row, stream in zip(values.tolist(), packed, strict=True):
        whole = sum((v & ((1 << bits) - 1)) << (j * bits) for j, v in enumerate(row))
        assert stream.tobytes() == whole.to_bytes(row_bytes, "little")
    assert (unpack(packed, bits, signed, count) == values).all()


def test_low_nibble_is_the_first_element() -> None:
    """The layout of four-bit rows that kernels rely on."""
    assert pack([1, 2, 15], 4).tolist() == [0x21, 0x0F]
    assert unpack(np.array([0x21, 0x0F], np.uint8), 4, True, 3).tolist() == [1, 2, -1]


def test_misuse_is_refused_with_both_sides() -> None:
    """Values that do not fit, wrong widths, wrong arrays."""
    with pytest.raises(EncodingError, match=r"expected values that fit 4 bits.*got -1 \.\. 8"):
        pack([-1, 8], 4)
    with pytest.raises(EncodingError, match=r"got 0 \.\. 16"):
        pack([0, 16], 4)
    with pytest.raises(EncodingError, match="1 to 16 bits, got 17"):
        pack([1], 17)
    with pytest.raises(EncodingError, match="got an array of float64"):
        pack([1.5], 4)
    with pytest.raises(
        EncodingError, match=r"at least 2 bytes for 3 elements of 4 bits.*rows of 1"
    ):
        unpack(np.zeros(1, np.uint8), 4, False, 3)


@pytest.mark.parametrize("bits", [2, 4, 6])
def test_unpacking_is_not_slow(bits: int) -> None:
    """10 MB of codes expand in well under the second that would make loading feel stuck."""
    stream = np.random.default_rng().integers(0, 256, (100, 100_002), np.uint8)
    count = stream.shape[1] * 8 // bits
    assert least(lambda: unpack(stream, bits, True, count), 1.0, time.thread_time) < 1.0
