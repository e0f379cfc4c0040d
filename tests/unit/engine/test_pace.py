"""Steps that others wait for stay short, and end early when nobody waits for them."""

import asyncio
import random
import threading
from typing import Any

import pytest

from radiance_core.engine import pace
from radiance_core.engine.interface import Request
from radiance_core.engine.pace import AIM_S, FIRST_TOKENS, LEAST_TOKENS, Pace
from radiance_core.engine.sampling import SamplingParams

from .fake_engine import answer, at_once, deltas, idle, running, until
from .fake_model import FakeModel, plan

ROOMY: dict[str, Any] = {"max_context": 2000, "keep": True}


def roomy(**given: Any) -> FakeModel:
    """A model for long prompts."""
    given.setdefault("token_after", lambda t: 97 + (t - 96) % 26)
    return FakeModel(plans=[plan(pages=800)], max_tokens=256, **ROOMY, **given)


def long_prompt(letter: str, count: int = 1500) -> Request:
    return Request(letter, (ord(letter),) * count, SamplingParams(max_tokens=3, temperature=0.0))


def test_the_pace_settles_where_a_step_takes_its_time() -> None:
    """Whatever the fixed part of a step and the cost of a token, a step comes to take the aim."""
    for _ in range(200):
        fixed, each = random.uniform(0, 0.15), 10 ** random.uniform(-5, -2.5)
        speed = Pace()
        assert speed.tokens == FIRST_TOKENS
        for _ in range(60):
            speed.measure(speed.tokens, fixed + each * speed.tokens)
        took = fixed + each * speed.tokens
        least = fixed + each * LEAST_TOKENS
        assert took == pytest.approx(max(AIM_S, least), rel=0.05, abs=2 * each), (fixed, each)


def test_the_pace_is_never_below_the_least() -> None:
    """A machine that stands still for minutes leaves some tokens; few tokens teach nothing."""
    speed = Pace()
    speed.measure(100, 600.0)
    assert speed.tokens == LEAST_TOKENS
    for _ in range(40):
        speed.measure(LEAST_TOKENS - 1, 0.0)
    assert speed.tokens == LEAST_TOKENS
    for _ in range(40):
        speed.measure(100, 0.001)
    assert speed.tokens > 1000


async def test_a_prompt_that_others_wait_for_is_read_in_small_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Alone, a prompt has the whole step; beside one that decodes, and beside another, its pace."""
    monkeypatch.setattr(pace, "AIM_S", 0.0)
    model = roomy()
    async with running(model) as engine:
        await deltas(engine, long_prompt("a"))
        assert max(s.shape.tokens for s in model.steps) == 256
        await idle(engine)
        model.steps.clear()
        model.entered.clear()
        model.gate = threading.Event()
        writer = asyncio.create_task(answer(engine, "zz", max_tokens=400))
        await until(model.entered.is_set)
        unwritten = "B"  # what is written is of small letters, also after the reader has gone
        reader = asyncio.create_task(deltas(engine, long_prompt(unwritten)))
        await until(lambda: engine.stats()["requests_waiting"] == 1)
        model.gate.set()
        await reader
        read = [s for s in model.steps if ord(unwritten) in s.tokens]
        assert {s.shape.seqs for s in read} == {2}, "the other writes all the time"
        assert max(s.shape.tokens for s in model.steps) == LEAST_TOKENS + 1
        await writer


async def test_two_prompts_share_a_step_within_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second prompt enters a step only where both stay below what others may be kept waiting."""
    monkeypatch.setattr(pace, "FIRST_TOKENS", 40)
    model = roomy()
    model.gate = threading.Event()
    async with running(model, keep_prefixes=False) as engine:
        asked = [long_prompt(c, n) for c, n in zip("abcd", (30, 20, 50, 5), strict=True)]
        with engine._loop._wake:
            tasks = [asyncio.create_task(deltas(engine, r)) for r in asked]
            await asyncio.sleep(0)
        model.gate.set()
        for task in tasks:
            await task
    first = model.steps[0]
    assert [len(first.rows(i)) for i in range(first.shape.seqs)] == [30, 10]


async def test_a_step_that_nobody_waits_for_ends_early() -> None:
    """Cancelled in the middle of its step, a prompt's pages are free before the step is through."""
    model = roomy()
    model.gate = threading.Event()
    async with running(model) as engine:
        tasks = await at_once(engine, [long_prompt(c, 100) for c in "ab"])
        await until(lambda: engine.stats()["requests_running"] == 2 and model.entered.is_set())
        tasks[0].cancel()
        await asyncio.sleep(0.05)
        assert engine.stats()["steps_aborted"] in (0, 1)
        tasks[1].cancel()
        await idle(engine)
        stats = engine.stats()
        assert (stats["steps"], stats["prompt_tokens"], stats["requests_cancelled"]) == (0, 0, 2)
        assert stats["steps_aborted"] >= 1
        model.gate.set()
        # Nothing of what was begun is found, and nobody after it is ended by what was meant for it.
        (*_, last) = await deltas(engine, long_prompt("a", 100))
        assert (last.cached_tokens, last.completion_tokens) == (0, 3)


async def test_a_step_that_somebody_waits_for_is_not_ended() -> None:
    """While one sequence of the step is wanted, cancelling others leaves the step alone."""
    model = roomy()
    model.gate = threading.Event()
    async with running(model) as engine:
        with engine._loop._wake:
            keeper = asyncio.create_task(answer(engine, "ab", max_tokens=300))
            victim = asyncio.create_task(deltas(engine, long_prompt("v")))
            await asyncio.sleep(0)
        await until(lambda: engine.stats()["requests_running"] == 2 and model.entered.is_set())
        victim.cancel()
        await asyncio.sleep(0.05)
        model.gate.set()
        _, last = await keeper
        assert (last.completion_tokens, engine.stats()["steps_aborted"]) == (300, 0)


async def test_a_hard_stop_ends_the_step() -> None:
    """Stopping does not wait for a long step; those in it are told."""
    model = roomy()
    model.gate = threading.Event()
    async with running(model) as engine:
        task = asyncio.create_task(deltas(engine, long_prompt("a")))
        await until(model.entered.is_set)
        assert await asyncio.to_thread(engine.stop, 30)
        assert (await task)[-1].error == "The engine stopped before the answer was complete."
        assert not model.gate.is_set()
