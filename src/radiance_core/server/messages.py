"""``/v1/messages`` and its token counter: a conversation in Anthropic's form."""

from radiance_core.server import web
from radiance_core.server.answer import answer
from radiance_core.server.dialect import Dialect
from radiance_core.server.exchange import Exchange
from radiance_core.server.messages_form import Message, MessageForm, MessageUsage
from radiance_core.server.messages_request import (
    INERT,
    SERVED,
    UNSERVED,
    MessagesRequest,
    conversation_of,
)
from radiance_core.server.state import State

DIALECT = Dialect(
    kind=MessagesRequest,
    served=SERVED,
    inert=INERT,
    unserved=UNSERVED,
    listed="messages",
    convert=conversation_of,
    names={
        "stop": "stop_sequences",
        "reasoning_effort": "output_config.effort",
        "response_format.json_schema": "output_config.format",
        "response_format": "output_config.format",
        "enable_thinking": "thinking",
    },
    parts={".function.parameters": ".input_schema", ".function": ""},
)
_NO_LIMIT = 2**31 - 1


async def messages(exchange: Exchange, state: State) -> web.StreamResponse:
    """Answer a conversation."""
    heard = await DIALECT.hear(exchange, state)
    with DIALECT.named():
        begun = await DIALECT.begin(heard, exchange, state)
        usage = MessageUsage(len(begun.turn.ids))
        message = Message(heard.serving.names[0], usage, [], radiance=begun.said)
        stops = heard.request.stop_sequences or ()
        form = MessageForm(message, begun.parts, stops, exchange.request_id)
        return await answer(exchange, state, begun.generation, form, begun.asked)


async def count_tokens(exchange: Exchange, state: State) -> web.StreamResponse:
    """Say how many tokens a conversation has as a prompt."""
    count = await DIALECT.count(exchange, state, {"max_tokens": _NO_LIMIT})
    return exchange.reply({"input_tokens": count})
