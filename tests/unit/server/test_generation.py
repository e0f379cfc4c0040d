"""Running choices: merging, back pressure, and letting go of the engine's iterators."""

import asyncio

import pytest

from radiance_core.engine.interface import Delta, Health, Request
from radiance_core.engine.sampling import SamplingParams
from radiance_core.server.errors import ApiError
from radiance_core.server.generation import Choice, Generation


class Iterator:
    """An engine's iterator that is no generator: only closing it frees its request."""

    def __init__(self, deltas):
        self.deltas = list(deltas)
        self.taken = 0
        self.closed = False

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.taken == len(self.deltas):
            raise StopAsyncIteration
        await asyncio.sleep(0)
        self.taken += 1
        return self.deltas[self.taken - 1]

    async def aclose(self):
        self.closed = True


class Engine:
    def __init__(self, *iterators):
        self.iterators = list(iterators)
        self.state = "ready"

    def health(self):
        return Health(True, "", self.state)

    def generate(self, request):
        return self.iterators[int(request.request_id)]


def generation(engine, prefix="", buffer_chars=100):
    choices = [
        Choice(n, n, Request(str(n), (1,), SamplingParams()), prefix)
        for n in range(len(engine.iterators))
    ]
    return Generation(
        engine, choices, buffer_chars=buffer_chars, param="prompt", retry_after_s=1.0
    )  # fmt: skip


END = Delta("", 0, "stop", prompt_tokens=3, completion_tokens=2, cached_tokens=1)


async def settle():
    """Let the loop turn until all has happened that needs no time to pass."""
    for _ in range(1000):
        await asyncio.sleep(0)


async def test_what_nobody_took_is_one_delta():
    """Text and token counts add up, the echo comes first, and the end is not lost."""
    engine = Engine(Iterator([Delta("a", 1), Delta("b", 1), END]), Iterator([Delta("c", 2), END]))
    async with generation(engine, prefix="> ") as running:
        await settle()
        taken = await running.take()
        assert [(c.index, d.text, d.num_tokens, d.finish_reason) for c, d in taken] == [
            (0, "> ab", 2, "stop"), (1, "> c", 2, "stop"),
        ]  # fmt: skip
        assert await running.take() == []
        usage = running.usage()
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (6, 4, 10)
    assert usage.prompt_tokens_details.cached_tokens == 2
    assert all(iterator.closed for iterator in engine.iterators)


async def test_a_full_buffer_stops_asking_and_leaving_closes_all_the_same():
    """With nobody taking, the engine is asked no further than the limit; leaving closes it."""
    iterator = Iterator([Delta("x" * 10, 1)] * 1000)
    engine = Engine(iterator)
    async with generation(engine, buffer_chars=55):
        await settle()
        assert iterator.taken == 6
        assert not iterator.closed
    assert iterator.closed


async def test_silence_is_none_and_abort_is_its_error():
    """A gap is told as none; an abort comes out of take, also before anything came."""

    class Mute(Iterator):
        async def __anext__(self):
            await asyncio.Event().wait()

    engine = Engine(Mute([]))
    async with generation(engine) as running:
        await running.begin(0.01)
        assert await running.take(0.01) is None
        running.abort(ApiError(503, "over"))
        with pytest.raises(ApiError, match="over"):
            await running.take()
    assert engine.iterators[0].closed


async def test_an_iterator_that_just_ends_is_an_error():
    """An engine that breaks its contract gives an error, not a request that hangs."""
    engine = Engine(Iterator([Delta("a", 1)]))
    async with generation(engine) as running:
        assert (await running.take())[0][1].text == "a"
        with pytest.raises(ApiError, match="without a finish reason"):
            await running.take()


async def test_an_error_while_draining_may_be_repeated():
    """The same error delta is a 503 when the engine is draining and a 500 when it is not."""
    for state, status in [("ready", 500), ("draining", 503)]:
        engine = Engine(Iterator([Delta("", 0, "error", error="cut off")]))
        engine.state = state
        async with generation(engine) as running:
            with pytest.raises(ApiError, match="cut off") as caught:
                await running.begin(60)
        assert caught.value.status == status
