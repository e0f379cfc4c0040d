"""Stop strings found in a stream of text, with no more held back than must be."""

from collections.abc import Sequence
from dataclasses import dataclass

from radiance_core.text.errors import StopError

MAX_STOPS = 16
MAX_STOP_CHARS = 256


@dataclass(frozen=True, slots=True)
class StopFeed:
    """What one delta came to.

    Args:
        text: text that is safe to send now.
        stop: the stop string that matched, or ``None``; after a match nothing more comes.
    """

    text: str
    stop: str | None = None


class StopMatcher:
    """Cut a stream at the earliest occurrence of any stop string.

    The texts joined equal the complete text cut where the earliest-beginning stop string
    begins; of stop strings that begin there together, the shortest is reported, for it was
    complete first. What is held back is exactly the longest end of the text that could still
    become a stop string.

    Args:
        stops: up to 16 strings of 1 to 256 characters; none means nothing ever stops.

    Raises:
        StopError: too many strings, or one empty or too long.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if len(stops) > MAX_STOPS:
            raise StopError(
                f"stop: expected at most {MAX_STOPS} strings, got {len(stops)}; send fewer."
            )
        for index, stop in enumerate(stops):
            if not 0 < len(stop) <= MAX_STOP_CHARS:
                raise StopError(
                    f"stop[{index}]: expected 1 to {MAX_STOP_CHARS} characters, got {len(stop)}; "
                    "leave it out or shorten it."
                )
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing can stop the text, so that it need not be fed."""
        return not self._stops

    def feed(self, delta: str) -> StopFeed:
        """Take a delta and return what can be sent of the text so far.

        A match is reported as soon as no other stop string can turn out to begin earlier.
        """
        if self.matched is not None or not delta:
            return StopFeed("", self.matched)
        text = self._held + delta
        open_at = self._open_at(text)
        begin, stop = self._earliest(text)
        if stop is not None and begin <= open_at:
            return self._match(text, begin, stop)
        self._held = text[open_at:]
        return StopFeed(text[:open_at])

    def flush(self) -> StopFeed:
        """Return what was held back, now that no more text comes."""
        text, self._held = self._held, ""
        begin, stop = self._earliest(text)
        if stop is not None:
            return self._match(text, begin, stop)
        return StopFeed(text, self.matched)

    def _match(self, text: str, begin: int, stop: str) -> StopFeed:
        self._held = ""
        self.matched = stop
        return StopFeed(text[:begin], stop)

    def _earliest(self, text: str) -> tuple[int, str | None]:
        """Return where the earliest complete stop string begins, and which it is."""
        found = [(text.find(stop), len(stop), stop) for stop in self._stops]
        begin, _, stop = min((hit for hit in found if hit[0] >= 0), default=(len(text), 0, None))
        return begin, stop

    def _open_at(self, text: str) -> int:
        """Return where the longest end of ``text`` that is a stop string's beginning begins."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:size]):
                    longest = size
                    break
        return len(text) - longest
