"""Prompt text to token ids, off the event loop, and never more text than could fit."""

import asyncio
from collections.abc import Callable

from radiance_core.engine.interface import TextModel
from radiance_core.server.errors import context_exceeded, invalid

# No vocabulary has tokens so long on average over a full context, so more text than this a token
# cannot fit and is refused without the seconds that encoding it would take.
_CHARS_PER_TOKEN = 256
_INLINE_CHARS = 2048


async def encode(
    model: TextModel, text: str, how: Callable[[str], list[int]], param: str
) -> list[int]:
    """Return the ids of ``text`` by ``how``, one of the tokenizer's ways to encode.

    Raises: ``ApiError`` 400 when the text cannot fit the context however it is encoded.
    """
    check_chars(model, len(text), param)
    if len(text) <= _INLINE_CHARS:
        return how(text)
    return await asyncio.to_thread(how, text)


def check_chars(model: TextModel, num_chars: int, param: str) -> None:
    """Refuse more text than could fit the context however it is encoded."""
    if num_chars > model.max_context * _CHARS_PER_TOKEN:
        raise invalid(
            f"{param}: the prompt has {num_chars} characters and this model's context "
            f"{model.max_context} tokens; it cannot fit.",
            param,
            "context_length_exceeded",
        )


def check_count(model: TextModel, num_messages: int, param: str) -> None:
    """Refuse more messages than a context has tokens, before each is looked at."""
    if num_messages > model.max_context:
        raise invalid(
            f"{param}: {num_messages} messages cannot fit this model's context of "
            f"{model.max_context} tokens.",
            param,
            "context_length_exceeded",
        )


def check_length(model: TextModel, num_tokens: int, max_tokens: int | None, param: str) -> None:
    """Refuse a prompt that has no tokens, or that leaves no room for the first token asked for."""
    if num_tokens == 0:
        raise invalid(f"{param}: expected at least one token, got none.", param)
    most = model.max_context if max_tokens == 0 else model.max_context - 1
    if num_tokens > most:
        raise context_exceeded(num_tokens, most, param, model.max_context)
