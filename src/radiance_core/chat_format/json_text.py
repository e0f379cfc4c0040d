"""Finds where JSON values end in a text that arrives bit by bit; the values stay as written."""

import json
from collections.abc import Callable

from radiance_core.chat_format.reader import END, Reader, Step

_ENDS = ",}]<"


def pass_on(reader: Reader, say: Callable[[str], None]) -> Step[bool]:
    """Pass an object or array on, balanced by its brackets; False when the text ends within."""
    depth, inside, escaped = 0, False, False
    while (char := (yield from reader.take())) != END:
        say(char)
        if inside:
            inside, escaped = escaped or char != '"', not escaped and char == "\\"
        elif char == '"':
            inside = True
        elif char in "{[":
            depth += 1
        elif char in "}]":
            depth -= 1
            if depth == 0:
                return True
    return False


def read_value(reader: Reader) -> Step[str | None]:
    """Read one JSON value; None when the text ends within."""
    yield from reader.skip_space()
    char = yield from reader.peek()
    got: list[str] = []
    if char and char in "{[":
        return "".join(got) if (yield from pass_on(reader, got.append)) else None
    if char == '"':
        return (yield from read_string(reader))
    while (char := (yield from reader.take())) != END:
        if char in _ENDS or char.isspace():
            reader.put_back(char)
            return "".join(got)
        got.append(char)
    return None


def read_string(reader: Reader) -> Step[str | None]:
    """Read a JSON string with its quotes; None when the text ends within."""
    got = [(yield from reader.take())]
    escaped = False
    while (char := (yield from reader.take())) != END:
        got.append(char)
        if char == '"' and not escaped:
            return "".join(got)
        escaped = char == "\\" and not escaped
    return None


def text_of(value: str) -> str:
    """Return the text of a JSON string, the value itself where it is none."""
    try:
        held = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return held if isinstance(held, str) else value


def arguments_of(value: str | None) -> str:
    """Return a call's arguments from a value that is not written as an object, or from none."""
    held = "" if value is None else text_of(value)
    return "{}" if held.strip() in {"", "null"} else held
