"""Turns each kind of constraint into the one form that llguidance compiles, within limits."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.gbnf_lark import lark_of
from radiance_core.constrain.json_schema import read_schema
from radiance_core.constrain.lark import read_lark
from radiance_core.constrain.limits import (
    MAX_CHOICES,
    MAX_CHOICES_CHARS,
    check_bytes,
    check_json_shape,
    check_regex,
)

_EXACT = '\n%llguidance {"no_forcing": true}\n'
"""Allows every token that goes on in a text, not only those its encoder would choose."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """What llguidance compiles.

    Args:
        text: in llguidance's Lark.
        ignored: paths in the constraint that mean nothing to anybody here.
    """

    text: str
    ignored: tuple[str, ...] = ()


def translate(kind: str, text: str) -> Grammar:
    """Return the grammar of a constraint of ``engine.sampling.ConstraintKind``.

    Raises:
        ConstraintError: malformed, too large, or not enforceable.
    """
    check_bytes(kind, text)
    return _KINDS[kind](text)


def _json_schema(text: str) -> Grammar:
    schema = read_schema(text)
    return Grammar(f"start: %json {schema.text}{_EXACT}", schema.ignored)


def _regex(text: str) -> Grammar:
    if not text:
        raise ConstraintError("regex: expected an expression, got an empty text.")
    check_regex(text)
    return _expression(text)


def _expression(regex: str) -> Grammar:
    from llguidance import LLMatcher

    form = json.loads(LLMatcher.grammar_from_regex(regex))
    return Grammar(f"{form['grammars'][0]['lark_grammar']}{_EXACT}")


def _choice(text: str) -> Grammar:
    check_json_shape(text, "choice")
    try:
        choices = json.loads(text)
    except ValueError as err:
        raise ConstraintError(f"choice: expected a list of texts in JSON, got: {err}.") from err
    if not isinstance(choices, list) or not 0 < len(choices) <= MAX_CHOICES:
        raise ConstraintError(f"choice: expected a list of 1 to {MAX_CHOICES} texts.")
    if not all(isinstance(item, str) and item for item in choices):
        raise ConstraintError("choice: expected texts of at least one character each.")
    if sum(map(len, choices)) > MAX_CHOICES_CHARS:
        raise ConstraintError(
            f"choice: expected at most {MAX_CHOICES_CHARS} characters in all, got more."
        )
    return _expression("|".join(map(_escaped, choices)))


def _escaped(text: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", lambda found: f"\\x{{{ord(found[0]):X}}}", text)


def _lark(text: str) -> Grammar:
    grammar, ignored = read_lark(text)
    return Grammar(f"{grammar}{_EXACT}", ignored)


def _answer(text: str) -> Grammar:
    """Take a grammar that the server itself made, of schemas that it has read strictly.

    ``text`` is JSON: ``answer`` in Lark and, where that refers to ``@content``, ``content``, the
    kind and the text of a constraint.
    """
    parts = json.loads(text)
    answer = f"{parts['answer']}{_EXACT}"
    if "content" not in parts:
        return Grammar(answer)
    content = translate(*parts["content"])
    grammars = [
        {"name": "answer", "lark_grammar": answer},
        {"name": "content", "lark_grammar": content.text},
    ]
    return Grammar(json.dumps({"grammars": grammars}), content.ignored)


def _gbnf(text: str) -> Grammar:
    return Grammar(f"{lark_of(text)}{_EXACT}")


_KINDS: dict[str, Callable[[str], Grammar]] = {
    "json_object": lambda _: _json_schema('{"type": "object"}'),
    "json_schema": _json_schema,
    "regex": _regex,
    "choice": _choice,
    "lark": _lark,
    "answer": _answer,
    "gbnf": _gbnf,
}
