"""The body of ``/v1/messages`` as typed values, made into that of a conversation."""

from collections.abc import Mapping
from typing import Any

import msgspec

from radiance_core.server import fields
from radiance_core.server.errors import invalid, quote, unsupported
from radiance_core.server.fields import Range, Unserved
from radiance_core.server.messages_input import BlockReader
from radiance_core.server.unknown_keys import UnknownKeys, kind_of, only

UNSERVED: dict[str, Unserved] = {
    **fields.UNSERVED,
    "container": Unserved("no code is run here"),
    "mcp_servers": Unserved("the server reaches no network", ([],)),
    "max_completion_tokens": Unserved("it is called max_tokens here"),
    "stop": Unserved("it is called stop_sequences here", ([],)),
    "reasoning_effort": Unserved("it is output_config.effort here"),
    "response_format": Unserved("it is output_config.format here"),
    "n": Unserved("a message is one answer", (1,)),
}
# What could not change an answer of this server.
INERT = fields.INERT | {"cache_control", "inference_geo", "speed", "user_profile_id"}
# Asked of the answer as on /v1/chat/completions, where Anthropic's clients have no name for it.
PASSED = fields.CHAT - {
    "max_completion_tokens", "messages", "n", "stop", "stream_options", "reasoning_effort",
    "response_format", "tools", "tool_choice", "parallel_tool_calls", "logprobs", "top_logprobs",
    "add_generation_prompt", "continue_final_message", "include_reasoning", "enable_thinking",
}  # fmt: skip
SERVED = PASSED | {
    "messages", "system", "tools", "tool_choice", "thinking", "output_config", "stop_sequences",
}  # fmt: skip
TEMPERATURE = Range(0, 1)
_LEAST_BUDGET = 1024
_TOOL = only({
    "name", "description", "input_schema", "strict", "cache_control", "eager_input_streaming",
})  # fmt: skip
_CHOICE = only({"name", "disable_parallel_tool_use"})
_THINKING = only({"budget_tokens", "display"})
_OUTPUT = frozenset({"effort", "format"})
_FORMAT = only({"schema"})


class MessagesRequest(msgspec.Struct, kw_only=True):
    """The fields that only this route has; ``max_tokens`` must be there."""

    model: str | None = None
    messages: list[dict[str, Any]]
    max_tokens: int
    system: str | list[Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    stream: bool | None = None


def conversation_of(
    request: MessagesRequest, known: Mapping[str, Any], unknown: UnknownKeys
) -> dict[str, Any]:
    """Return the fields of a chat request that asks the same.

    Args:
        request: the body.
        known: its fields as sent.
        unknown: gathers keys that nothing reads.

    Raises: ``ApiError`` 400 naming what is out of range, malformed or not served.
    """
    if request.max_tokens < 1:
        raise invalid(f"max_tokens: expected 1 or more, got {request.max_tokens}.", "max_tokens")
    if request.temperature is not None and not TEMPERATURE.holds(request.temperature):
        raise invalid(
            f"temperature: expected a number {TEMPERATURE}, got {request.temperature}.",
            "temperature",
        )
    asked = {name: value for name, value in known.items() if name in PASSED}
    asked["messages"] = BlockReader(unknown).read(request.messages, request.system)
    asked |= _tools(request, unknown) | _output(request.output_config, unknown)
    asked |= _thinking(request, unknown)
    if request.stop_sequences:
        asked["stop"] = request.stop_sequences
    if asked["messages"][-1]["role"] == "assistant":
        _check_prefill(asked["messages"][-1])
        asked |= {"continue_final_message": True, "add_generation_prompt": False}
    return asked


def _check_prefill(message: Mapping[str, Any]) -> None:
    if message.get("tool_calls"):
        raise invalid(
            "messages: expected a tool_result for every tool_use, got none for the last.",
            "messages",
        )


def _tools(request: MessagesRequest, unknown: UnknownKeys) -> dict[str, Any]:
    tools = [_tool(tool, f"tools[{n}]", unknown) for n, tool in enumerate(request.tools or ())]
    asked: dict[str, Any] = {"tools": tools} if tools else {}
    choice = request.tool_choice
    if choice is None:
        return asked
    unknown.note(choice, _CHOICE, "tool_choice")
    kind = kind_of(choice, "tool_choice")
    words = {"auto": "auto", "any": "required", "none": "none"}
    if kind == "tool":
        asked["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif kind in words:
        asked["tool_choice"] = words[kind]
    else:
        raise invalid(
            f"tool_choice.type: expected auto, any, tool or none, got {quote(kind)}.",
            "tool_choice.type",
        )
    if choice.get("disable_parallel_tool_use"):
        asked["parallel_tool_calls"] = False
    return asked


def _tool(tool: Mapping[str, Any], path: str, unknown: UnknownKeys) -> dict[str, Any]:
    kind = kind_of(tool, path)
    if kind not in {None, "custom"}:
        raise unsupported(f"{path}.type", f"tools that a server runs ({quote(kind)}) are not here")
    unknown.note(tool, _TOOL, path)
    kept = {key: tool[key] for key in ("name", "description", "strict")
            if tool.get(key) is not None}  # fmt: skip
    if not isinstance(tool.get("input_schema"), dict):
        raise invalid(f"{path}.input_schema: expected a JSON schema.", f"{path}.input_schema")
    return {"type": "function", "function": {**kept, "parameters": tool["input_schema"]}}


def _output(config: Mapping[str, Any] | None, unknown: UnknownKeys) -> dict[str, Any]:
    """Return the chat fields for how much to think and what the text must be."""
    if config is None:
        return {}
    unknown.note(config, _OUTPUT, "output_config")
    asked: dict[str, Any] = {}
    if config.get("effort") is not None:
        asked["reasoning_effort"] = config["effort"]
    form = config.get("format")
    if form is None:
        return asked
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        path = "output_config.format"
        raise invalid(f"{path}: expected one of type json_schema, got {quote(form)}.", path)
    unknown.note(form, _FORMAT, "output_config.format")
    schema = {"name": "answer", "schema": form.get("schema"), "strict": True}
    return asked | {"response_format": {"type": "json_schema", "json_schema": schema}}


def _thinking(request: MessagesRequest, unknown: UnknownKeys) -> dict[str, Any]:
    """Return the chat field for whether to think; how long is the model's own affair."""
    thinking = request.thinking
    if thinking is None:
        return {}
    unknown.note(thinking, _THINKING, "thinking")
    kind = kind_of(thinking, "thinking")
    if kind == "disabled":
        return {"enable_thinking": False}
    if kind == "adaptive":
        return {}  # to think as much as it sees fit is what a model does when nobody says more
    if kind != "enabled":
        raise invalid(
            f"thinking.type: expected enabled, disabled or adaptive, got {quote(kind)}.",
            "thinking.type",
        )
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or not _LEAST_BUDGET <= budget < request.max_tokens:
        raise invalid(
            f"thinking.budget_tokens: expected {_LEAST_BUDGET} or more and less than max_tokens "
            f"({request.max_tokens}), got {quote(budget)}.",
            "thinking.budget_tokens",
        )
    unknown.paths.append("thinking.budget_tokens")
    return {"enable_thinking": True}
