"""The element types that planes and tensors may have, with their ids and DLPack codes."""

import difflib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from radiance_abi.errors import EncodingError

# DLPack's DLDataTypeCode values that radiance uses.
DL_INT: Final = 0
DL_UINT: Final = 1
DL_FLOAT: Final = 2
DL_BFLOAT: Final = 4
DL_BOOL: Final = 6
DL_FLOAT8_E4M3FN: Final = 10
DL_FLOAT8_E5M2: Final = 12
DL_FLOAT8_E8M0FNU: Final = 14
DL_FLOAT6_E2M3FN: Final = 15
DL_FLOAT6_E3M2FN: Final = 16
DL_FLOAT4_E2M1FN: Final = 17

PRIVATE_ID: Final = 256
"""Ids from here on belong to plugins and never appear in a container."""


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    Args:
        name: the spelling used in encodings, options and logs, such as ``fp8_e4m3``.
        id: the number that the C contract and containers use; never reused.
        bits: width of one element; other than 8, 16, 32 and 64 are stored as bit streams.
        dlpack_code: DLPack's type code; with ``bits`` it identifies the type.
        array: the name of the array dtype that holds one element per item, "" for bit streams.
    """

    name: str
    id: int
    bits: int
    dlpack_code: int
    array: str

    @property
    def numpy(self) -> "np.dtype[Any] | None":
        """Return the array dtype that holds one element per item, None for bit streams."""
        if not self.array:
            return None
        # Should numpy get floats of these names, arrays still are those of ml_dtypes.
        own = self.dlpack_code in (DL_INT, DL_UINT, DL_FLOAT, DL_BOOL)
        return np.dtype(self.array) if own else small_float(self.array)

    @property
    def packed(self) -> bool:
        """Say whether elements lie in a bit stream along the row instead of whole items."""
        return not self.array

    @property
    def signed(self) -> bool:
        """Say whether the type is a two's complement integer."""
        return self.dlpack_code == DL_INT

    @property
    def integer(self) -> bool:
        """Say whether the type is an integer of either sign (bool is not)."""
        return self.dlpack_code in (DL_INT, DL_UINT)

    @property
    def meets_int8(self) -> bool:
        """Say whether products take these codes with int8 activations, in exact sums.

        Integers, and e2m1, whose doubles are integers up to 12.
        """
        return self.integer or self.name == "fp4_e2m1"

    @property
    def dlpack(self) -> tuple[int, int, int]:
        """Return DLPack's (code, bits, lanes); lanes is always 1."""
        return self.dlpack_code, self.bits, 1

    def row_bytes(self, count: int) -> int:
        """Return the bytes of one row of ``count`` elements; every row starts on a byte."""
        return (count * self.bits + 7) // 8


