"""The answers of ``/v1/messages``, whole and as named events."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from radiance_core.engine.interface import Delta
from radiance_core.server.errors import ApiError
from radiance_core.server.extension import Extension
from radiance_core.server.generation import Choice
from radiance_core.server.messages_errors import spell
from radiance_core.server.messages_output import ContentWriter
from radiance_core.server.named_events import PingedEvents
from radiance_core.server.taken_apart import AnswerParts
from radiance_core.server.usage import Usage


class OutputDetails(msgspec.Struct):
    """What the generated tokens were for."""

    thinking_tokens: int = 0


class MessageUsage(msgspec.Struct):
    """Token counts under this route's names; what was found computed is counted apart."""

    input_tokens: int
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    output_tokens_details: OutputDetails = msgspec.field(default_factory=OutputDetails)


class Message(msgspec.Struct):
    """A whole message, or what of it is known before it begins."""

    model: str
    usage: MessageUsage
    content: list[dict[str, Any]]
    id: str = msgspec.field(default_factory=lambda: f"msg_{secrets.token_hex(12)}")
    type: str = "message"
    role: str = "assistant"
    stop_reason: str | None = None
    stop_sequence: str | None = None
    radiance: Extension | UnsetType = UNSET


@dataclass(slots=True)
class MessageForm:
    """Spells the answer of one request.

    Args:
        message: the message, brought up to date as the answer comes.
        parts: takes the answer apart.
        stops: the stop sequences that the request named.
        request_id: told with an error.
    """

    message: Message
    parts: AnswerParts
    stops: Sequence[str]
    request_id: str
    _content: ContentWriter = field(default_factory=ContentWriter)

    @property
    def framing(self) -> type[PingedEvents]:
        """Events have names, and keep-alives too."""
        return PingedEvents

    def opening(self, choices: Sequence[Choice]) -> list[object]:  # noqa: ARG002 (there is one)
        """Return the event that shows the message before any content."""
        return [{"type": "message_start", "message": self.message}]

    def gain(self, choice: Choice, delta: Delta) -> list[object]:  # noqa: ARG002 (there is one)
        """Take in new text; return the events of the blocks that it makes."""
        told: list[object] = []
        for piece in self.parts.take(delta):
            told += self._content.take(piece)
        if delta.finish_reason is not None:
            told += self._content.close()
            self._end(delta)
        return told

    def closing(self, usage: Usage) -> list[object]:
        """Return the events with the reason for the end and the counts, and the end itself."""
        message = self.whole(usage)
        delta = {"stop_reason": message.stop_reason, "stop_sequence": message.stop_sequence}
        told = {"type": "message_delta", "delta": delta, "usage": message.usage}
        return [told, {"type": "message_stop"}]

    def failure(self, error: ApiError) -> list[object]:
        """Return the error."""
        return [spell(error, self.request_id)[1]]

    def whole(self, usage: Usage) -> Message:
        """Return the message with its content and counts."""
        found = usage.prompt_tokens_details.cached_tokens
        self.message.content = self._content.blocks
        self.message.usage = MessageUsage(
            usage.prompt_tokens - found,
            usage.completion_tokens,
            found,
            output_tokens_details=OutputDetails(self.parts.reasoning_tokens),
        )
        return self.message

    def _end(self, last: Delta) -> None:
        if last.finish_reason == "length":
            self.message.stop_reason = "max_tokens"
        elif self._content.is_calling:
            self.message.stop_reason = "tool_use"
        elif isinstance(last.stop_reason, str) and last.stop_reason in self.stops:
            self.message.stop_reason = "stop_sequence"
            self.message.stop_sequence = last.stop_reason
        else:
            self.message.stop_reason = "end_turn"
