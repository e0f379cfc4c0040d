"""The bodies of generation requests as typed values, and the sampling they ask for.

One file, because fields, their checks and what they come to change together.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from radiance_core.engine.interface import TextModel
from radiance_core.engine.sampling import SamplingParams
from radiance_core.server.errors import ApiError, invalid
from radiance_core.server.fields import RANGES, check_range
from radiance_core.server.sampler_fields import biases, breakers, check_salt, told_alternatives
from radiance_core.server.settings import ServerSettings
from radiance_core.text.errors import StopError
from radiance_core.text.stop import StopMatcher

_PLACE = re.compile(r"(.*?)(?: - at `(?:key in )?\$\.?(.*?)`)?", re.DOTALL)
_SENT_OVER_DEFAULT = (
    "temperature", "top_p", "min_p", "typical_p", "repetition_penalty", "frequency_penalty",
    "presence_penalty", "penalty_last_n", "ignore_eos", "min_tokens", "xtc_probability",
    "xtc_threshold", "dry_multiplier", "dry_base", "dry_allowed_length",
)  # fmt: skip
_MASK64 = 2**64 - 1
T = TypeVar("T")


class StreamOptions(msgspec.Struct, kw_only=True):
    """What a stream says beside the text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingRequest(msgspec.Struct, kw_only=True):
    """Fields that every generation request has; absent is ``None``."""

    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    penalty_last_n: int | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    priority: int | None = None
    cache_salt: str | None = None
    cache_prompt: bool | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    grammar: str | None = None

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with its token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)


class Message(msgspec.Struct, kw_only=True):
    """One message of a conversation, as sent."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None
    audio: dict[str, Any] | None = None
    annotations: list[dict[str, Any]] | None = None


class ChatRequest(SamplingRequest, kw_only=True):
    """Body of ``/v1/chat/completions``."""

    messages: list[Message]
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    include_reasoning: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class CompletionRequest(SamplingRequest, kw_only=True):
    """Body of ``/v1/completions``."""

    prompt: str | list[Any]
    echo: bool | None = None
    logprobs: int | None = None


def read_fields(fields: Mapping[str, Any], kind: type[T]) -> T:
    """Return ``fields`` as ``kind``; a 400 names the path of one of the wrong type."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as err:
        raise wrong_type(str(err)) from err


def wrong_type(text: str) -> ApiError:
    """Turn the validator's sentence into an error that names the field first."""
    match = _PLACE.fullmatch(text)
    assert match is not None, "the pattern takes any text"
    said, path = match[1].replace("`", ""), match[2] or None
    if missing := re.search(r"missing required field (\w+)", said):
        path = f"{path}.{missing[1]}" if path else missing[1]
        return invalid(f"{path}: expected this field, got none.", path)
    said = said[:1].lower() + said[1:].replace(" | ", " or ")
    return invalid(f"{path or 'body'}: {said}.", path)


def check(request: SamplingRequest, model: TextModel, settings: ServerSettings) -> None:
    """Refuse numbers out of range, stops past their limits and options that do not go together."""
    for name in RANGES:
        check_range(name, getattr(request, name))
    if (request.n or 1) > settings.max_choices:
        raise invalid(f"n: expected at most {settings.max_choices}, got {request.n}.", "n")
    if request.stream_options is not None and request.stream_options.continuous_usage_stats:
        raise invalid(
            "stream_options.continuous_usage_stats: usage is only sent once, at the end.",
            "stream_options.continuous_usage_stats",
            "unsupported_parameter",
        )
    if request.stream_options is not None and not request.stream:
        raise invalid("stream_options: expected only with stream true.", "stream_options")
    check_salt(request.cache_salt)
    for place, token in enumerate(request.stop_token_ids or ()):
        check_token(token, model, f"stop_token_ids[{place}]")
    try:
        StopMatcher(stops(request))  # the engine's own limits, told before anything is rendered
    except StopError as err:
        raise invalid(str(err), "stop") from err


def check_token(token: object, model: TextModel, path: str) -> int:
    """Return a token id of the model's vocabulary."""
    size = model.tokenizer.vocab_size
    if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < size:
        raise invalid(f"{path}: expected a token id from 0 to {size - 1}, got {token!r:.40}.", path)
    return token


def stops(request: SamplingRequest) -> tuple[str, ...]:
    """Return the stop strings; empty ones, which would end every text, are left out."""
    if request.stop is None:
        return ()
    listed = [request.stop] if isinstance(request.stop, str) else request.stop
    return tuple(dict.fromkeys(text for text in listed if text))


def sampling(request: SamplingRequest, model: TextModel) -> SamplingParams:
    """Return what the request asks for over the model's defaults; the seed is always set.

    An absent seed is drawn here, below 2**53 so that it can be read back from JSON anywhere.
    """
    defaults = model.default_sampling
    sent = {
        name: value
        for name in _SENT_OVER_DEFAULT
        if (value := getattr(request, name)) is not None
    }  # fmt: skip
    limits = (request.max_completion_tokens, request.max_tokens, defaults.max_tokens)
    seed = request.seed if request.seed is not None else secrets.randbits(53)
    return replace(
        defaults,
        **sent,
        max_tokens=next((limit for limit in limits if limit is not None), None),
        top_k=defaults.top_k if request.top_k is None else max(request.top_k, 0),
        dry_last_n=_first(request.dry_penalty_last_n, defaults.dry_last_n),
        dry_breakers=(
            defaults.dry_breakers
            if request.dry_sequence_breakers is None
            else breakers(request.dry_sequence_breakers)
        ),
        logit_bias={**defaults.logit_bias, **biases(request.logit_bias, model)},
        logprobs=_told(request),
        seed=seed & _MASK64,
        stop=(*defaults.stop, *stops(request)),
        stop_token_ids=(*defaults.stop_token_ids, *(request.stop_token_ids or ())),
    )


def _first(asked: int | None, default: int) -> int:
    return default if asked is None else asked


def _told(request: SamplingRequest) -> int | None:
    """Return what a conversation's tokens are told with; other routes say so in their own way."""
    if not isinstance(request, ChatRequest):
        return None
    return told_alternatives(request.logprobs, request.top_logprobs)


def fit(params: SamplingParams, num_prompt: int, model: TextModel) -> SamplingParams:
    """Clamp ``max_tokens`` to the room that a prompt leaves, and to the server's cap.

    Raises: ``ApiError`` 400 when more tokens must come than may come.
    """
    room = model.max_context - num_prompt
    if model.max_tokens_cap is not None:
        room = min(room, model.max_tokens_cap)
    limit = room if params.max_tokens is None else min(params.max_tokens, room)
    if params.min_tokens > limit:
        raise invalid(
            f"min_tokens: expected at most the {limit} tokens that may be generated here, "
            f"got {params.min_tokens}.",
            "min_tokens",
        )
    return replace(params, max_tokens=limit)


def for_choice(params: SamplingParams, number: int) -> SamplingParams:
    """Give the n-th answer to one prompt a seed of its own; the first keeps the one asked for."""
    assert params.seed is not None, "sampling() always sets a seed"
    return replace(params, seed=(params.seed + number * 0x9E3779B97F4A7C15) & _MASK64)
