"""A schema's pattern as one expression of a grammar, which matches all of a text.

A pattern is searched for, a grammar's expression matches from end to end; and a pattern comes from
outside, so nothing in it may end the expression that it becomes a part of.
"""

import re

from radiance_core.chat_format.lark import ANYTHING

_PARTS = re.compile(r"\\.|\[\^?\]?|\(\?[A-Za-z-]*[:)]?|.", re.DOTALL)
_WRITTEN = {"/": "\\/", "\n": "\\n", "\r": "\\r", "\\\n": "\\n", "\\\r": "\\r"}


def whole_text(pattern: str) -> str:
    """Return an expression, safe between slashes, of the texts in which ``pattern`` is found.

    Raises: ``ValueError`` with the reason when brackets or escapes of ``pattern`` are not whole,
    or when it sets flags for what follows it.
    """
    options = [_searched(parts) for parts in _alternatives(pattern)]
    return options[0] if len(options) == 1 else f"({'|'.join(options)})"


def _alternatives(pattern: str) -> list[list[str]]:
    """Return what the outermost bars part; each may have anchors of its own."""
    options: list[list[str]] = [[]]
    groups = classes = 0
    for part in _PARTS.findall(pattern):
        if part[0] == "[":
            classes += 1
        elif classes:
            classes -= part == "]"
        elif part[0] == "(":
            _check_flags(part)
            groups += 1
        elif part == ")":
            groups -= 1
        if groups < 0:
            raise ValueError("a ')' closes nothing")
        if part == "\\":
            raise ValueError("it ends within an escape")
        if part == "|" and not groups and not classes:
            options.append([])
        else:
            options[-1].append(part)
    if groups or classes:
        raise ValueError(f"a '{'[' if classes else '('}' is not closed")
    return options


def _check_flags(part: str) -> None:
    if part.endswith(")") or (part.endswith(":") and "x" in part):
        raise ValueError(f"flags like {part!r} are not served")


def _searched(parts: list[str]) -> str:
    """Return one alternative as it is searched for: from its anchors, or anywhere."""
    begins, ends = parts[:1] == ["^"], parts[-1:] == ["$"]
    bare = parts[begins : len(parts) - ends]
    # Not a plain group: what begins with a question mark would be that group's kind.
    inner = "".join(_WRITTEN.get(part, part) for part in bare)
    return f"{'' if begins else ANYTHING}(?:{inner}){'' if ends else ANYTHING}"
