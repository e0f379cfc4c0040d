"""What ``/v1/chat/completions`` answers, as typed values."""

import msgspec
from msgspec import UNSET, UnsetType

from radiance_core.server.chat_logprobs import ChatLogprobs
from radiance_core.server.extension import Extension
from radiance_core.server.usage import Usage


class FunctionPart(msgspec.Struct):
    """A call's function; of a streamed one only what is new."""

    name: str | UnsetType = UNSET
    arguments: str = ""


class Call(msgspec.Struct):
    """A whole call."""

    id: str
    function: FunctionPart
    type: str = "function"


class CallDelta(msgspec.Struct):
    """What a call gained; clients add texts up, so id, type and name come once."""

    index: int
    function: FunctionPart
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class AssistantMessage(msgspec.Struct):
    """The whole answer of one choice; thoughts go by both names that clients know."""

    role: str
    content: str | None
    refusal: None = None
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[Call] | UnsetType = UNSET


class MessageDelta(msgspec.Struct):
    """What a choice gained; an absent key changes nothing."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class WholeChoice(msgspec.Struct):
    """One finished choice."""

    index: int
    message: AssistantMessage
    finish_reason: str | None
    stop_reason: str | int | None
    logprobs: ChatLogprobs | None = None


class ChunkChoice(msgspec.Struct):
    """One choice in one event; ``finish_reason`` is null until its last."""

    index: int
    delta: MessageDelta
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType = UNSET
    logprobs: ChatLogprobs | None = None


class ChatBody(msgspec.Struct):
    """A whole answer or one event of a stream."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[WholeChoice] | list[ChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    radiance: Extension | UnsetType = UNSET
