"""Finds a known call in the text that a template made of it, and takes it to pieces."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from radiance_abi.errors import RadianceError
from radiance_core.chat_format.format import CDATA, ID_HOLE, ReasoningFormat, ValueKind
from radiance_core.chat_format.probes import (
    ARGUMENTS,
    FUNCTION_IDS,
    KEYS,
    NAMES,
    TEXT_VALUES,
    CallStyle,
    Probe,
    atoms,
)

_DECODER = json.JSONDecoder(strict=False)  # a hole is no character that JSON has
_MARK_SIGNS = "<[|({`"
_MAX_BRACES = 32


class UnknownFormat(RadianceError):  # noqa: N818 (a fact about a template, not a defect)
    """A template writes calls in no way that is understood; says why, for a client."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Answers with calls, as a template writes them in one style."""

    probe: Probe
    style: CallStyle
    reasoning: ReasoningFormat | None

    def text(self, *calls: Mapping[str, Any]) -> str:
        """Return an answer less its thoughts, with holes for its calls' ids."""
        turn = self.probe.turn(self.style.message(*calls))
        if turn is None:
            raise UnknownFormat("its chat template refuses some answers with calls")
        if self.style.ids != FUNCTION_IDS:
            for id_ in self.style.ids:
                turn = turn.replace(id_, ID_HOLE)
        turn = turn.lstrip()
        if self.reasoning is not None:
            turn = turn.removeprefix(self.reasoning.opening).lstrip()
            turn = turn.removeprefix(self.reasoning.closing).lstrip()
        return turn


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """One call as it stands in a text.

    ``begin``, ``end``: of what differs from call to call. ``pieces``: what a ``ToolFormat`` has
    of it, by field.
    """

    begin: int
    end: int
    values: ValueKind
    pieces: Mapping[str, Any]


def read_call(turns: Turns, text: str, number: int, start: int = 0) -> WrittenCall:
    """Find the n-th call of a text, which is given both arguments.

    Raises: ``UnknownFormat`` when it is not there, or not written in a way that is understood.
    """
    at = text.find(NAMES[number], start)
    if at < 0:
        raise UnknownFormat("its chat template leaves calls out")
    try:
        found = _in_one_object(text, at, start, number)
    except ValueError as err:  # a member whose key or value is not written plainly
        raise UnknownFormat("its calls are written in a way that is not understood") from err
    return found or _named(text, at, number) or _tagged(turns, text, at, number)


def _in_one_object(text: str, at: int, start: int, number: int) -> WrittenCall | None:
    """Read name and arguments as members of one JSON object."""
    begin, held, end = at, None, at
    for _ in range(_MAX_BRACES):
        begin = text.rfind("{", start, begin)
        if begin < 0:
            return None
        held, end = _decode(text, begin)
        if isinstance(held, dict) and end > at and NAMES[number] in held.values():
            break
    else:
        return None
    assert isinstance(held, dict), "the loop breaks at an object"
    name_key = next(key for key, value in held.items() if value == NAMES[number])
    arguments_key = next((key for key, value in held.items() if value == ARGUMENTS), None)
    if arguments_key is None:
        return None
    written = text[begin:end]
    name_at = written.index(NAMES[number], written.index(json.dumps(name_key)))
    key = json.dumps(arguments_key)
    arguments_at = written.index("{", written.index(key) + len(key))
    _, arguments_end = _decode(written, arguments_at)
    if arguments_at < name_at:
        return None
    id_key = _id_key(held, name_key, arguments_key)
    pieces = {
        "object_open": written[:name_at],
        "name_end": written[name_at + len(NAMES[number]) : arguments_at],
        "object_close": written[arguments_end:],
        "name_key": name_key,
        "arguments_key": arguments_key,
        "id_key": id_key,
        "id_is_number": str(held.get(id_key, "")).isdigit(),
    }
    return WrittenCall(begin, end, "json_call", pieces)


