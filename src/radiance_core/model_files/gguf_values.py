"""The typed values of a GGUF file, read through a cursor that never leaves it."""

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from radiance_core.model_files import gguf_native
from radiance_core.model_files.errors import ModelFileError
from radiance_core.model_files.joined_strings import JoinedStrings

MAX_STRING_BYTES = 1 << 24
MAX_ARRAY_ITEMS = 1 << 24

_STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final[dict[int, tuple[str, str]]] = {
    0: ("u8", "B"),
    1: ("i8", "b"),
    2: ("u16", "H"),
    3: ("i16", "h"),
    4: ("u32", "I"),
    5: ("i32", "i"),
    6: ("f32", "f"),
    7: ("bool", "?"),
    10: ("u64", "Q"),
    11: ("i64", "q"),
    12: ("f64", "d"),
}
_NUMBERS = {code: struct.Struct(f"<{code}") for _, code in _SCALARS.values()}
_U64 = _NUMBERS["Q"]


class Cursor:
    """A position in the file that refuses to move past the end."""

    def __init__(self, data: mmap.mmap, file: Path) -> None:
        self.data, self.file, self.at, self.end = data, file, 0, len(data)

    def need(self, count: int, what: str) -> None:
        """Refuse when fewer than ``count`` bytes are left."""
        if count > self.end - self.at:
            raise self.error(
                f"expected {count} bytes for {what} at offset {self.at}, "
                f"got {self.end - self.at} before the end; the file is cut short or damaged"
            )

    def number(self, code: str, what: str) -> Any:
        """Read one little-endian number."""
        one = _NUMBERS[code]
        if one.size > self.end - self.at:
            self.need(one.size, what)
        value = one.unpack_from(self.data, self.at)[0]
        self.at += one.size
        return value

    def text(self, limit: int, what: str) -> str:
        """Read a counted UTF-8 string of at most ``limit`` bytes."""
        count = self.number("Q", f"the length of {what}")
        if count > limit:
            raise self.error(f"expected {what} of at most {limit} bytes, got {count}")
        self.need(count, what)
        raw = self.data[self.at : self.at + count]
        self.at += count
        try:
            return raw.decode()
        except UnicodeDecodeError as err:
            raise self.error(f"expected UTF-8 in {what}, got {err.reason}") from err

    def error(self, what: str) -> ModelFileError:
        """Return an error about this file."""
        return ModelFileError(self.file, what)


def read_value(cursor: Cursor, key: str) -> tuple[str, Any]:
    """Read one typed value; returns its type's name and the value."""
    kind = cursor.number("I", f"the type of {key!r}")
    if kind == _STRING:
        return "str", cursor.text(MAX_STRING_BYTES, f"the value of {key!r}")
    if kind == _ARRAY:
        return _array(cursor, key)
    if kind not in _SCALARS:
        raise cursor.error(f"expected a value type 0 to 12 for {key!r}, got {kind}")
    name, code = _SCALARS[kind]
    if name == "bool":
        return name, _flag(cursor, cursor.number("B", f"the value of {key!r}"), key)
    return name, cursor.number(code, f"the value of {key!r}")


def _array(cursor: Cursor, key: str) -> tuple[str, Sequence[Any]]:
    kind = cursor.number("I", f"the item type of {key!r}")
    count = cursor.number("Q", f"the item count of {key!r}")
    if kind != _STRING and kind not in _SCALARS:
        raise cursor.error(
            f"expected an array of numbers, bools or strings for {key!r}, got item type {kind}"
        )
    if count > MAX_ARRAY_ITEMS:
        raise cursor.error(f"expected at most {MAX_ARRAY_ITEMS} items in {key!r}, got {count}")
    if kind == _STRING:
        return "[str]", _strings(cursor, count, key)
    name, code = _SCALARS[kind]
    code = "B" if name == "bool" else code
    size = count * struct.calcsize(f"<{code}")
    cursor.need(size, f"the {count} items of {key!r}")
    items = list(struct.unpack_from(f"<{count}{code}", cursor.data, cursor.at))
    cursor.at += size
    if name == "bool":
        items = [_flag(cursor, item, key) for item in items]
    return f"[{name}]", items


def _strings(cursor: Cursor, count: int, key: str) -> Sequence[str]:
    """Read counted strings: vocabularies have hundreds of thousands."""
    cursor.need(count * 8, f"the {count} strings of {key!r}")
    read = gguf_native.strings(cursor.data, cursor.at, count)
    if read is not None:
        joined, end = read
        # No character's bytes have a NUL in them, so all are UTF-8 where each of them is.
        try:
            strings = JoinedStrings(joined.decode(), count)
        except UnicodeDecodeError:
            return _strings_one_by_one(cursor, count, key)
        cursor.at = end
        return strings
    return _strings_one_by_one(cursor, count, key)


def _strings_one_by_one(cursor: Cursor, count: int, key: str) -> list[str]:
    """Read strings of which one holds a NUL, or is wrong, which is told by its number."""
    data, at, end = cursor.data, cursor.at, cursor.end
    strings: list[str] = []
    try:
        for _ in range(count):
            start = at + 8
            at = start + _U64.unpack_from(data, at)[0]
            if at > end:
                raise cursor.error(
                    f"expected string {len(strings)} of {key!r} to end by {end}, got {at}"
                )
            strings.append(data[start:at].decode())
    except (struct.error, UnicodeDecodeError) as err:
        raise cursor.error(
            f"expected {count} UTF-8 strings in {key!r}, got string {len(strings)}: {err}"
        ) from err
    cursor.at = at
    return strings


def _flag(cursor: Cursor, byte: int, key: str) -> bool:
    if byte > 1:
        raise cursor.error(f"expected a bool of 0 or 1 in {key!r}, got {byte}")
    return byte == 1
