"""Looks over a Lark grammar before llguidance does: how deep it is, and the schemas inside it."""

import json
import re

from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.json_schema import read_schema
from radiance_core.constrain.limits import MAX_DEPTH, MAX_NODES, too_deep

# What never ends is taken to the end of its line, and nothing is tried twice: linear in any text.
_MARKS = re.compile(
    r'"(?:[^"\\\n]++|\\.)*+"?'
    r"|//[^\n]*|\#[^\n]*"
    r"|/(?:[^/\\\n]++|\\.)++/?"
    r"|%json\b|%llguidance\b|\btemperature\s*="
    r"|[(\[{]|[)\]}]"
)
_OTHERS = {
    "%llguidance": "how a grammar is enforced is not for a request to say",
    "temperature": "a grammar's own temperatures are not served; send one with the request",
}


def read_lark(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a grammar with the schemas in it read strictly, and what was ignored in those.

    Raises:
        ConstraintError: too deep or too large, a schema in it that cannot be enforced, or an
            instruction that is not served; names the line.
    """
    _check_depth(text)
    pieces: list[str] = []
    ignored: list[str] = []
    done = 0
    for mark in _MARKS.finditer(text):
        if mark.start() < done:
            continue
        said = mark[0] if mark[0][0] == "%" else mark[0].rstrip("= \t\n")
        if said in _OTHERS:
            line = _line(text, mark.start())
            raise ConstraintError(f"lark: line {line}: {said}: {_OTHERS[said]}.")
        if said == "%json":
            line = _line(text, mark.start())
            schema, end = _embedded(text, mark.end(), line)
            read = read_schema(schema, f"lark: line {line}")
            pieces += [text[done : mark.end()], " ", read.text]
            ignored += read.ignored
            done = end
    return "".join([*pieces, text[done:]]), tuple(ignored)


def _check_depth(text: str) -> None:
    depth = 0
    for nodes, mark in enumerate(_MARKS.finditer(text)):
        if mark[0] in "([{":
            depth += 1
        elif mark[0] in ")]}":
            depth -= 1
        if depth > MAX_DEPTH:
            raise too_deep("lark", f" in line {_line(text, mark.start())}")
        if nodes >= MAX_NODES:
            raise ConstraintError(
                f"lark: expected at most {MAX_NODES} parts, got more; shorten it."
            )


def _embedded(text: str, start: int, line: int) -> tuple[str, int]:
    """Return the JSON that begins at or after ``start``, and where it ends."""
    start += len(text[start:]) - len(text[start:].lstrip())
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError) as err:
        raise ConstraintError(
            f"lark: line {line}: expected a JSON schema after %json, got: {err}."
        ) from err
    return text[start:end], end


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
