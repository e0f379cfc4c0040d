"""``/v1/responses``: items in, items out. Nothing is stored, so that nothing can be fetched."""

from radiance_core.server import web
from radiance_core.server.answer import answer
from radiance_core.server.dialect import Dialect
from radiance_core.server.errors import ApiError
from radiance_core.server.exchange import Exchange
from radiance_core.server.responses_form import ResponseForm, blank
from radiance_core.server.responses_logprobs import MessageTokens
from radiance_core.server.responses_request import (
    INERT,
    SERVED,
    UNSERVED,
    ResponsesRequest,
    conversation_of,
)
from radiance_core.server.state import State

DIALECT = Dialect(
    kind=ResponsesRequest,
    served=SERVED,
    inert=INERT,
    unserved=UNSERVED,
    listed="input",
    convert=conversation_of,
    names={
        "messages": "input",
        "max_completion_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "response_format.json_schema": "text.format",
        "response_format": "text.format",
        "tool_choice.allowed_tools": "tool_choice",
    },
    parts={".function": ""},
)


async def responses(exchange: Exchange, state: State) -> web.StreamResponse:
    """Answer a conversation of items."""
    heard = await DIALECT.hear(exchange, state)
    with DIALECT.named():
        begun = await DIALECT.begin(heard, exchange, state)
        response = blank(heard.request, heard.serving.names[0], begun.params, begun.said)
        form = ResponseForm(response, begun.parts)
        if begun.asked.logprobs:
            thoughts = begun.turn.form.reasoning
            closing = thoughts.closing if thoughts else ""
            form.tokens = MessageTokens(heard.serving.model.tokenizer, closing)
        return await answer(exchange, state, begun.generation, form, begun.asked)


async def input_tokens(exchange: Exchange, state: State) -> web.StreamResponse:
    """Say how many tokens a conversation of items has as a prompt."""
    count = await DIALECT.count(exchange, state)
    return exchange.reply({"object": "response.input_tokens", "input_tokens": count})


async def stored(exchange: Exchange, state: State) -> web.StreamResponse:  # noqa: ARG001 (a route)
    """Say that there is no such response, whatever its id."""
    raise ApiError(
        404,
        "response: nothing is stored here (every response says store false), so there is none to "
        "fetch, cancel or delete; keep the output items that you need.",
        param="response_id",
        code="response_not_found",
    )
