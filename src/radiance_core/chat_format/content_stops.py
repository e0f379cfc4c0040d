"""Ends an answer at stop strings in its content, and never within a call or thoughts.

text ── AnswerParser ──┬─ thoughts, calls ─────────────┬── events
                       └─ content ── StopMatcher ──────┘
"""

from collections.abc import Collection, Iterable, Sequence

from radiance_core.chat_format.events import Content, Event
from radiance_core.chat_format.parser import AnswerParser, joined
from radiance_core.text.stop import StopMatcher


class ContentStops:
    """Reads one answer while it is generated.

    A call or thoughts end a stretch of content, so that no stop string reaches across them and
    events keep their order. Of content no more is held back than could become a stop string.

    Args:
        parser: takes the answer apart.
        stops: strings that end it where they begin in its content.
        token_ids: stop tokens that end it in its content only.

    Raises:
        StopError: as ``StopMatcher`` does.
    """

    def __init__(
        self, parser: AnswerParser, stops: Sequence[str], token_ids: Collection[int] = ()
    ) -> None:
        self._parser = parser
        self._matcher = StopMatcher(stops)
        self._token_ids = frozenset(token_ids)
        self._told: list[Event] = []

    def passes(self, token_id: int) -> bool:
        """Say whether a stop token ends nothing here, for it would cut a call or thoughts."""
        return token_id in self._token_ids and not self._parser.is_content

    def feed(self, text: str, *, may_stop: bool = True) -> str | None:
        """Take new text; return the stop string that it completes.

        Args:
            text: what came.
            may_stop: content that is certain now may begin or complete a stop string.
        """
        return self._take(self._parser.feed(text), may_stop=may_stop)

    def finish(self, *, cut: bool, may_stop: bool = True) -> str | None:
        """Take the end in; return the stop string that the text before it completes.

        Args:
            cut: the model itself has not ended here, so that a call may be unfinished.
            may_stop: as in ``feed``.
        """
        stop = self._take(self._parser.finish(cut), may_stop=may_stop)
        return stop or self._end_stretch()

    def take(self) -> tuple[Event, ...]:
        """Return the events since the last time."""
        told, self._told = tuple(joined(self._told)), []
        return told

    def _take(self, events: Iterable[Event], *, may_stop: bool) -> str | None:
        for event in events:
            if not isinstance(event, Content):
                if (stop := self._end_stretch()) is not None:
                    return stop
                self._told.append(event)
            elif not may_stop:
                self._told.append(event)
            else:
                fed = self._matcher.feed(event.text)
                self._say(fed.text)
                if fed.stop is not None:
                    return fed.stop
        return self._matcher.matched

    def _end_stretch(self) -> str | None:
        """Decide what is held back, as nothing more of this stretch comes."""
        if self._matcher.matched is None:
            self._say(self._matcher.flush().text)
        return self._matcher.matched

    def _say(self, text: str) -> None:
        if text:
            self._told.append(Content(text))
