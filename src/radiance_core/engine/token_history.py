"""The tokens of one text as arrays, for rows that look back at them."""

from collections.abc import Sequence

import numpy as np

from radiance_core.engine.breakers import MOST_TOKENS, BreakerFinder


class TokenHistory:
    """Follows a text token by token, so that a step copies it instead of converting it.

    What is known of a token depends on it and those before it alone.

    Args:
        finder: tells where repetitions end, for DRY.
    """

    def __init__(self, finder: BreakerFinder | None) -> None:
        self._finder = finder
        self._ids = np.zeros(0, np.int32)
        self._ends = bytearray()
        self._num_known = 0

    def follow(self, tokens: Sequence[int], drafted: Sequence[int]) -> None:
        """Take in what was appended to ``tokens``; ``drafted`` comes after them, for now."""
        count, known = len(tokens), self._num_known
        total = count + len(drafted)
        if total > len(self._ids):
            self._grow(total)
        self._ids[known:count] = tokens[known:]
        self._ids[count:total] = drafted
        if self._finder is not None and total > known:
            low = max(0, known - MOST_TOKENS)
            ends = self._ends[low:known] + bytes(total - known)
            self._finder.mark(self._ids[low:total].tolist(), known - low, ends)
            self._ends[low:total] = ends
        self._num_known = count

    def _grow(self, total: int) -> None:
        room = max(2 * len(self._ids), total, 256)
        larger = np.zeros(room, np.int32)
        larger[: len(self._ids)] = self._ids
        self._ids = larger
        self._ends.extend(bytes(room - len(self._ends)))

    def copy(self, first: int, at: int, ids: np.ndarray, breakers: np.ndarray) -> None:
        """Write tokens [first, at), and in which of them a breaker ends."""
        ids[:] = self._ids[first:at]
        if self._finder is not None:
            breakers[:] = np.frombuffer(self._ends, np.uint8, at - first, first)

    def since_breaker(self, at: int) -> int:
        """Return how many tokens before place ``at`` lie after the last breaker's end."""
        return at - 1 - self._ends.rfind(1, 0, at)