@functools.cache
def small_float(name: str) -> "np.dtype[Any]":
    """Return the dtype of ml_dtypes with that name.

    Only what needs one waits for the package: a version of it took a second to import.
    """
    import ml_dtypes

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def _table() -> dict[str, DType]:
    rows = [
        ("f32", 1, 32, DL_FLOAT, "float32"),
        ("f16", 2, 16, DL_FLOAT, "float16"),
        ("bf16", 3, 16, DL_BFLOAT, "bfloat16"),
        ("fp8_e4m3", 4, 8, DL_FLOAT8_E4M3FN, "float8_e4m3fn"),
        ("fp8_e5m2", 5, 8, DL_FLOAT8_E5M2, "float8_e5m2"),
        ("i8", 8, 8, DL_INT, "int8"),
        ("u8", 9, 8, DL_UINT, "uint8"),
        ("i16", 10, 16, DL_INT, "int16"),
        ("i32", 11, 32, DL_INT, "int32"),
        ("i64", 12, 64, DL_INT, "int64"),
        ("u32", 13, 32, DL_UINT, "uint32"),
        ("bool", 14, 8, DL_BOOL, "bool"),
        ("i4", 16, 4, DL_INT, ""),
        ("i2", 17, 2, DL_INT, ""),
        ("fp4_e2m1", 18, 4, DL_FLOAT4_E2M1FN, ""),
        ("u4", 19, 4, DL_UINT, ""),
        ("u2", 20, 2, DL_UINT, ""),
        ("e8m0", 21, 8, DL_FLOAT8_E8M0FNU, "float8_e8m0fnu"),
        ("u1", 22, 1, DL_UINT, ""),
        ("i3", 23, 3, DL_INT, ""),
        ("u3", 24, 3, DL_UINT, ""),
        ("i5", 25, 5, DL_INT, ""),
        ("u5", 26, 5, DL_UINT, ""),
        ("i6", 27, 6, DL_INT, ""),
        ("u6", 28, 6, DL_UINT, ""),
        ("i7", 29, 7, DL_INT, ""),
        ("u7", 30, 7, DL_UINT, ""),
        ("u9", 31, 9, DL_UINT, ""),
        ("u10", 32, 10, DL_UINT, ""),
        ("u11", 33, 11, DL_UINT, ""),
        ("u12", 34, 12, DL_UINT, ""),
        ("fp6_e2m3", 35, 6, DL_FLOAT6_E2M3FN, ""),
        ("fp6_e3m2", 36, 6, DL_FLOAT6_E3M2FN, ""),
        ("u16", 37, 16, DL_UINT, "uint16"),
        # Checkpoints carry these two as plain tensors; no kernel needs to know them.
        ("f64", 38, 64, DL_FLOAT, "float64"),
        ("u64", 39, 64, DL_UINT, "uint64"),
    ]
    return {row[0]: DType(*row) for row in rows}


DTYPES: Final[Mapping[str, DType]] = MappingProxyType(_table())
"""Every core dtype by name, in the order of the table."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "float32": "f32",
        "fp32": "f32",
        "float16": "f16",
        "fp16": "f16",
        "half": "f16",
        "bfloat16": "bf16",
        "e4m3": "fp8_e4m3",
        "fp8": "fp8_e4m3",
        "e5m2": "fp8_e5m2",
        "int8": "i8",
        "int32": "i32",
    }
)

_BY_ID = {d.id: d for d in DTYPES.values()}
_BY_DLPACK = {(d.dlpack_code, d.bits): d for d in DTYPES.values()}
_BY_ARRAY = {d.array: d for d in DTYPES.values() if d.array}


def dtype(name: str) -> DType:
    """Return the dtype of a name or alias.

    Raises:
        EncodingError: the name is not in the table; the nearest spelling is offered.
    """
    found = DTYPES.get(ALIASES.get(name, name))
    if found is None:
        near = difflib.get_close_matches(name, [*DTYPES, *ALIASES], 1)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(DTYPES)}"
        raise EncodingError(f"dtype: expected a known dtype, got {name!r}; {hint}")
    return found


def dtype_of_id(id_: int) -> DType:
    """Return the dtype with that id of the C contract.

    Raises:
        EncodingError: no core dtype has it (256 and above are private to plugins).
    """
    found = _BY_ID.get(id_)
    if found is None:
        kind = "a plugin's private id" if id_ >= PRIVATE_ID else "unknown"
        raise EncodingError(f"dtype: expected the id of a core dtype, got {id_} ({kind})")
    return found


def dtype_of_dlpack(code: int, bits: int, lanes: int = 1) -> DType:
    """Return the dtype that DLPack's (code, bits, lanes) names.

    Raises:
        EncodingError: lanes is not 1 or no core dtype has that code and width.
    """
    found = _BY_DLPACK.get((code, bits)) if lanes == 1 else None
    if found is None:
        raise EncodingError(
            f"dtype: expected a DLPack type of the table with lanes 1, got code={code} "
            f"bits={bits} lanes={lanes}; cast the tensor first"
        )
    return found


def dtype_of_numpy(array_dtype: "np.dtype[Any]") -> DType:
    """Return the dtype whose arrays have this numpy dtype.

    Raises:
        EncodingError: no core dtype is stored so.
    """
    kind = np.dtype(array_dtype)
    found = _BY_ARRAY.get(kind.name)
    if found is None or found.numpy != kind:
        raise EncodingError(f"dtype: expected an array dtype of the table, got {array_dtype}")
    return found
