r"""Reads GBNF, the grammar notation of llama.cpp, into rules; a mistake is told by line and column.

root  ::= item ("," item)* ws     # literals, references, groups, repetition
item  ::= [a-z]{1,8} | "\x41" .
ws    ::= | [ \t\n] ws
"""

import re
from collections.abc import Mapping
from typing import NoReturn

from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.gbnf_nodes import (
    EMPTY,
    AnyChar,
    CharClass,
    Choice,
    Literal,
    Node,
    Reference,
    Repeat,
    Series,
)
from radiance_core.constrain.limits import MAX_DEPTH, MAX_NODES, too_deep

MAX_REPEAT = 10_000
MAX_STACKED = 4
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)+")
_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)+")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_COUNT = re.compile(r"\{[ \t]*(\d{1,9})?[ \t]*(,)?[ \t]*(\d{1,9})?[ \t]*\}")
_HEX = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n"}
_PLAIN_ESCAPES = "\\\"[]-^/'"


def parse(text: str) -> Mapping[str, Node]:
    """Return the rules of a grammar by name; ``root`` and all that is referred to are there.

    Raises:
        ConstraintError: not GBNF, or too large or deep; names line and column.
    """
    return _Parser(text).grammar()


class _Parser:
    """A place in a text, and what may stand there."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._num_nodes = 0

    def grammar(self) -> Mapping[str, Node]:
        rules: dict[str, Node] = {}
        uses: list[Reference] = []
        self._uses = uses
        self._skip(_LINES)
        while self._at < len(self._text):
            start = self._at
            name = self._name("the name of a rule")
            self._skip(_SPACE)
            if not self._text.startswith("::=", self._at):
                self._fail(f"'::=' after the rule's name {name[:40]!r}")
            self._at += 3
            if name in rules:
                self._at = start
                self._fail(f"each rule once, and {name[:40]!r} a first time")
            self._skip(_LINES)
            rules[name] = self._choice(nested=False)
            if self._at < len(self._text) and self._text[self._at] not in "\r\n":
                self._fail("the end of the rule's line")
            self._skip(_LINES)
        if "root" not in rules:
            self._fail("a rule named 'root', where a text begins")
        for use in uses:
            if use.name not in rules:
                self._at = use.place
                self._fail("the name of a rule in this grammar")
        return rules

    def _choice(self, *, nested: bool) -> Node:
        options = [self._series(nested)]
        while self._continues(nested):
            self._at += 1
            self._skip(_LINES)
            options.append(self._series(nested))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _continues(self, nested: bool) -> bool:
        """Say whether another alternative follows, which may begin a line."""
        end = self._at
        if not nested and (blank := _LINES.match(self._text, self._at)):
            end = blank.end()
        if self._text[end : end + 1] != "|":
            return False
        self._at = end
        return True

    def _series(self, nested: bool) -> Node:
        parts: list[Node] = []
        space = _LINES if nested else _SPACE
        while (part := self._part()) is not None:
            self._skip(space)
            for _ in range(MAX_STACKED):
                if (times := self._times()) is None:
                    break
                part = Repeat(part, *times)
                self._skip(space)
            parts.append(part)
        if not parts:
            return EMPTY
        return parts[0] if len(parts) == 1 else Series(tuple(parts))

    def _part(self) -> Node | None:
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:
            raise ConstraintError(
                f"gbnf: expected at most {MAX_NODES} parts, got more; shorten it."
            )
        char = self._text[self._at : self._at + 1]
        if char == '"':
            return self._literal()
        if char == "[":
            return self._char_class()
        if char == "(":
            return self._group()
        if char == ".":
            self._at += 1
            return AnyChar()
        if char in {"<", "!"}:
            self._fail("text; single tokens are not served in GBNF, Lark has them")
        if _NAME.match(self._text, self._at):
            place = self._at
            found = Reference(self._name("a name"), place)
            self._uses.append(found)
            return found
        return None

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            line, column = self._place()
            raise too_deep("gbnf", f" at line {line} column {column}")
        self._at += 1
        self._skip(_LINES)
        inside = self._choice(nested=True)
        if self._text[self._at : self._at + 1] != ")":
            self._fail("')', an alternative or another part")
        self._at += 1
        self._depth -= 1
        return inside

    def _literal(self) -> Node:
        self._at += 1
        chars = []
        while (code := self._char('"')) is not None:
            chars.append(chr(code))
        return Literal("".join(chars))

    def _char_class(self) -> Node:
        self._at += 1
        negated = self._text[self._at : self._at + 1] == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while (low := self._char("]")) is not None:
            high = low
            if (
                self._text[self._at : self._at + 1] == "-"
                and self._text[self._at + 1 : self._at + 2] != "]"
            ):
                self._at += 1
                found = self._char("]")
                if found is None or found < low:
                    self._fail("a range that ends at or after its beginning")
                high = found
            ranges.append((low, high))
        if not ranges:
            self._fail("at least one character in a class")
        return CharClass(tuple(ranges), negated)

    def _char(self, end: str) -> int | None:
        """Read one character of a literal or class; None at its end."""
        char = self._text[self._at : self._at + 1]
        if char in {"", "\n", "\r"}:
            self._fail(f"{end!r} on the line that its beginning is on")
        self._at += 1
        if char == end:
            return None
        return self._escaped() if char == "\\" else ord(char)

    def _escaped(self) -> int:
        char = self._text[self._at : self._at + 1]
        if char in _HEX:
            digits = self._text[self._at + 1 : self._at + 1 + _HEX[char]]
            if not re.fullmatch(f"[0-9a-fA-F]{{{_HEX[char]}}}", digits):
                self._fail(f"{_HEX[char]} hexadecimal digits after '\\{char}'")
            code = int(digits, 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                self._fail("a code point that a text can have")
            self._at += 1 + len(digits)
            return code
        if not char or char not in {*_PLAIN_ESCAPES, *_ESCAPES}:
            self._fail("one of t r n x u U \\ \" [ ] after '\\'")
        self._at += 1
        return ord(_ESCAPES.get(char, char))

    def _times(self) -> tuple[int, int | None] | None:
        """Read a repetition, if one stands here."""
        char = self._text[self._at : self._at + 1]
        if char in {"*", "+", "?"}:
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if char != "{":
            return None
        found = _COUNT.match(self._text, self._at)
        if found is None or not (found[1] or found[3]):
            self._fail("{n}, {n,}, {,m} or {n,m}")
        low = int(found[1] or 0)
        high = (int(found[3]) if found[3] else None) if found[2] else low
        if max(low, high or 0) > MAX_REPEAT or (high is not None and high < low):
            self._fail(f"counts in order and of at most {MAX_REPEAT}")
        self._at = found.end()
        return low, high

    def _name(self, what: str) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            self._fail(what)
        self._at = found.end()
        return found[0]

    def _skip(self, space: re.Pattern[str]) -> None:
        if found := space.match(self._text, self._at):
            self._at = found.end()

    def _place(self) -> tuple[int, int]:
        before = self._text[: self._at]
        return before.count("\n") + 1, self._at - (before.rfind("\n") + 1) + 1

    def _fail(self, expected: str) -> NoReturn:
        line, column = self._place()
        rest = self._text[self._at : self._at + 12]
        got = repr(rest) if rest else "the end"
        raise ConstraintError(f"gbnf: line {line} column {column}: expected {expected}, got {got}.")
