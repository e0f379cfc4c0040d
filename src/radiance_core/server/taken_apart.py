"""One choice's answer while it is made: its parts, its calls, and what its tokens were for."""

from dataclasses import dataclass, field

from radiance_core.chat_format.events import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Event,
    Reasoning,
)
from radiance_core.chat_format.messages import new_call_id
from radiance_core.engine.interface import Delta, TextTokenizer
from radiance_core.server.turn import Turn


@dataclass(slots=True)
class AnswerCall:
    """A call of an answer."""

    id: str
    name: str
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """The arguments that have come."""
        return "".join(self.pieces)


class AnswerParts:
    """Takes one choice's deltas in.

    Args:
        turn: what was asked.
        tokenizer: of the model; counts the tokens of thoughts.
        is_read: the choice's request has a reader, which takes it apart.
    """

    def __init__(self, turn: Turn, tokenizer: TextTokenizer, *, is_read: bool = False) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self.calls: list[AnswerCall] = []
        self.last: Delta | None = None
        self._turn = turn
        self._tokenizer = tokenizer
        self._parser = turn.parser()
        self._is_read = is_read
        self._num_thought = self._num_whole = 0
        self._thinks = turn.form.reasoning is not None
        self._tail = b""

    def take(self, delta: Delta) -> list[Event]:
        """Take in what the choice gained and return what that makes certain."""
        events = self._events(delta)
        if self._thinks:
            self._count(delta)
        if delta.finish_reason is not None:
            self.last = delta
        for event in events:
            self._keep(event)
        return events

    @property
    def content(self) -> str:
        """The text that has come."""
        return "".join(self._content)

    @property
    def reasoning(self) -> str:
        """The thoughts that have come."""
        return "".join(self._reasoning)

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of the thoughts, the mark that closes them included."""
        return self._num_thought if self._reasoning else 0

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended, as clients of OpenAI read it; None while it goes on."""
        if self.last is None:
            return None
        is_whole = 0 < len(self.calls) == self._num_whole
        if self.last.finish_reason == "stop" and is_whole and self._turn.choice.mode != "named":
            return "tool_calls"
        return self.last.finish_reason

    def _events(self, delta: Delta) -> list[Event]:
        """Return what the text is made of; with stop strings the engine has taken it apart."""
        if self._is_read:
            return list(delta.events)
        events = self._parser.feed(delta.text)
        if delta.finish_reason is not None:
            # Only where all is content has a stop string ended the text, at no mark then.
            is_cut = delta.finish_reason == "length" or delta.stop_reason is not None
            events += self._parser.finish(is_cut)
        return events

    def _keep(self, event: Event) -> None:
        match event:
            case Content(text):
                self._content.append(text)
            case Reasoning(text):
                self._reasoning.append(text)
            case CallBegin(_, name):
                self.calls.append(AnswerCall(new_call_id(self._turn.form), name))
            case CallArguments(index, text):
                self.calls[index].pieces.append(text)
            case CallEnd():
                self._num_whole += 1

    def _count(self, delta: Delta) -> None:
        """Count tokens until the closing mark has come, whatever deltas they came in."""
        form = self._turn.form.reasoning
        assert form is not None, "only asked of a model that thinks"
        closing = form.closing.encode()
        for id_ in delta.token_ids:
            self._num_thought += 1
            self._tail = (self._tail + self._tokenizer.token_bytes(id_))[-len(closing) - 256 :]
            if closing in self._tail:
                self._thinks = False
                return
