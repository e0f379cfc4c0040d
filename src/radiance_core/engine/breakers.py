"""Where in a sequence of tokens a text stands over which no repetition reaches."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from radiance_core.text.errors import TokenizerError

MOST_TOKENS = 20
"""Tokens that one occurrence may spread over."""


class BreakerFinder:
    """Finds breakers in what tokens spell, wherever the tokens were cut.

    Args:
        texts: the breakers.
        token_bytes: what a token spells; one that spells nothing breaks nothing.
    """

    def __init__(self, texts: Sequence[str], token_bytes: Callable[[int], bytes]) -> None:
        self._texts = [text.encode() for text in texts if text]
        self._token_bytes = token_bytes

    def mark(self, tokens: Sequence[int], start: int, ends: bytearray) -> None:
        """Mark the tokens in which an occurrence ends.

        Args:
            tokens: all tokens.
            start: those before were marked earlier.
            ends: set to 1 for the token that an occurrence ends in.
        """
        low = max(0, start - MOST_TOKENS)
        pieces = [self._spelled(token) for token in tokens[low:]]
        stops = list(accumulate(map(len, pieces)))
        text = b"".join(pieces)
        for breaker in self._texts:
            at = text.find(breaker)
            while at >= 0:
                first = low + bisect_right(stops, at)
                last = low + bisect_right(stops, at + len(breaker) - 1)
                if last >= start and last - first < MOST_TOKENS:
                    ends[last] = 1
                at = text.find(breaker, at + 1)

    def _spelled(self, token: int) -> bytes:
        try:
            return self._token_bytes(token)
        except TokenizerError:
            return b""
