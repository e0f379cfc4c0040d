"""``/v1/chat/completions``: a conversation in, the assistant's next message out."""

import secrets
import time

from msgspec import UNSET

from radiance_core.server import fields, web
from radiance_core.server.answer import answer
from radiance_core.server.body import read_json
from radiance_core.server.chat_form import ChatForm
from radiance_core.server.dialogue import begin
from radiance_core.server.exchange import Exchange
from radiance_core.server.extension import extension, name_ignored
from radiance_core.server.message_input import read_messages
from radiance_core.server.nested_keys import unknown_inside
from radiance_core.server.prompts import check_count
from radiance_core.server.requests import ChatRequest, read_fields
from radiance_core.server.state import State


async def chat_completions(exchange: Exchange, state: State) -> web.StreamResponse:
    """Answer a conversation."""
    state.current()  # a server that cannot serve says so before it reads a body
    body = await read_json(exchange.request, state.settings)
    strict = state.settings.strict_requests
    known, ignored = fields.sort_out(body, fields.CHAT, strict=strict)
    ignored += unknown_inside(known, strict=strict)
    request = read_fields(known, ChatRequest)
    serving = state.named(request.model)
    check_count(serving.model, len(request.messages), "messages")
    chat = {**known, "messages": read_messages(request.messages)}
    generation, turn, params = await begin(chat, serving, state, ignored)
    form = ChatForm(
        id=f"chatcmpl-{secrets.token_hex(16)}",
        created=int(time.time()),
        model=serving.names[0],
        fingerprint=serving.fingerprint,
        usage=None if request.wants_usage else UNSET,
        said=extension(ignored, request, params),
        turn=turn,
        tokenizer=serving.model.tokenizer,
        shows_reasoning=request.include_reasoning is not False,
        shows_logprobs=bool(request.logprobs),
    )
    name_ignored(exchange, ignored)
    return await answer(exchange, state, generation, form, request)
