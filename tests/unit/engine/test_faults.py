"""Cancelling, refusing and failing: nothing leaks, nobody hangs, and health says the truth."""

import asyncio
import gc
import random
import threading
import time
import weakref
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from radiance_core.engine import loop, serving
from radiance_core.engine.interface import Delta, EngineStopped, PromptTooLong, QueueFull, Request
from radiance_core.engine.sampling import SamplingParams
from radiance_core.engine.serving import LocalEngine

from .fake_engine import answer, deltas, idle, ids, request, running, until
from .fake_model import FakeModel, kernel_error, plan, poisoned_by

FOREVER: dict[str, Any] = {"max_tokens": 10_000}
LONG = 20_000


def endless(**given: Any) -> FakeModel:
    """A model whose answers go on for as long as a test lasts."""
    pages = LONG // 64 + 1
    given.setdefault("token_after", lambda t: 97 + (t - 96) % 26)
    given.setdefault("fault", lambda _: time.sleep(0.0003))  # so that it does last
    plans = given.pop("plans", [plan("full", pages=4 * pages, block_size=64)])
    return FakeModel(plans=plans, max_context=LONG, keep=False, **given)


def stream(engine: LocalEngine, req: Request) -> AsyncGenerator[Delta, None]:
    return cast("AsyncGenerator[Delta, None]", engine.generate(req))


async def closed_within_a_step(engine: LocalEngine, deltas_: AsyncGenerator[Delta, None]) -> None:
    """Close a stream; what it held must be free when the step that runs is through."""
    with engine._loop._wake:  # no other step can begin meanwhile
        await deltas_.aclose()
        steps = engine.stats()["steps"]
    await idle(engine)
    assert engine.stats()["steps"] <= steps + 1


async def test_cancelled_while_it_decodes() -> None:
    """Closing the stream frees pages and promises; a neighbour's answer is not touched."""
    async with running(endless()) as engine:
        neighbour = asyncio.create_task(answer(engine, "ab", max_tokens=2000))
        victim = stream(engine, request("xy", **FOREVER))
        for _ in range(5):
            await anext(victim)
        await victim.aclose()
        text, last = await neighbour
        assert (text[:4], len(text), last.completion_tokens) == ("cdef", 2000, 2000)
        await idle(engine)
        assert engine.stats()["requests_cancelled"] == 1
        assert all(p.num_used == 0 for p in engine._loop.cache.pools.values())


async def test_cancelled_at_once_between_chunks() -> None:
    """A prompt that is being computed is dropped between two of its chunks."""
    model = endless(max_tokens=4)
    async with running(model) as engine:
        victim = stream(engine, Request("v", (97,) * 10_000, SamplingParams(max_tokens=5)))
        first = asyncio.ensure_future(anext(victim))
        await until(lambda: engine.stats()["steps"] >= 3)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await closed_within_a_step(engine, victim)
        steps = engine.stats()["steps"]
        assert steps < 2500
        await asyncio.sleep(0.02)
        assert engine.stats()["steps"] == steps


async def test_cancelled_in_the_queue() -> None:
    """A request that has not begun leaves the queue and never begins."""
    model = endless(max_seqs=1)
    async with running(model) as engine:
        first = stream(engine, request("ab", **FOREVER))
        await anext(first)
        second = asyncio.ensure_future(anext(stream(engine, request("zz", **FOREVER))))
        await until(lambda: engine.stats()["requests_waiting"] == 1)
        second.cancel()
        await until(lambda: not engine.stats()["requests_waiting"])
        assert engine.stats()["requests_running"] == 1
        await closed_within_a_step(engine, first)
        assert engine.stats()["requests_cancelled"] == 2


async def test_a_consumer_that_is_just_gone() -> None:
    """A stream that is forgotten, not closed, is cancelled once it is collected."""
    async with running(endless()) as engine:
        forgotten = stream(engine, request("ab", **FOREVER))
        await anext(forgotten)
        del forgotten
        gc.collect()
        await idle(engine)
        assert engine.stats()["requests_cancelled"] == 1


async def test_a_task_that_is_cancelled() -> None:
    """Cancelling the task that reads cancels the request, whatever it waits for."""
    async with running(endless()) as engine:
        tasks = [asyncio.create_task(deltas(engine, request("ab", **FOREVER))) for _ in range(8)]
        await until(lambda: engine.stats()["tokens_generated"] > 0)
        for t in tasks:
            t.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await idle(engine)
        assert engine.stats()["requests_cancelled"] == 8


