"""Guess what a text goes on with: what followed when its last tokens stood there before."""

from collections.abc import Sequence

PATTERNS = (4, 3, 2)
"""Tokens that must have come before in the same order; the longest are tried first."""


class PromptLookup:
    """Guesses for one text, prompt and answer alike; of several places the last one counts."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._num_known = 0

    def guess(self, ids: Sequence[int], count: int) -> list[int]:
        """Return up to ``count`` tokens to follow ``ids``, which only ever grow; none is usual.

        What is guessed may reach into the guess itself, so that a short loop goes on.
        """
        for at in range(self._num_known, len(ids)):
            for size in PATTERNS:
                if at >= size:
                    self._after[tuple(ids[at - size : at])] = at
        self._num_known = len(ids)
        for size in PATTERNS:
            place = self._after.get(tuple(ids[-size:]))
            if place is not None and len(ids) >= size:
                break
        else:
            return []
        known = len(ids)
        guess: list[int] = []
        for at in range(place, place + count):
            guess.append(ids[at] if at < known else guess[at - known])
        return guess
