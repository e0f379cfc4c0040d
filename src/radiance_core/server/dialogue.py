"""A conversation asked in the words of a chat request, whatever route it came by, made to run.

chat fields ── check ── tools, template's variables ── prepare_turn ── room ── Generation
"""

import secrets
from collections.abc import Mapping
from typing import Any

from radiance_core.engine.interface import Request, TextModel
from radiance_core.engine.sampling import SamplingParams
from radiance_core.server import conversation
from radiance_core.server.generation import Choice, Generation
from radiance_core.server.prompts import check_chars, check_length
from radiance_core.server.requests import (
    ChatRequest,
    check,
    fit,
    for_choice,
    read_fields,
    sampling,
)
from radiance_core.server.state import Serving, State
from radiance_core.server.structured import ignored_parts, read_constraint
from radiance_core.server.tools import read_choice
from radiance_core.server.turn import Ask, Turn, prepare_turn


def make_ask(
    chat: Mapping[str, Any], model: TextModel, ignored: list[str], *, strict: bool = False
) -> Ask:
    """Return what a conversation wants of its next turn.

    Args:
        chat: fields of a chat request; its messages have been checked.
        model: answers.
        ignored: gets the paths of what nothing reads.
        strict: refuse those instead.

    Raises: ``ApiError`` for everything that cannot be asked of this model.
    """
    request = read_fields(chat, ChatRequest)
    if model.template_variables is None:
        raise conversation.without_template()
    messages: list[dict[str, Any]] = chat["messages"]
    check_chars(model, sum(len(message["content"] or "") for message in messages), "messages")
    choice = read_choice(
        chat.get("tools"), chat.get("tool_choice"), chat.get("parallel_tool_calls"),
        model.chat_format,
    )  # fmt: skip
    kwargs, unread = conversation.template_kwargs(request, model.template_variables)
    ignored += unread
    content = read_constraint(request, ignored, strict=strict)
    opens, prolongs = conversation.turn_options(request, messages)
    return Ask(messages, choice, kwargs, content, opens_turn=opens, prolongs=prolongs)


async def make_turn(
    chat: Mapping[str, Any],
    model: TextModel,
    retry_after_s: float,
    ignored: list[str],
    *,
    strict: bool = False,
) -> Turn:
    """Return the turn that a conversation asks for; see ``make_ask``.

    Args:
        chat, model, ignored, strict: as there.
        retry_after_s: wait to tell a client that is turned away.
    """
    ask = make_ask(chat, model, ignored, strict=strict)
    turn = await prepare_turn(model, ask, retry_after_s)
    ignored += ignored_parts(ask.content, turn.constraint)
    return turn


async def begin(
    chat: Mapping[str, Any], serving: Serving, state: State, ignored: list[str]
) -> tuple[Generation, Turn, SamplingParams]:
    """Return the generation of the answers to a conversation, their turn and their sampling.

    Raises: ``ApiError`` for everything that cannot be asked of this model.
    """
    model, settings = serving.model, state.settings
    request = read_fields(chat, ChatRequest)
    check(request, model, settings)
    params = sampling(request, model)
    strict = settings.strict_requests
    turn = await make_turn(chat, model, settings.retry_after_s, ignored, strict=strict)
    check_length(model, len(turn.ids), params.max_tokens, "messages")
    params = fit(params, len(turn.ids), model)
    generation = Generation(
        serving.engine,
        [_choice(turn, for_choice(params, n), model, n) for n in range(request.n or 1)],
        buffer_chars=settings.stream_buffer_bytes,
        param="messages",
        retry_after_s=settings.retry_after_s,
    )
    return generation, turn, params


def _choice(turn: Turn, params: SamplingParams, model: TextModel, index: int) -> Choice:
    wanted = Request(
        secrets.token_hex(16),
        turn.ids,
        params,
        constraint=None if turn.constraint is None else turn.constraint.start(),
        shown_special_ids=turn.shown_special_ids,
        reader=turn.reader(params, model.tokenizer.eos_ids),
    )
    return Choice(index, 0, wanted)