def test_an_event_loop_that_is_closed() -> None:
    """When the loop of a request is gone its request goes too, and the engine serves others."""
    model = endless()

    async def begin(engine: LocalEngine) -> None:
        leak.append(stream(engine, request("ab", **FOREVER)))
        await anext(leak[0])
        asyncio.get_running_loop().stop()
        await asyncio.sleep(10)

    leak: list[AsyncGenerator[Delta, None]] = []

    async def later() -> None:
        async with running(model) as engine:
            other = asyncio.new_event_loop()

            def live() -> None:
                task = other.create_task(begin(engine))
                other.run_forever()
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                other.close()

            thread = threading.Thread(target=live)
            thread.start()
            await asyncio.to_thread(thread.join)
            await idle(engine)
            assert engine.stats()["requests_cancelled"] == 1
            assert (await answer(engine, "ab"))[0] == "cdefg"
            assert engine.health().ok

    asyncio.run(later())


async def test_a_fault_of_the_engine_itself() -> None:
    """It is told to everyone that runs or waits, health stays failed, and none is let in."""
    model = FakeModel(max_seqs=1)
    model.gate = threading.Event()
    async with running(model) as engine:
        tasks = [asyncio.create_task(deltas(engine, request("ab"))) for _ in range(4)]
        await until(
            lambda: engine.stats()["requests_running"] + engine.stats()["requests_waiting"] >= 4
        )
        model.fail_next = ZeroDivisionError("by design")
        model.gate.set()
        for t in tasks:
            (only,) = await t
            assert only.finish_reason == "error"
            assert only.error == loop.STOPPED
        health = engine.health()
        assert (health.ok, health.state) == (False, "failed")
        assert health.detail == "ZeroDivisionError: by design"
        with pytest.raises(
            EngineStopped, match="engine: it is failed: ZeroDivisionError: by design"
        ):
            await deltas(engine, request("ab"))


async def test_a_request_that_slips_in_after_the_end() -> None:
    """A request that passed the door before the thread ended is refused, not left to wait."""
    async with running(FakeModel()) as engine:
        seq = engine._sequence(request("ab"), lambda delta: True)
        await asyncio.to_thread(engine.stop)
        with pytest.raises(EngineStopped, match="engine: it is draining: it has ended"):
            engine._loop.submit(seq)


async def test_the_queue_is_bounded() -> None:
    """One request too many is refused with both numbers, and is counted."""
    model = endless(max_seqs=1)
    async with running(model, max_queued=2) as engine:
        tasks = [asyncio.create_task(deltas(engine, request("ab", **FOREVER)))]
        await until(lambda: engine.stats()["requests_running"] >= 1)
        tasks += [asyncio.create_task(deltas(engine, request("ab", **FOREVER))) for _ in range(2)]
        await until(lambda: engine.stats()["requests_waiting"] == 2)
        with pytest.raises(QueueFull, match="queue: 2 requests wait already and at most 2 may"):
            await deltas(engine, request("ab"))
        assert engine.stats()["requests_rejected"] == 1
        for t in tasks:
            t.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_burst_on_an_idle_engine_is_let_in() -> None:
    """Free places and the queue together say how many may come at once, however fast they come."""
    model = FakeModel(max_seqs=3)
    async with running(model, max_queued=2) as engine:
        got = await asyncio.gather(*(deltas(engine, request("ab")) for _ in range(5)))
        assert [all_of[-1].finish_reason for all_of in got] == ["length"] * 5
        assert engine.stats()["requests_rejected"] == 0


async def test_sampling_that_no_row_can_hold() -> None:
    """Numbers too large for the sampling row fail their own request, before any step."""
    async with running(FakeModel()) as engine:
        for odd in ({"top_k": 2**31}, {"penalty_last_n": 2**40}, {"top_p": 1e300}):
            (only,) = await deltas(engine, request("ab", **odd))
            assert only.finish_reason == "error"
            assert only.error is not None
            assert "sampling: expected numbers that a sampling row can hold" in only.error
        assert engine.health().ok
        assert engine.stats()["steps"] == 0


async def test_no_token_asked_for() -> None:
    """A prompt of the whole context is read when no token is to follow, and one more is not."""
    async with running(FakeModel(max_context=64)) as engine:
        (only,) = await deltas(engine, request("a" * 64, max_tokens=0))
        assert (only.finish_reason, only.prompt_tokens) == ("length", 64)
        with pytest.raises(PromptTooLong, match="expected at most 64 tokens, got 65"):
            await deltas(engine, request("a" * 65, max_tokens=0))


async def test_prompts_that_cannot_be_read() -> None:
    """Too long is refused with both numbers; ids outside the vocabulary end with an error."""
    async with running(FakeModel(max_context=64)) as engine:
        with pytest.raises(PromptTooLong, match="expected at most 63 tokens, got 64") as caught:
            await deltas(engine, request("a" * 64))
        assert (caught.value.num_tokens, caught.value.max_tokens) == (64, 63)
        for prompt, says in (
            ((), "prompt: expected one token or more, got none; send some text"),
            ((5, 256, 7), "prompt: expected token ids from 0 to 255, got 256"),
            ((5, -3), "prompt: expected token ids from 0 to 255, got -3"),
        ):
            (only,) = await deltas(engine, Request("r", prompt, SamplingParams()))
            assert (only.finish_reason, only.error) == ("error", says)
        assert len(await deltas(engine, request("a" * 63))) == 1


