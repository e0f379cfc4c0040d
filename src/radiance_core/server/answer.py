"""Turns a generation into one JSON answer or into a stream, in whichever form a route has."""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from radiance_core.engine.interface import Delta
from radiance_core.log_events import get_logger
from radiance_core.server import access, web
from radiance_core.server.errors import ApiError, from_engine
from radiance_core.server.exchange import Exchange
from radiance_core.server.generation import Choice, Generation
from radiance_core.server.requests import SamplingRequest
from radiance_core.server.sampler_fields import steer
from radiance_core.server.sse import ClientGone, EventStream
from radiance_core.server.state import State
from radiance_core.server.usage import Usage

_log = get_logger("radiance.http")


class Form(Protocol):
    """How one route spells its answers; events and answers are things to encode as JSON.

    It takes in every delta, streamed or not, so that both kinds of answer are made of the same.
    """

    @property
    def framing(self) -> type[EventStream]:
        """How events are written."""

    def opening(self, choices: Sequence[Choice]) -> Sequence[object]:
        """Return the events before any text."""

    def gain(self, choice: Choice, delta: Delta) -> Sequence[object]:
        """Take in what a choice gained; return the events that tell it, its end among them."""

    def closing(self, usage: Usage) -> Sequence[object]:
        """Return the events after all choices have ended."""

    def failure(self, error: ApiError) -> Sequence[object]:
        """Return the events that tell of an error after the headers went out."""

    def whole(self, usage: Usage) -> object:
        """Return the answer that is not streamed, after all choices have ended."""


async def answer(
    exchange: Exchange,
    state: State,
    generation: Generation,
    form: Form,
    request: SamplingRequest,
) -> web.StreamResponse:
    """Run a generation and send its answer."""
    for choice in generation.choices:
        steer(
            choice.request,
            exchange.tenant,
            request.cache_salt,
            request.priority,
            request.cache_prompt,
        )
    generation.on_first = lambda choice, at: state.counts.begun(
        len(choice.request.prompt_ids), at - exchange.started
    )
    try:
        with state.tracked(generation):
            async with generation:
                if request.stream:
                    return await _stream(exchange, state, generation, form)
                return await _whole(exchange, generation, form)
    finally:
        state.counts.note(generation, exchange.started)
        access.note(exchange, generation)


async def _whole(exchange: Exchange, generation: Generation, form: Form) -> web.Response:
    while gained := await generation.take():
        for choice, delta in gained:
            form.gain(choice, delta)
    usage = generation.usage()
    _note(exchange, usage)
    return exchange.reply(form.whole(usage))


async def _stream(
    exchange: Exchange, state: State, generation: Generation, form: Form
) -> web.StreamResponse:
    # Waiting first lets a refusal keep its real status; the limit bounds the time to first byte.
    await generation.begin(state.settings.first_byte_s)
    events = form.framing(exchange, state.settings.stall_timeout_s)
    exchange.facts["streamed"] = True
    try:
        await events.open()
        await _tell(exchange, events, state, form, _send_all(events, state, generation, form))
        if len(generation.last) == len(generation.choices):
            _note(exchange, generation.usage())
    except ClientGone:
        exchange.facts["client"] = "gone"
    return events.response


async def _send_all(events: EventStream, state: State, generation: Generation, form: Form) -> None:
    await events.send(*form.opening(generation.choices))
    while (gained := await generation.take(state.settings.keepalive_s)) != []:
        if gained is None:
            await events.comment()
            continue
        for choice, delta in gained:
            await events.send(*form.gain(choice, delta))
    await events.send(*form.closing(generation.usage()))
    await events.done()


async def _tell(
    exchange: Exchange,
    events: EventStream,
    state: State,
    form: Form,
    sending: Awaitable[None],
) -> None:
    """Send a stream; its headers are out, so whatever goes wrong must be an event too."""
    try:
        await sending
    except ClientGone:
        raise
    except Exception as err:
        error = from_engine(err, "body", state.settings.retry_after_s)
        state.counts.streams_cut_off += 1
        tell = _log.error if error.status >= 500 else _log.info
        tell(
            "stream_failed",
            request_id=exchange.request_id,
            error=error.message,
            exc_info=err.__cause__ if isinstance(err, ApiError) else err,
        )
        await events.fail(*form.failure(error))


def _note(exchange: Exchange, usage: Usage) -> None:
    exchange.facts["prompt_tokens"] = usage.prompt_tokens
    exchange.facts["completion_tokens"] = usage.completion_tokens
