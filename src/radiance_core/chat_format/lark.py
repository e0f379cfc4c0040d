"""Pieces of Lark as llguidance reads it: texts, expressions, special tokens, schemas."""

import json
import re
from collections.abc import Mapping
from typing import Any

_SIGNS = re.compile(r"[\\.+*?()|\[\]{}^$/#&~-]")
ANYTHING = r"(.|\n)*"
# Texts that templates write have one space after commas and colons, and models follow them; without
# a bound a small model can go on with white space for ever.
_STYLE = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    # Without \u a key has one spelling, so that no free key can stand for a declared one.
    "json_allowed_escapes": 'nrbtf\\"',
}


class Pieces:
    """Writes texts of a format in Lark.

    Args:
        special: ids of special tokens by their text; no other text matches those.
        id_pattern: expression of what stands in a hole.
    """

    def __init__(self, special: Mapping[str, int], hole: str, id_pattern: str) -> None:
        self._special = special
        self._hole = hole
        self._id_pattern = id_pattern
        listed = [hole, *sorted(special, key=len, reverse=True)]
        self._parts = re.compile("(" + "|".join(map(re.escape, listed)) + ")")

    def text(self, *texts: str) -> str:
        """Return what matches the texts one after the other, exactly."""
        return " ".join(self._piece(part) for part in self._parts.split("".join(texts)) if part)

    def special_id(self, text: str) -> int | None:
        """Return the id of a special token, None for any other text."""
        return self._special.get(text)

    def is_plain(self, text: str) -> bool:
        """Say whether no special token and no hole stands in a text."""
        return len(self._parts.split(text)) == 1

    def _piece(self, part: str) -> str:
        if part == self._hole:
            return f"/{self._id_pattern}/"
        if part in self._special:
            return f"<[{self._special[part]}]>"
        return quoted(part)


def quoted(text: str) -> str:
    """Return a text as a Lark literal."""
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """Return an expression that matches a text."""
    signs = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    plain = _SIGNS.sub(lambda found: "\\" + found[0], text)
    return "".join(signs.get(char, char) for char in plain)


def json_of(schema: Any) -> str:
    """Return what matches the JSON of a schema, in the style that templates write."""
    if not isinstance(schema, dict):
        schema = {} if schema else {"not": {}}
    return "%json " + json.dumps({**schema, "x-guidance": _STYLE}, ensure_ascii=False)
