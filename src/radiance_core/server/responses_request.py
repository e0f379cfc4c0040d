"""The body of ``/v1/responses`` as typed values, made into that of a conversation."""

from collections.abc import Mapping
from typing import Any

import msgspec

from radiance_core.server import fields
from radiance_core.server.errors import invalid, quote, unsupported
from radiance_core.server.fields import Unserved
from radiance_core.server.responses_input import InputReader
from radiance_core.server.unknown_keys import UnknownKeys, kind_of, only

LOGPROBS = "message.output_text.logprobs"
_STORED = "nothing is stored here; send the whole conversation as input"
UNSERVED: dict[str, Unserved] = {
    **fields.UNSERVED,
    "previous_response_id": Unserved(_STORED),
    "conversation": Unserved(_STORED),
    "prompt": Unserved("prompts are not stored here; send instructions and input"),
    "background": Unserved("answers are not stored here, to be fetched later", (False,)),
    "context_management": Unserved("conversations are not shortened here", ([],)),
    "moderation": Unserved("nothing is moderated here"),
    "messages": Unserved("it is called input here", ([],)),
    "response_format": Unserved("it is text.format here"),
    "reasoning_effort": Unserved("it is reasoning.effort here"),
    "max_tokens": Unserved("it is called max_output_tokens here"),
    "max_completion_tokens": Unserved("it is called max_output_tokens here"),
    "n": Unserved("a response is one answer", (1,)),
}
# What could not change an answer of this server.
INERT = fields.INERT | {
    "store", "max_tool_calls", "prompt_cache_options", "prompt_cache_retention",
}  # fmt: skip
# Asked of the answer as on /v1/chat/completions, where the official clients have no name for it.
PASSED = fields.CHAT - {
    "max_tokens", "max_completion_tokens", "messages", "n", "stream_options", "reasoning_effort",
    "response_format", "tools", "tool_choice", "logprobs", "top_logprobs",
    "add_generation_prompt", "continue_final_message", "include_reasoning",
}  # fmt: skip
OWN = frozenset({
    "input", "instructions", "max_output_tokens", "tools", "tool_choice", "text", "reasoning",
    "include", "top_logprobs", "truncation", "metadata", "stream_options",
})  # fmt: skip
SERVED = OWN | PASSED
_TOOL = only({"name", "description", "parameters", "strict"})
_FORMAT = only({"name", "schema", "strict", "description"})
_TEXT = frozenset({"format", "verbosity"})
_REASONING = frozenset({"effort", "summary", "generate_summary"})
_CHOICE = only({"name", "mode", "tools"})
_ALLOWED = only({"name"})


class TextConfig(msgspec.Struct, kw_only=True):
    """The form that an answer's text must have."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ReasoningConfig(msgspec.Struct, kw_only=True):
    """How much to think; a summary is never made, since all thoughts are told."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponsesRequest(msgspec.Struct, kw_only=True):
    """The fields that only this route has; ``input`` is what is answered."""

    model: str | None = None
    input: str | list[Any]
    instructions: str | None = None
    max_output_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    truncation: str | None = None
    metadata: dict[str, str] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    temperature: float | None = None
    top_p: float | None = None


def conversation_of(
    request: ResponsesRequest, known: Mapping[str, Any], unknown: UnknownKeys
) -> dict[str, Any]:
    """Return the fields of a chat request that asks the same.

    Args:
        request: the body.
        known: its fields as sent.
        unknown: gathers keys that nothing reads.

    Raises: ``ApiError`` 400 naming what is out of range, malformed or not served.
    """
    fields.check_range("max_tokens", request.max_output_tokens, "max_output_tokens")
    if request.truncation not in {None, "disabled"}:
        raise unsupported("truncation", "conversations are not shortened here; say disabled")
    if request.stream_options is not None:
        unknown.note(request.stream_options, frozenset({"include_obfuscation"}), "stream_options")
    asked = {name: value for name, value in known.items() if name in PASSED}
    asked["messages"] = InputReader(unknown).read(request.input, request.instructions)
    found = {
        "max_completion_tokens": request.max_output_tokens,
        "reasoning_effort": _effort(known.get("reasoning"), request.reasoning, unknown),
        "response_format": _format(known.get("text"), request.text, unknown),
        "tools": [
            _tool(tool, f"tools[{n}]", unknown) for n, tool in enumerate(request.tools or ())
        ],
        "tool_choice": _choice(request.tool_choice, unknown),
    }
    asked.update((name, value) for name, value in found.items() if value not in (None, []))
    return asked | _logprobs(request, unknown)


