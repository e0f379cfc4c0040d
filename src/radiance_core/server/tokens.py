"""``/tokenize`` and ``/detokenize``: a text as the model sees it, and back."""

import asyncio
from functools import partial
from typing import Any

import msgspec

from radiance_core.engine.interface import TextModel
from radiance_core.server import fields, web
from radiance_core.server.body import read_json
from radiance_core.server.dialogue import make_ask
from radiance_core.server.errors import invalid
from radiance_core.server.exchange import Exchange
from radiance_core.server.extension import name_ignored
from radiance_core.server.message_input import read_messages
from radiance_core.server.nested_keys import unknown_inside
from radiance_core.server.prompts import encode
from radiance_core.server.requests import ChatRequest, check_token, read_fields
from radiance_core.server.state import State
from radiance_core.server.turn import prompt_of

_OF_CHAT = fields.TOKENIZE & fields.CHAT - fields.SAMPLING


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """Body of ``/tokenize`` but for the fields that only a conversation has."""

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """Body of ``/detokenize``."""

    model: str | None = None
    tokens: list[int]


async def tokenize(exchange: Exchange, state: State) -> web.StreamResponse:
    """Return the token ids of a text, or of a conversation as a chat request would send it."""
    state.current()  # a server that cannot serve says so before it reads a body
    body = await read_json(exchange.request, state.settings)
    strict = state.settings.strict_requests
    known, ignored = fields.sort_out(body, fields.TOKENIZE, strict=strict)
    ignored += unknown_inside(known, strict=strict)
    request = read_fields(known, TokenizeRequest)
    model = state.named(request.model).model
    chat = {name: value for name, value in known.items() if name in _OF_CHAT}
    _check_kind(request, chat)
    if request.prompt is None:
        ids, unread = await _of_messages(chat, model, state.settings.retry_after_s)
        ignored += unread
    else:
        special = request.add_special_tokens is not False
        how = partial(model.tokenizer.encode, add_special_tokens=special)
        ids = await encode(model, request.prompt, how, "prompt")
    name_ignored(exchange, ignored)
    spelled = bool(request.return_token_strs)
    return exchange.send(await asyncio.to_thread(_spell, ids, model, spelled))


def _check_kind(request: TokenizeRequest, chat: dict[str, Any]) -> None:
    if (request.prompt is None) == ("messages" not in chat):
        got = "none" if request.prompt is None else "both"
        raise invalid(f"prompt: expected either prompt or messages, got {got}.", "prompt")
    if request.prompt is not None and chat:
        name = sorted(chat)[0]
        raise invalid(f"{name}: expected with messages only, got it with prompt.", name)
    if request.prompt is None and request.add_special_tokens is not None:
        raise invalid(
            "add_special_tokens: expected with prompt only, got it with messages; the chat "
            "template and the model say which special tokens a conversation has.",
            "add_special_tokens",
        )


async def _of_messages(
    chat: dict[str, Any], model: TextModel, retry_after_s: float
) -> tuple[list[int], list[str]]:
    """Return the ids of a conversation, and the paths of what its template does not read."""
    request = read_fields(chat, ChatRequest)
    unread: list[str] = []
    ask = make_ask({**chat, "messages": read_messages(request.messages)}, model, unread)
    _, ids = await prompt_of(model, ask, retry_after_s)
    return ids, unread


def _spell(ids: list[int], model: TextModel, spelled: bool) -> bytes:
    """Return the answer as JSON; millions of ids take too long for the event loop."""
    texts = [model.tokenizer.token_text(id_) for id_ in ids] if spelled else None
    return msgspec.json.encode({
        "count": len(ids),
        "max_model_len": model.max_context,
        "tokens": ids,
        "token_strs": texts,
    })  # fmt: skip


async def detokenize(exchange: Exchange, state: State) -> web.StreamResponse:
    """Return the text of token ids, special tokens included."""
    state.current()
    body = await read_json(exchange.request, state.settings)
    strict = state.settings.strict_requests
    known, ignored = fields.sort_out(body, fields.DETOKENIZE, strict=strict)
    request = read_fields(known, DetokenizeRequest)
    model = state.named(request.model).model
    if len(request.tokens) > model.max_context:
        # The text of an id may be long, so that a small body could ask for a huge answer.
        raise invalid(
            f"tokens: expected at most the {model.max_context} token ids that a context has, got "
            f"{len(request.tokens)}; send them in pieces.",
            "tokens",
        )
    name_ignored(exchange, ignored)
    return exchange.send(await asyncio.to_thread(_join, request.tokens, model))


def _join(ids: list[int], model: TextModel) -> bytes:
    for place, id_ in enumerate(ids):
        check_token(id_, model, f"tokens[{place}]")
    text = model.tokenizer.decode(ids, skip_special_tokens=False)
    return msgspec.json.encode({"prompt": text})
