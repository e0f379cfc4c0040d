"""Turns GBNF rules into llguidance's Lark, keeping which texts they take.

llguidance reads a text as lexemes, each as long as it can be. A regular grammar becomes one lexeme,
which takes exactly its texts; in a recursive one each longest run of regular parts becomes one.
"""

from collections.abc import Mapping

from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.gbnf import parse
from radiance_core.constrain.gbnf_nodes import (
    EMPTY,
    Choice,
    Node,
    Reference,
    Repeat,
    Series,
    children,
    references,
    regex,
    times,
)

MAX_LARK_CHARS = 256 << 10


def lark_of(text: str) -> str:
    """Return the Lark grammar for a GBNF one.

    Raises:
        ConstraintError: it is no GBNF, or larger written out than may be.
    """
    return _Writer(parse(text)).grammar()


class _Writer:
    """The rules of one grammar, those among them that are regular, and their expressions."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = {name: _without_tail_calls(name, node) for name, node in rules.items()}
        self._uses = {n: {r.name for r in references(node)} for n, node in self._rules.items()}
        settled = self._settle()
        self._regular = frozenset(settled)
        self._expressions: dict[str, str] = {}
        reached = self._reach("root", frozenset())
        for name in settled:
            if name in reached:
                self._expressions[name] = self._regex(self._rules[name])

    def grammar(self) -> str:
        if "root" in self._regular:
            return f"start: {_lexeme(self._expressions['root'])}\n"
        lines = [f"start: {_rule_name('root')}"]
        size = 0
        for name in sorted(self._reach("root", self._regular)):
            lines.append(f"{_rule_name(name)}: {self._lark(self._rules[name])}")
            size += len(lines[-1])
            self._check_size(size)
        return "\n".join(lines) + "\n"

    def _reach(self, first: str, leaving_out: frozenset[str]) -> set[str]:
        """Return the rules that a rule comes to, itself among them."""
        left, done = [first], {first}
        while left:
            found = self._uses[left.pop()] - leaving_out - done
            left += found
            done |= found
        return done

    def _settle(self) -> list[str]:
        """Return the rules that no chain of references leads back to, each after those it uses.

        Rules that use only settled ones settle, until no more do; those on a cycle never do.
        """
        users: dict[str, list[str]] = {name: [] for name in self._rules}
        for name, uses in self._uses.items():
            for use in uses:
                users[use].append(name)
        missing = {name: len(uses) for name, uses in self._uses.items()}
        settled = [name for name, count in missing.items() if count == 0]
        for name in settled:
            for user in users[name]:
                missing[user] -= 1
                if missing[user] == 0:
                    settled.append(user)
        return settled

    def _is_regular(self, node: Node) -> bool:
        return all(use.name in self._regular for use in references(node))

    def _regex(self, node: Node) -> str:
        self._check_size(sum(len(self._expressions[use.name]) for use in references(node)))
        found = regex(node, self._expressions.__getitem__)
        self._check_size(len(found))
        return found

    def _check_size(self, size: int) -> None:
        if size > MAX_LARK_CHARS:
            raise ConstraintError(
                f"gbnf: expected at most {MAX_LARK_CHARS} characters with every rule written out, "
                "got more; shorten it."
            )

    def _lark(self, node: Node) -> str:
        if self._is_regular(node):
            return '""' if node == EMPTY else _lexeme(self._regex(node))
        match node:
            case Reference(name):
                return _rule_name(name)
            case Repeat(part, low, high):
                return f"({self._lark(part)}){times(low, high)}"
            case Choice():
                regular = [o for o in node.options if self._is_regular(o)]
                merged = [Choice(tuple(regular))] if len(regular) > 1 else regular
                others = [o for o in node.options if not self._is_regular(o)]
                return f"({' | '.join(self._lark(o) for o in (*others, *merged))})"
        return " ".join(self._lark(run) for run in self._runs(children(node)))

    def _runs(self, parts: tuple[Node, ...]) -> list[Node]:
        """Join neighbours that are regular."""
        runs: list[list[Node]] = []
        was_regular = False
        for part in parts:
            is_regular = self._is_regular(part)
            if is_regular and was_regular:
                runs[-1].append(part)
            else:
                runs.append([part])
            was_regular = is_regular
        return [run[0] if len(run) == 1 else Series(tuple(run)) for run in runs]


def _lexeme(expression: str) -> str:
    return f"/{expression}/" if expression else '""'


def _rule_name(name: str) -> str:
    """Return a name of Lark for one of GBNF, which has more letters."""
    return "r_" + "".join(c if c.islower() or c.isdigit() else f"_{ord(c):x}_" for c in name)


def _without_tail_calls(name: str, node: Node) -> Node:
    """Write a rule that only goes on with itself at its end as a repetition."""
    if not any(use.name == name for use in references(node)):
        return node
    split = _split(name, node)
    if split is None:
        return node
    again, ends = split
    last = Choice(tuple(ends)) if len(ends) > 1 else ends[0] if ends else None
    if last is None:
        return node
    return Series((Repeat(Choice(tuple(again)), 0, None), last))


def _split(name: str, node: Node) -> tuple[list[Node], list[Node]] | None:
    """Return what comes before each call of the rule at an end, and the ends without one."""
    if not any(use.name == name for use in references(node)):
        return [], [node]
    match node:
        case Reference():
            return [EMPTY], []
        case Repeat(part, 0, 1):
            inside = _split(name, part)
            return None if inside is None else (inside[0], [*inside[1], EMPTY])
        case Choice(options):
            found = [_split(name, option) for option in options]
            if any(f is None for f in found):
                return None
            kept = [f for f in found if f is not None]
            return [a for f in kept for a in f[0]], [e for f in kept for e in f[1]]
        case Series(parts):
            if any(use.name == name for part in parts[:-1] for use in references(part)):
                return None
            inside = _split(name, parts[-1])
            if inside is None:
                return None
            before = parts[:-1]
            return (
                [Series((*before, part)) for part in inside[0]],
                [Series((*before, part)) for part in inside[1]],
            )
    return None
