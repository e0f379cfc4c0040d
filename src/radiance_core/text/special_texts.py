"""Where the texts of special tokens begin in a text that must not hold any."""

import re
from collections.abc import Iterable

# A text is recognised by so many letters: the pattern nests once a letter.
_MAX_LETTERS = 64


def first_letter_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern that matches the first letter of each of ``texts``, wherever one begins.

    Texts of one letter are left out, for one letter cannot be parted. The time that a search
    takes is linear in what is searched, however many texts there are: they share beginnings.
    Returns ``None`` when no text is left.
    """
    branches = [
        f"{re.escape(first)}(?={_any_of(rests)})"
        for first, rests in _by_first_letter(text[:_MAX_LETTERS] for text in texts if len(text) > 1)
    ]
    return re.compile("|".join(branches)) if branches else None


def _any_of(texts: set[str]) -> str:
    """Return a pattern for any of ``texts``, decided letter by letter; shorter ones suffice."""
    if "" in texts:
        return ""
    inner = [re.escape(first) + _any_of(rests) for first, rests in _by_first_letter(texts)]
    return inner[0] if len(inner) == 1 else f"(?:{'|'.join(inner)})"


def _by_first_letter(texts: Iterable[str]) -> list[tuple[str, set[str]]]:
    """Return the letters that texts begin with, each with what follows it."""
    rests: dict[str, set[str]] = {}
    for text in texts:
        rests.setdefault(text[0], set()).add(text[1:])
    return sorted(rests.items())
