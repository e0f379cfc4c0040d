"""What a request says of its conversation as a whole: options, and variables of the template."""

from collections.abc import Mapping, Sequence
from typing import Any

from radiance_core.server.errors import ApiError, internal, invalid, quote, unsupported
from radiance_core.server.requests import ChatRequest

# What transformers' apply_chat_template takes itself, and what the renderer provides: a request
# that could set these would say how a prompt is made, not what is in it.
RESERVED = frozenset({
    "messages", "conversation", "tools", "documents", "chat_template", "add_generation_prompt",
    "continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors",
    "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs", "processor_kwargs",
    "template_kwargs", "load_audio_from_video", "raise_exception", "strftime_now", "bos_token",
    "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token",
})  # fmt: skip
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def template_kwargs(
    request: ChatRequest, known: frozenset[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return what the template gets beside the messages, and the paths of what it does not read.

    Args:
        request: the request.
        known: variables that the template reads.

    Raises: ``ApiError`` 400 for a reserved name, or for thinking asked of a model that has none.
    """
    kwargs: dict[str, Any] = {}
    unread = []
    for name, value in (request.chat_template_kwargs or {}).items():
        path = f"chat_template_kwargs.{name}"
        if name in RESERVED or not name.isidentifier() or name.startswith("_"):
            raise invalid(f"{quote(path)}: this name is not a request's to set.", path)
        if name in known:
            kwargs[name] = value
        else:
            unread.append(path)
    kwargs.update(_thinking(request, known))
    return kwargs, unread


def _thinking(request: ChatRequest, known: frozenset[str]) -> dict[str, Any]:
    """Return the template's variables for the three fields about thinking."""
    effort = request.reasoning_effort
    if effort is not None and effort not in _EFFORTS:
        raise invalid(
            f"reasoning_effort: expected one of {', '.join(_EFFORTS)}, got {quote(effort)}.",
            "reasoning_effort",
        )
    asked: dict[str, Any] = {}
    if effort == "none":
        asked["enable_thinking"] = False
    elif effort is not None:
        asked["reasoning_effort"] = effort
    if request.enable_thinking is not None:
        asked["enable_thinking"] = request.enable_thinking
    if request.preserve_thinking is not None:
        asked["preserve_thinking"] = request.preserve_thinking
    for name, value in list(asked.items()):
        if name in known:
            continue
        if value is not False:
            raise unsupported(name, "this model's chat template does not read it")
        del asked[name]  # not thinking is what a model without thinking does
    return asked


def turn_options(request: ChatRequest, messages: Sequence[Mapping[str, Any]]) -> tuple[bool, bool]:
    """Return whether the prompt opens the assistant's turn, and whether it prolongs its last one.

    Raises: ``ApiError`` 400 when both are asked for, or there is nothing to prolong.
    """
    prolongs = bool(request.continue_final_message)
    opens = not prolongs if request.add_generation_prompt is None else request.add_generation_prompt
    if prolongs and opens:
        raise invalid(
            "continue_final_message: expected add_generation_prompt false with it.",
            "continue_final_message",
        )
    if prolongs and messages[-1]["role"] != "assistant":
        raise invalid(
            "continue_final_message: expected the last message to be the assistant's, got "
            f"{messages[-1]['role']}.",
            "continue_final_message",
        )
    return opens, prolongs


def without_template() -> ApiError:
    """Return the 501 of a model that cannot chat."""
    error = internal(
        "chat: this model has no chat template; use /v1/completions, or serve a model that has "
        "one.",
        "no_chat_template",
    )
    error.status = 501
    return error