def _logprobs(request: ResponsesRequest, unknown: UnknownKeys) -> dict[str, Any]:
    """Return the chat fields that ask for log probabilities; name what need not be included.

    Thoughts come as they are, not encrypted.
    """
    wanted = False
    for place, name in enumerate(request.include or ()):
        path = f"include[{place}]"
        if name == LOGPROBS:
            wanted = True
        elif name == "reasoning.encrypted_content":
            unknown.paths.append(path)
        else:
            raise unsupported(path, f"{quote(name)} is nothing that this server could include")
    if request.top_logprobs and not wanted:
        raise invalid(
            f"top_logprobs: expected only with include {LOGPROBS}, got it without; add that.",
            "top_logprobs",
        )
    return {"logprobs": True, "top_logprobs": request.top_logprobs or 0} if wanted else {}


def _effort(
    sent: Mapping[str, Any] | None, reasoning: ReasoningConfig | None, unknown: UnknownKeys
) -> str | None:
    unknown.note(sent or {}, _REASONING, "reasoning")
    return None if reasoning is None else reasoning.effort


def _format(
    sent: Mapping[str, Any] | None, text: TextConfig | None, unknown: UnknownKeys
) -> dict[str, Any] | None:
    unknown.note(sent or {}, _TEXT, "text")
    if text is None:
        return None
    if text.verbosity not in {None, "medium"}:
        raise unsupported("text.verbosity", "no model here knows a verbosity")
    if text.format is None:
        return None
    unknown.note(text.format, _FORMAT, "text.format")
    kind = kind_of(text.format, "text.format")
    if kind in {"text", "json_object"}:
        return {"type": kind}
    if kind != "json_schema":
        raise invalid(
            f"text.format.type: expected text, json_object or json_schema, got {quote(kind)}.",
            "text.format.type",
        )
    schema = {key: value for key, value in text.format.items()
              if key in {"name", "schema", "strict", "description"}}  # fmt: skip
    if not isinstance(schema.get("schema"), dict):
        raise invalid("text.format.schema: expected a JSON schema.", "text.format.schema")
    return {"type": kind, "json_schema": schema}


def _tool(tool: Mapping[str, Any], path: str, unknown: UnknownKeys) -> dict[str, Any]:
    kind = kind_of(tool, path)
    if kind != "function":
        raise unsupported(
            f"{path}.type", f"only functions can be called here, and {quote(kind)} is none"
        )  # fmt: skip
    unknown.note(tool, _TOOL, path)
    kept = {key: value for key, value in tool.items()
            if key in _TOOL and key != "type" and value is not None}  # fmt: skip
    return {"type": "function", "function": kept}


def _choice(
    choice: str | Mapping[str, Any] | None, unknown: UnknownKeys
) -> str | dict[str, Any] | None:
    """Return the choice in the form of a chat request, which nests what this one has flat."""
    if choice is None or isinstance(choice, str):
        return choice
    unknown.note(choice, _CHOICE, "tool_choice")
    kind = kind_of(choice, "tool_choice")
    if kind == "function":
        return {"type": kind, "function": {"name": choice.get("name")}}
    if kind == "allowed_tools" and isinstance(choice.get("tools"), list):
        tools = [
            _allowed(tool, f"tool_choice.tools[{n}]", unknown)
            for n, tool in enumerate(choice["tools"])
        ]
        return {"type": kind, kind: {"mode": choice.get("mode"), "tools": tools}}
    raise unsupported("tool_choice", f"a choice of type {quote(kind)} is not served")


def _allowed(tool: object, path: str, unknown: UnknownKeys) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise unsupported(path, "only functions can be called here")
    unknown.note(tool, _ALLOWED, path)
    return {"type": "function", "function": {"name": tool.get("name")}}