def _id_key(held: Mapping[str, Any], name_key: str, arguments_key: str) -> str:
    """Return the member that a call's id is in: one that holds a hole, or a bare number."""
    for key, value in held.items():
        if key not in {name_key, arguments_key} and (
            value == ID_HOLE or (isinstance(value, str) and value.isdigit())
        ):
            return key
    return ""


def _named(text: str, at: int, number: int) -> WrittenCall | None:
    """Read a name, and behind it the arguments as one JSON object."""
    behind = at + len(NAMES[number])
    begin = behind - 1
    for _ in range(_MAX_BRACES):
        begin = text.find("{", begin + 1)
        if begin < 0:
            break
        held, end = _decode(text, begin)
        if held == ARGUMENTS:
            name_end = text[behind:begin]
            numbered = name_end.startswith(f":{number}")
            if numbered:
                name_end = name_end.replace(str(number), ID_HOLE, 1)
            pieces = {"name_end": name_end, "id_is_number": numbered}
            return WrittenCall(at, end, "json_object", pieces)
    return None


def _tagged(turns: Turns, text: str, at: int, number: int) -> WrittenCall:
    """Read a name, and behind it each argument between marks of its own."""
    here = at + len(NAMES[number])
    gaps = []
    for word in (KEYS[0], TEXT_VALUES[0], KEYS[1], TEXT_VALUES[1]):
        place = text.find(word, here)
        if place < 0:
            raise UnknownFormat("its calls are written in a way that is not understood")
        gaps.append(text[here:place])
        here = place + len(word)
    before_key, key_close, between, close_again = gaps
    bare = turns.text({})
    none = bare[bare.find(NAMES[0]) + len(NAMES[0]) :]
    one = turns.text(ARGUMENTS)
    end = one[one.rfind(TEXT_VALUES[1]) + len(TEXT_VALUES[1]) :]
    pieces = _tag_pieces(before_key, between, end, none)
    if pieces is None or close_again != key_close:
        raise UnknownFormat("its calls are written in a way that is not understood")
    pieces |= {
        "key_close": key_close,
        "other_key_close": _other_close(turns, key_close),
        "has_cdata": CDATA[0] in turns.text({**ARGUMENTS, KEYS[0]: "<a>&"}),
    }
    return WrittenCall(at, here + len(pieces["value_close"]), "tagged", pieces)


def _tag_pieces(before_key: str, between: str, end: str, none: str) -> dict[str, Any] | None:
    """Part what stands before a first argument, between two, after the last, and without any.

    before_key = name_end key_open        between = value_close key_open
    end = value_close call_close          none = name_end call_close
    """
    parts = atoms(before_key)
    for count in range(len(parts)):
        name_end, key_open = "".join(parts[:count]), "".join(parts[count:])
        value_close = between.removesuffix(key_open)
        fits = (
            key_open.lstrip()[:1] in _MARK_SIGNS
            and len(value_close) < len(between)
            and value_close.strip()
            and end.startswith(value_close)
            and (name_end + end[len(value_close) :]).split() == none.split()
        )
        if fits and key_open.strip():
            return {"name_end": name_end, "key_open": key_open, "value_close": value_close}
    return None


def _other_close(turns: Turns, key_close: str) -> str:
    """Return what ends the name of an argument that is no text, where that differs."""
    number = 424242
    found = set()
    for value in (number, [number]):
        text = turns.text({**ARGUMENTS, KEYS[0]: value})
        at = text.find(KEYS[0]) + len(KEYS[0])
        place = text.find(str(number), at)
        if not at <= place < at + 2 * len(key_close) + 16:
            raise UnknownFormat("its calls leave out arguments that are no text")
        found.add(text[at:place].removesuffix("["))
    if len(found) > 1:
        raise UnknownFormat("its calls are written in a way that is not understood")
    other = found.pop()
    return "" if other == key_close else other


def _decode(text: str, begin: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None, begin
