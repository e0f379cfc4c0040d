"""Many strings as one text, cut up when somebody asks for them."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

import numpy as np

_NUL, _BLANK = 0, 32


class JoinedStrings(Sequence[str]):
    """A sequence of strings, none of which holds a NUL.

    Args:
        text: each string with a NUL behind it.
        count: how many they are.
    """

    def __init__(self, text: str, count: int) -> None:
        self._text = text
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._strings[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._strings)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, JoinedStrings):
            return self._text == other._text
        return self._strings == other

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    @cached_property
    def _strings(self) -> list[str]:
        strings = self._text.split("\0")
        strings.pop()
        return strings

    @property
    def longest_bytes(self) -> int:
        """Return the bytes of the longest string in UTF-8."""
        ends = np.flatnonzero(self._letters == _NUL)
        return int(np.diff(ends, prepend=-1).max(initial=1)) - 1

    @cached_property
    def _letters(self) -> np.ndarray:
        return np.frombuffer(self._text.encode(), np.uint8)

    def pairs(self) -> list[tuple[str, str]] | None:
        """Cut every string at its blank; None unless each has one, with text on either side."""
        letters = self._letters
        ends = np.flatnonzero((letters == _NUL) | (letters == _BLANK))
        if len(ends) != 2 * self._count:
            return None
        what = letters[ends].reshape(-1, 2)
        if (what != (_BLANK, _NUL)).any() or (np.diff(ends, prepend=-1) < 2).any():
            return None
        parts = iter(self._text.replace("\0", " ").split(" "))
        return list(zip(parts, parts, strict=False))
