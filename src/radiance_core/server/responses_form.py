"""The answers of ``/v1/responses``, whole and as typed events."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from radiance_core.chat_format.events import Content, Event
from radiance_core.engine.interface import Delta
from radiance_core.engine.sampling import SamplingParams
from radiance_core.server.chat_logprobs import ToldToken
from radiance_core.server.errors import ApiError
from radiance_core.server.extension import Extension
from radiance_core.server.generation import Choice
from radiance_core.server.named_events import NamedEvents
from radiance_core.server.responses_items import OutputItem
from radiance_core.server.responses_logprobs import MessageTokens
from radiance_core.server.responses_output import OutputWriter
from radiance_core.server.responses_request import ResponsesRequest
from radiance_core.server.taken_apart import AnswerParts
from radiance_core.server.usage import Usage


class InputDetails(msgspec.Struct):
    """Where the input's tokens came from; nothing is ever billed for keeping them."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    """What the generated tokens were for."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    """Token counts under this route's names."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Response(msgspec.Struct):
    """A whole response, as far as it has come; nothing of it is stored."""

    id: str
    created_at: int
    model: str
    status: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    tool_choice: Any
    tools: list[dict[str, Any]]
    text: dict[str, Any]
    reasoning: dict[str, Any]
    metadata: dict[str, str]
    temperature: float
    top_p: float
    instructions: str | None = None
    max_output_tokens: int | None = None
    completed_at: int | None = None
    error: dict[str, str] | None = None
    incomplete_details: dict[str, str] | None = None
    usage: ResponseUsage | None = None
    user: str | None = None
    object: str = "response"
    store: bool = False
    background: bool = False
    truncation: str = "disabled"
    top_logprobs: int = 0
    previous_response_id: None = None
    radiance: Extension | UnsetType = UNSET


def blank(
    request: ResponsesRequest, model: str, params: SamplingParams, said: Extension | UnsetType
) -> Response:
    """Return the response to a request before anything of it is made."""
    text = request.text
    reasoning = request.reasoning
    return Response(
        id=f"resp_{secrets.token_hex(24)}",
        created_at=int(time.time()),
        model=model,
        status="in_progress",
        output=[],
        parallel_tool_calls=request.parallel_tool_calls is not False,
        tool_choice=request.tool_choice or "auto",
        tools=request.tools or [],
        text={"format": (text and text.format) or {"type": "text"}},
        reasoning={"effort": reasoning and reasoning.effort, "summary": None},
        metadata=request.metadata or {},
        temperature=params.temperature,
        top_p=params.top_p,
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        top_logprobs=request.top_logprobs or 0,
        radiance=said,
    )


@dataclass(slots=True)
class ResponseForm:
    """Spells the answer of one request.

    Args:
        response: the response, brought up to date as the answer comes.
        parts: takes the answer apart.
        tokens: finds those of a message, when log probabilities are asked for.
    """

    response: Response
    parts: AnswerParts
    tokens: MessageTokens | None = None
    _output: OutputWriter = field(default_factory=OutputWriter)

    @property
    def framing(self) -> type[NamedEvents]:
        """Events have names."""
        return NamedEvents

    def opening(self, choices: Sequence[Choice]) -> list[object]:  # noqa: ARG002 (there is one)
        """Return the events that show the response before any output."""
        return [self._lifecycle("response.created"), self._lifecycle("response.in_progress")]

    def gain(self, choice: Choice, delta: Delta) -> list[object]:  # noqa: ARG002 (there is one)
        """Take in new text; return the events of the items that it makes."""
        told: list[object] = []
        if self.tokens is not None:
            self.tokens.add(delta)
        for piece in self.parts.take(delta):
            told += self._output.take(piece, self._tokens_of(piece))
        if delta.finish_reason is not None:
            is_cut = delta.finish_reason == "length"
            told += self._output.finish(is_cut=is_cut)
            self.response.status = "incomplete" if is_cut else "completed"
            if is_cut:
                self.response.incomplete_details = {"reason": "max_output_tokens"}
        return told

    def closing(self, usage: Usage) -> list[object]:
        """Return the event with the whole response."""
        response = self.whole(usage)
        return [self._lifecycle(f"response.{response.status}")]

    def failure(self, error: ApiError) -> list[object]:
        """End what is open; return the failed response and the error, on which clients raise."""
        said = error.body()["error"]
        ended = self._output.close(is_cut=True)
        self.response.status = "failed"
        self.response.output = self._output.items
        self.response.error = {"code": "server_error", "message": said["message"]}
        facts = {key: said[key] for key in ("message", "param", "code")}
        return [
            *ended,
            self._lifecycle("response.failed"),
            self._output.event("error", **facts, error=said),
        ]

    def whole(self, usage: Usage) -> Response:
        """Return the response with its output and counts."""
        self.response.output = self._output.items
        self.response.completed_at = int(time.time())
        self.response.usage = ResponseUsage(
            usage.prompt_tokens,
            InputDetails(usage.prompt_tokens_details.cached_tokens),
            usage.completion_tokens,
            OutputDetails(self.parts.reasoning_tokens),
            usage.total_tokens,
        )
        return self.response

    def _tokens_of(self, piece: Event) -> Sequence[ToldToken]:
        if self.tokens is None or not isinstance(piece, Content):
            return ()
        return self.tokens.take(piece.text, after_thoughts=bool(self.parts.reasoning))

    def _lifecycle(self, kind: str) -> object:
        return self._output.event(kind, response=self.response)
