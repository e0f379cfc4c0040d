"""Arrays of strings are read as they stand, by C where it can and one by one where it cannot."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiance_abi.errors import ConfigurationError
from radiance_core.model_files import gguf_native
from radiance_core.model_files.errors import ModelFileError
from radiance_core.model_files.gguf_values import Cursor, read_value

HERE = Path("x.gguf")
LINES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=60)


def array(*strings: bytes) -> bytes:
    """An array of strings as a file has it, type first."""
    counted = (struct.pack("<Q", len(s)) + s for s in strings)
    return struct.pack("<IIQ", 9, 8, len(strings)) + b"".join(counted)


@given(LINES, st.binary(max_size=9))
def test_strings_are_read_as_they_stand(texts: list[str], behind: bytes) -> None:
    """Any strings come back, NULs in them included, and reading goes on right behind them."""
    data = array(*(t.encode() for t in texts))
    cursor = Cursor(data + behind, HERE)  # type: ignore[arg-type]  # bytes read like a mapping
    assert read_value(cursor, "k") == ("[str]", texts)
    assert cursor.at == len(data)


@given(LINES.map(lambda texts: [t.replace("\0", "") for t in texts]))
def test_c_joins_strings_without_nul(texts: list[str]) -> None:
    """What C gives is each string with a NUL behind it, and the end of the last."""
    data = array(*(t.encode() for t in texts))[16:]
    expected = "".join(f"{t}\0" for t in texts).encode()
    assert gguf_native.strings(data, 0, len(texts)) == (expected, len(data))


def test_c_leaves_what_is_unusual_to_python() -> None:
    """A NUL, a length past the end and one that would wrap are not read by C."""
    data = array(b"ab", b"c\0d")[16:]
    assert gguf_native.strings(data, 0, 1) == (b"ab\0", 10)
    assert gguf_native.strings(data, 0, 2) is None
    for length in (4, 1 << 63, (1 << 64) - 1):
        assert gguf_native.strings(struct.pack("<Q", length) + b"abc", 0, 1) is None
    assert gguf_native.strings(b"\0" * 7, 0, 1) is None


def test_a_string_that_is_no_text_is_named() -> None:
    """Bytes that are no UTF-8 are refused with the number of the string, also across two."""
    for bad in ((b"ok", b"\xff"), (b"\xc3", b"\xa9")):
        with pytest.raises(ModelFileError, match=r"2 UTF-8 strings in 'k', got string [01]: 'utf"):
            read_value(Cursor(array(*bad), HERE), "k")  # type: ignore[arg-type]  # as above


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the shared object nothing is read; what is missing and what to do is told."""
    monkeypatch.setattr(gguf_native, "LIBRARY", "libnone.so")
    gguf_native.library.cache_clear()
    with pytest.raises(ConfigurationError, match=r"GGUF: expected the shared object .*libnone\.so"):
        gguf_native.strings(b"", 0, 0)
    monkeypatch.undo()
    assert gguf_native.strings(b"", 0, 0) == (b"", 0)
