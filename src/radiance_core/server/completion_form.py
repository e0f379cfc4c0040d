"""The answers of ``/v1/completions``, whole and as events; the object's name is the same."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from radiance_core.engine.interface import Delta, TextTokenizer
from radiance_core.server.completion_logprobs import LogprobLists, TokenLists
from radiance_core.server.errors import ApiError
from radiance_core.server.extension import Extension
from radiance_core.server.generation import Choice
from radiance_core.server.sse import EventStream
from radiance_core.server.usage import Usage


class TextChoice(msgspec.Struct):
    """One choice, whole or in one event."""

    index: int
    text: str
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    logprobs: LogprobLists | None = None


class CompletionBody(msgspec.Struct):
    """A whole answer or one event of a stream."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: Usage | UnsetType | None = UNSET
    radiance: Extension | UnsetType = UNSET


@dataclass(slots=True)
class Progress:
    """How far one choice is: its text, its last delta, and its tokens if they were asked for."""

    tokens: TokenLists | None
    texts: list[str] = field(default_factory=list)
    num_chars: int = 0
    last: Delta | None = None
    told: LogprobLists | None = None

    def gain(self, delta: Delta) -> None:
        """Take in a delta."""
        self.texts.append(delta.text)
        self.num_chars += len(delta.text)
        if delta.finish_reason is not None:
            self.last = delta
        if self.tokens is not None:
            self.tokens.add(delta)

    def lists(self) -> LogprobLists | None:
        """Return the tokens not told yet that begin in the text so far.

        What ended a text that stopped (an end token, a stop string) is not part of it; after any
        other end all tokens are told.
        """
        if self.tokens is None:
            return None
        is_cut = self.last is not None and self.last.finish_reason != "stop"
        lists = self.tokens.take(None if is_cut else self.num_chars)
        if lists is not None:
            self.told = self.told or LogprobLists([], [], [], [])
            self.told.extend(lists)
        return lists


@dataclass(slots=True)
class CompletionForm:
    """Spells the answers of one completion request; id, time and model stay the same throughout.

    Args:
        usage: null in every event when the counts are asked for, else absent.
        said: told once.
        tokenizer: spells tokens when log probabilities are asked for, else ``None``.
        echo: whether a choice's text begins with its prompt.
    """

    id: str
    created: int
    model: str
    fingerprint: str
    usage: UnsetType | None
    said: Extension | UnsetType
    tokenizer: TextTokenizer | None = None
    echo: bool = False
    _progress: dict[int, Progress] = field(default_factory=dict)

    @property
    def framing(self) -> type[EventStream]:
        """Events have no names."""
        return EventStream

    def opening(self, choices: Sequence[Choice]) -> list[CompletionBody]:
        """Return nothing but what is to be said about the request: text has no role."""
        if self.said is UNSET:
            return []
        body = self._body([TextChoice(choices[0].index, "")], self.usage)
        body.radiance = self.said
        return [body]

    def gain(self, choice: Choice, delta: Delta) -> list[CompletionBody]:
        """Return the event for new text, and one with the finish reason and no text."""
        progress = self._of(choice)
        progress.gain(delta)
        lists = progress.lists()
        made = []
        if delta.text or lists is not None:
            made.append(TextChoice(choice.index, delta.text, logprobs=lists))
        if delta.finish_reason is not None:
            why = UNSET if delta.stop_reason is None else delta.stop_reason
            made.append(TextChoice(choice.index, "", delta.finish_reason, why))
        return [self._body([item], self.usage) for item in made]

    def closing(self, usage: Usage) -> list[CompletionBody]:
        """Return the event with the token counts and no choice, if it was asked for."""
        return [] if self.usage is UNSET else [self._body([], usage)]

    def failure(self, error: ApiError) -> list[object]:
        """Return the error object."""
        return [error.body()]

    def whole(self, usage: Usage) -> CompletionBody:
        """Return the answer in one piece."""
        made = [self._whole(index, progress) for index, progress in sorted(self._progress.items())]
        body = self._body(made, usage)
        body.radiance = self.said
        return body

    def _whole(self, index: int, progress: Progress) -> TextChoice:
        last = progress.last
        assert last is not None, "every choice has ended"
        text = "".join(progress.texts)
        return TextChoice(index, text, last.finish_reason, last.stop_reason, progress.told)

    def _of(self, choice: Choice) -> Progress:
        if choice.index not in self._progress:
            tokens = None
            if self.tokenizer is not None:
                echo = choice.prefix if self.echo else None
                tokens = TokenLists(self.tokenizer, choice.request.prompt_ids, echo)
            self._progress[choice.index] = Progress(tokens)
        return self._progress[choice.index]

    def _body(self, choices: list[TextChoice], usage: Usage | UnsetType | None) -> CompletionBody:
        kind = "text_completion"
        return CompletionBody(
            self.id, kind, self.created, self.model, self.fingerprint, choices, usage
        )
