"""Shared objects that are no library of the contract, or none for this machine, are told so."""

from pathlib import Path

import numpy as np
import pytest

from radiance_abi import AbiError, native

from .test_native_loader import Build, build

__all__ = ["build"]


def test_declined_machine_has_a_reason_and_no_kernels(build: Build) -> None:
    """RAD_UNSUPPORTED from open is no error: the library says why and offers nothing."""
    library = native.load(build("OPEN_STATUS=RAD_UNSUPPORTED"))
    assert library.declined == "needs a flux capacitor"
    assert library.kernels == ()


@pytest.mark.parametrize(
    ("macros", "text"),
    [
        (
            ["VERSION=7"],
            r"libtest\.so: expected contract version 1, got a library built for 7; install",
        ),
        (
            ["NO_TABLES"],
            r"libtest\.so: expected the exported function rad_library, got a library without",
        ),
        (["NULL_TABLES"], r"expected rad_library to return its tables, got NULL"),
        (
            ["ROW_BYTES=0"],
            r"kernel row 0: expected struct_bytes of RadKernel between 72 and 4096, got 0",
        ),
        (["ROW_BYTES=99999"], r"got 99999; set it to sizeof\(RadKernel\)"),
        (["ROW_BYTES=128"], r"kernel row 1: expected struct_bytes 128 as in row 0, got"),
        (["LIBRARY_BYTES=8"], r"expected struct_bytes of RadLibrary between \d+ and 4096, got 8"),
        (
            ['LIBRARY_NAME="Bad-Name"'],
            r"expected a library name of lower-case letters.*got 'Bad-Name'",
        ),
        (["LIBRARY_NAME=NULL"], r"name of the library: expected text, got NULL"),
        (['LIBRARY_NAME="\\xff"'], r"name of the library: expected UTF-8, got b'\\xff'"),
        (["OPEN_STATUS=RAD_NOMEM"], r"got -6 \(NOMEM\): needs a flux capacitor"),
        (['SCHEMA="blend(M~"'], r"schema 0: schema: expected 'op\(params\).*correct the line"),
        (["TWICE"], r"schema 2: op other is declared twice"),
        (
            ['OP="blond"'],
            r"row 0 \(blond tiled\): expected a standard op or one in the library's schemas",
        ),
        (['SECOND="tiled"'], r"kernel row 1: expected one row named tiled for blend, got a second"),
        (["RUN=NULL"], r"kernel row 0 \(blend tiled\): expected a run hook, got NULL"),
        (["BAD_CONSTRAINT"], r"expected RAD_EQ \.\. RAD_IN_OP on n, got 9"),
        (
            ["DEFAULT_INDEX=3"],
            r"axis tile: expected default_index inside its values, got index 3 of 3",
        ),
        (["NO_SCHEMAS_POINTER"], r"expected num_schemas lines in schemas, got 2 at"),
        (
            ["DOMAIN=5"],
            r"row 0 \(blend tiled\): expected domain RAD_HOST or RAD_DEVICE_DOMAIN, got 5",
        ),
        (["WHERE=NULL"], r"row 0 \(blend tiled\): expected num_where constraints, got 5 at"),
        (["AXES=NULL"], r"row 0 \(blend tiled\): expected num_axes axes, got 1 at"),
        (["NO_ROWS_POINTER"], r"expected num_kernels rows in kernels, got 2 at"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_broken_tables_are_refused(build: Build, macros: list[str], text: str) -> None:
    """A library that breaks the contract is refused with the file, the fault and what to do."""
    with pytest.raises(AbiError, match=text):
        native.load(build(*macros))


def test_files_that_are_no_library_are_refused(build: Build, tmp_path: Path) -> None:
    """A text file, a file cut off anywhere, one for another processor: an error, no signal."""
    whole = build().read_bytes()
    bad = tmp_path / "libbad.so"
    bad.write_text("hello")
    with pytest.raises(
        AbiError, match=r"libbad\.so: expected an ELF shared object, got a file that be"
    ):
        native.load(bad)
    rng = np.random.default_rng()
    for size in (16, 64, len(whole) // 2, len(whole) - 1, *rng.integers(64, len(whole), 10)):
        bad.write_bytes(whole[:size])
        with pytest.raises(AbiError, match=rf"got {size}; the file is cut off, install the plugin"):
            native.load(bad)
    bad.write_bytes(whole[:18] + (40).to_bytes(2, "little") + whole[20:])
    with pytest.raises(
        AbiError, match=r"expected a shared object for \w+, got one for 40 \(64 bits\)"
    ):
        native.load(bad)
    bad.write_bytes(whole[:16] + (2).to_bytes(2, "little") + whole[18:])
    with pytest.raises(AbiError, match=r"expected an ELF shared object \(type 3\), got type 2"):
        native.load(bad)
    bad.write_bytes(whole.replace(b"libc.so.6", b"libz.so.0"))
    with pytest.raises(AbiError, match=r"the loader says: .*libz\.so\.0"):
        native.load(bad)


def test_unknown_row_address_is_refused() -> None:
    """Only rows that the loader handed out have a schema."""
    with pytest.raises(
        AbiError, match=r"kernel row at 0x7b: expected Kernel\.native of a library from"
    ):
        native.schema_of(123)
