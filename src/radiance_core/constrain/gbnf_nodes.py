"""The parts of a GBNF grammar, and what each is as a regular expression when it is regular."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Literal:
    """Characters as they stand; empty matches nothing at all and is always there."""

    text: str


@dataclass(frozen=True, slots=True)
class CharClass:
    """One character inside (or with ``negated`` outside) ranges of code points, ends included."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AnyChar:
    """One character, whichever."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Another rule, named at a place of the text."""

    name: str
    place: int


@dataclass(frozen=True, slots=True)
class Series:
    """One part after the other."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several."""

    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part from ``low`` to ``high`` times; ``None`` is no limit."""

    part: "Node"
    low: int
    high: int | None


Node = Literal | CharClass | AnyChar | Reference | Series | Choice | Repeat
EMPTY = Literal("")


def children(node: Node) -> tuple[Node, ...]:
    """Return the parts of a node."""
    match node:
        case Series(parts):
            return parts
        case Choice(options):
            return options
        case Repeat(part):
            return (part,)
    return ()


def references(node: Node) -> Iterator[Reference]:
    """Return every reference in a node; as deep as a grammar may be nested."""
    if isinstance(node, Reference):
        yield node
    for child in children(node):
        yield from references(child)


def regex(node: Node, rule: Callable[[str], str]) -> str:
    """Return the regular expression of a node; ``rule`` gives that of a rule by name."""
    match node:
        case Literal(text):
            return "".join(map(_char, map(ord, text)))
        case CharClass(ranges, negated):
            inside = "".join(_char(a) if a == b else f"{_char(a)}-{_char(b)}" for a, b in ranges)
            return f"[{'^' * negated}{inside}]"
        case AnyChar():
            return "(?s:.)"
        case Reference(name):
            return f"(?:{rule(name)})"
        case Series(parts):
            return "".join(
                f"(?:{regex(part, rule)})" if isinstance(part, Choice) else regex(part, rule)
                for part in parts
            )
        case Choice(options):
            return "|".join(regex(option, rule) for option in options)
        case Repeat(part, low, high):
            return f"(?:{regex(part, rule)}){times(low, high)}"


def times(low: int, high: int | None) -> str:
    """Spell a repetition."""
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    return short or f"{{{low},{'' if high is None else high}}}"


def _char(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\x{{{code:X}}}"
