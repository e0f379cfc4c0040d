"""Spells the answers of one chat request, whole and in events."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from radiance_core.chat_format.events import CallArguments, CallBegin, Content, Event, Reasoning
from radiance_core.engine.interface import Delta, TextTokenizer
from radiance_core.server.chat_body import (
    AssistantMessage,
    Call,
    CallDelta,
    ChatBody,
    ChunkChoice,
    FunctionPart,
    MessageDelta,
    WholeChoice,
)
from radiance_core.server.chat_logprobs import ChatLogprobs, ToldToken, told_tokens
from radiance_core.server.errors import ApiError
from radiance_core.server.extension import Extension
from radiance_core.server.generation import Choice
from radiance_core.server.sse import EventStream
from radiance_core.server.taken_apart import AnswerParts
from radiance_core.server.turn import Turn
from radiance_core.server.usage import Usage


@dataclass(slots=True)
class ChatForm:
    """Id, time and model stay the same throughout.

    Args:
        turn: what was asked.
        tokenizer: of the model.
        shows_reasoning: thoughts are told.
        shows_logprobs: log probabilities are told.
    """

    id: str
    created: int
    model: str
    fingerprint: str
    usage: UnsetType | None
    said: Extension | UnsetType
    turn: Turn
    tokenizer: TextTokenizer
    shows_reasoning: bool = True
    shows_logprobs: bool = False
    answers: dict[int, AnswerParts] = field(default_factory=dict)
    _told: dict[int, list[ToldToken]] = field(default_factory=dict)
    _untold: dict[int, list[ToldToken]] = field(default_factory=dict)

    @property
    def framing(self) -> type[EventStream]:
        """Events have no names."""
        return EventStream

    def opening(self, choices: Sequence[Choice]) -> list[ChatBody]:
        """Return the events that name the role; the only ones that do, since clients add up."""
        bodies = [self._chunk(ChunkChoice(c.index, MessageDelta("assistant", ""))) for c in choices]
        bodies[0].radiance = self.said
        return bodies

    def gain(self, choice: Choice, delta: Delta) -> list[ChatBody]:
        """Return the events for what is new and, with an empty delta, for the finish reason."""
        index = choice.index
        parts = self.answers.get(index)
        if parts is None:
            is_read = choice.request.reader is not None
            parts = AnswerParts(self.turn, self.tokenizer, is_read=is_read)
            self.answers[index] = parts
        if self.shows_logprobs:
            self._untold.setdefault(index, []).extend(told_tokens(delta, self.tokenizer))
        events = []
        for event in parts.take(delta):
            if (told := self._delta(event, parts)) is not None:
                events.append(self._chunk(ChunkChoice(index, told, logprobs=self._tokens(index))))
        if parts.last is not None:
            why = UNSET if parts.last.stop_reason is None else parts.last.stop_reason
            ended = ChunkChoice(index, MessageDelta(), parts.finish_reason, why)
            ended.logprobs = self._tokens(index)
            events.append(self._chunk(ended))
        return events

    def closing(self, usage: Usage) -> list[ChatBody]:
        """Return the event with the token counts and no choice, if it was asked for."""
        if self.usage is UNSET:
            return []
        return [self._body("chat.completion.chunk", [], self._counted(usage))]

    def failure(self, error: ApiError) -> list[object]:
        """Return the error object."""
        return [error.body()]

    def whole(self, usage: Usage) -> ChatBody:
        """Return the answer in one piece."""
        made = [
            WholeChoice(
                index,
                self._message(parts),
                parts.finish_reason,
                None if parts.last is None else parts.last.stop_reason,
                ChatLogprobs(self._told.get(index, [])) if self.shows_logprobs else None,
            )
            for index, parts in sorted(self.answers.items())
        ]
        body = self._body("chat.completion", made, self._counted(usage))
        body.radiance = self.said
        return body

    def _delta(self, event: Event, parts: AnswerParts) -> MessageDelta | None:
        """Return what an event adds to the message, None for nothing."""
        match event:
            case Content(text):
                return MessageDelta(content=text)
            case Reasoning(text):
                shown = self.shows_reasoning
                return MessageDelta(reasoning=text, reasoning_content=text) if shown else None
            case CallBegin(index, name):
                id_ = parts.calls[index].id
                begun = CallDelta(index, FunctionPart(name, ""), id_, "function")
                return MessageDelta(tool_calls=[begun])
            case CallArguments(index, text):
                more = CallDelta(index, FunctionPart(arguments=text))
                return MessageDelta(tool_calls=[more])
        return None

    def _message(self, parts: AnswerParts) -> AssistantMessage:
        calls = [Call(call.id, FunctionPart(call.name, call.arguments)) for call in parts.calls]
        message = AssistantMessage("assistant", parts.content or (None if calls else ""))
        if self.shows_reasoning and (thoughts := parts.reasoning):
            message.reasoning = message.reasoning_content = thoughts
        if calls:
            message.tool_calls = calls
        return message

    def _tokens(self, index: int) -> ChatLogprobs | None:
        """Return the tokens that were not told yet, None for none."""
        untold = self._untold.pop(index, [])
        if not untold:
            return None
        self._told.setdefault(index, []).extend(untold)
        return ChatLogprobs(untold)

    def _counted(self, usage: Usage) -> Usage:
        thought = sum(parts.reasoning_tokens for parts in self.answers.values())
        usage.completion_tokens_details.reasoning_tokens = thought
        return usage

    def _chunk(self, choice: ChunkChoice) -> ChatBody:
        return self._body("chat.completion.chunk", [choice], self.usage)

    def _body(
        self,
        kind: str,
        choices: list[WholeChoice] | list[ChunkChoice],
        usage: Usage | UnsetType | None,
    ) -> ChatBody:
        return ChatBody(
            self.id, kind, self.created, self.model, self.fingerprint, choices, usage
        )  # fmt: skip