async def test_draining_lets_answers_end() -> None:
    """What runs and waits is answered, what is new is refused, and health says so."""
    model = FakeModel(max_seqs=1)
    async with running(model) as engine:
        tasks = [asyncio.create_task(answer(engine, "ab", max_tokens=20)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        drain = asyncio.create_task(engine.drain(20))
        await asyncio.sleep(0)
        with pytest.raises(EngineStopped, match="it is draining: the server is stopping"):
            await deltas(engine, request("ab"))
        assert engine.health().state == "draining"
        for t in tasks:
            assert (await t)[1].finish_reason == "length"
        await drain
        assert engine.health().state == "draining"


async def test_draining_ends_what_takes_too_long() -> None:
    """At the limit what still runs gets a last delta that says why."""
    async with running(endless()) as engine:
        task = asyncio.create_task(deltas(engine, request("ab", **FOREVER)))
        await until(lambda: engine.stats()["tokens_generated"] > 0)
        await engine.drain(0.05)
        last = (await task)[-1]
        assert (last.finish_reason, last.error) == ("error", loop.STOPPED)
        assert 0 < last.completion_tokens < FOREVER["max_tokens"]


async def test_a_step_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health says that a step hangs, and a drain tells those who wait although it does."""
    monkeypatch.setattr(serving, "HUNG_AFTER_S", 0.05)
    monkeypatch.setattr(serving, "LAST_STEP_S", 0.05)
    model = FakeModel(hangs=True)
    async with running(model) as engine:
        model.gate = threading.Event()
        task = asyncio.create_task(deltas(engine, request("ab")))
        await until(model.entered.is_set)
        await asyncio.sleep(0.1)
        assert (engine.health().ok, engine.health().state) == (False, "failed")
        assert "a step has taken over" in engine.health().detail
        await engine.drain(0.01)
        assert await asyncio.to_thread(engine.stop, 0.01) is False
        (only,) = await task
        assert (only.finish_reason, only.error) == ("error", loop.STOPPED)


async def test_before_and_after_its_life() -> None:
    """An engine that has not started is loading; one that was stopped does not pretend to serve."""
    async with running(FakeModel(), start=False) as engine:
        assert (engine.health().ok, engine.health().state) == (False, "loading")
        with pytest.raises(
            EngineStopped, match="it is loading: the engine's thread has not started"
        ):
            await deltas(engine, request("ab"))
        engine.start()
        assert engine.health().ok
        assert await asyncio.to_thread(engine.stop) is True
        assert not engine.health().ok


async def test_idle_costs_nothing_and_wakes() -> None:
    """An idle engine runs no steps, and the next request wakes it."""
    async with running(FakeModel()) as engine:
        await answer(engine, "ab")
        await idle(engine)
        steps = engine.stats()["steps"]
        await asyncio.sleep(0.05)
        assert engine.stats()["steps"] == steps
        assert engine._loop.busy_since is None
        assert (await answer(engine, "ab"))[0] == "cdefg"


async def test_a_long_life_keeps_nothing() -> None:
    """After many requests that end in every way no sequence is reachable any more."""
    model = FakeModel(keep=False, max_context=200, plans=[plan("full", 200), plan("w", 99, 4, 9)])
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    made = LocalEngine._sequence

    def watched(self: LocalEngine, req: Request, emit: Any) -> Any:
        seq = made(self, req, emit)
        alive.add(seq.matcher)
        return seq

    async with running(model, max_queued=500) as engine:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalEngine, "_sequence", watched)

            model.fault = poisoned_by("!", kernel_error)

            async def one(i: int) -> None:
                prompt = ids(random.choice(["abc" * random.randint(1, 40)] * 20 + ["a!"]))
                got = stream(engine, Request(f"{i}", prompt, SamplingParams(max_tokens=30)))
                async for _ in got:
                    chance = random.random()
                    if chance < 0.05:
                        break
                    if chance > 0.995:
                        model.fail_next = kernel_error()
                await got.aclose()

            for _ in range(4):
                await asyncio.gather(*(one(i) for i in range(100)))
            await idle(engine)
            assert engine.health().ok
        gc.collect()
        assert len(alive) == 0
        s = engine.stats()
        ends = ("requests_finished", "requests_cancelled", "requests_failed")
        assert sum(s[end] for end in ends) == 400
        assert all(s[end] > 0 for end in ends), "each way to end was taken"
        assert await engine.reset_prefix_cache()
        assert len(engine._loop.cache._cache) == 0
        for pool in engine._loop.cache.pools.values():
            assert sorted(pool._free) == list(range(pool.num_pages))
