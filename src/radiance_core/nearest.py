"""The nearest known name, for error texts."""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the known name most like ``word``, or None when none is as close as ``likeness``."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" or an empty text."""
    match = nearest(word, known)
    return "" if match is None else f"; did you mean {match!r}?"
