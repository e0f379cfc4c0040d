"""The dtype table: ids, DLPack codes and numpy dtypes agree with each other and with peers."""

import ctypes
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from radiance_abi.dtypes import (
    ALIASES,
    DTYPES,
    dtype,
    dtype_of_dlpack,
    dtype_of_id,
    dtype_of_numpy,
)
from radiance_abi.errors import EncodingError


@pytest.mark.parametrize("name", DTYPES)
def test_each_dtype_is_found_by_every_key_it_has(name: str) -> None:
    """Name, id, DLPack triple and numpy dtype all lead to the same row."""
    row = dtype(name)
    assert dtype_of_id(row.id) is row
    assert dtype_of_dlpack(*row.dlpack) is row
    if row.numpy is not None:
        assert dtype_of_numpy(row.numpy) is row
        assert row.numpy.itemsize * 8 == row.bits
        assert not row.packed
    else:
        assert row.bits not in (8, 16, 32, 64)


def test_ids_are_the_published_ones() -> None:
    """Ids are part of the C contract, so they are pinned one by one."""
    pinned = (
        "f32 1 f16 2 bf16 3 fp8_e4m3 4 fp8_e5m2 5 i8 8 u8 9 i16 10 i32 11 i64 12 u32 13 bool 14 "
        "i4 16 i2 17 fp4_e2m1 18 u4 19 u2 20 e8m0 21 u1 22 i3 23 u3 24 i5 25 u5 26 i6 27 u6 28 "
        "i7 29 u7 30 u9 31 u10 32 u11 33 u12 34 fp6_e2m3 35 fp6_e3m2 36 u16 37 f64 38 u64 39"
    )
    words = pinned.split()
    assert {d.name: d.id for d in DTYPES.values()} == dict(
        zip(words[::2], map(int, words[1::2]), strict=True)
    )


def test_native_types_carry_the_dlpack_code_numpy_itself_uses() -> None:
    """The capsule that numpy exports, read through ctypes, agrees with the table."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    for row in DTYPES.values():
        if row.numpy is None or row.numpy.kind not in "fiub" or row.numpy.isbuiltin != 1:
            continue
        capsule = np.zeros(3, row.numpy).__dlpack__()
        # DLTensor: data pointer 8, device 8, ndim 4, then dtype {u8 code, u8 bits, u16 lanes}.
        at = get(capsule, b"dltensor") + 20
        assert tuple(ctypes.string_at(at, 2)) == (row.dlpack_code, row.bits), row.name


def test_float_types_have_the_named_limits() -> None:
    """The ml_dtypes behind the names are the OCP ones."""
    codes = np.arange(256, dtype=np.uint8)
    e4m3 = codes.view(_array_dtype("fp8_e4m3")).astype(float)
    assert np.nanmax(e4m3) == 448
    assert np.isnan(e4m3).sum() == 2
    e8m0 = codes.view(_array_dtype("e8m0")).astype(float)
    assert e8m0[:255].tolist() == [2.0 ** (e - 127) for e in range(255)]
    assert np.isnan(e8m0[255])


def _array_dtype(name: str) -> Any:
    return dtype(name).numpy


def test_aliases_lead_to_table_names() -> None:
    """Every alias is another word for a row and never shadows one."""
    assert not set(ALIASES) & set(DTYPES)
    assert dtype("half") is dtype("f16")
    assert dtype("fp8") is dtype("fp8_e4m3")
    assert all(dtype(alias).name == name for alias, name in ALIASES.items())


def test_unknown_keys_are_refused_by_name() -> None:
    """The text says what was asked and what is near."""
    with pytest.raises(EncodingError, match="got 'bf61'; did you mean 'bf16'"):
        dtype("bf61")
    with pytest.raises(EncodingError, match="got 'qqqqqq'; use one of f32, f16"):
        dtype("qqqqqq")
    with pytest.raises(EncodingError, match=r"got 256 \(a plugin's private id\)"):
        dtype_of_id(256)
    with pytest.raises(EncodingError, match=r"got 15 \(unknown\)"):
        dtype_of_id(15)
    with pytest.raises(EncodingError, match="got code=2 bits=32 lanes=4"):
        dtype_of_dlpack(2, 32, 4)
    for other in ("complex64", ">f4", "datetime64[s]", "S4", "V4", [("a", "f4")]):
        kind: np.dtype[Any] = np.dtype(other)  # type: ignore[call-overload]
        with pytest.raises(EncodingError, match=rf"got {re.escape(str(kind))}"):
            dtype_of_numpy(kind)


def test_row_bytes_round_up_per_row() -> None:
    """A row of a bit stream ends on a byte."""
    assert [dtype("u3").row_bytes(n) for n in (0, 1, 2, 3, 8, 9)] == [0, 1, 1, 2, 3, 4]
    assert dtype("f32").row_bytes(5) == 20


def test_codes_that_meet_int8_are_integers_times_a_power_of_two() -> None:
    """Integers, and e2m1 doubled; nothing else."""
    met = {row.name for row in DTYPES.values() if row.meets_int8}
    assert met == {row.name for row in DTYPES.values() if row.integer} | {"fp4_e2m1"}
    doubled = 2 * np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(float)
    assert (doubled == np.round(doubled)).all()
    assert np.abs(doubled).max() == 12
