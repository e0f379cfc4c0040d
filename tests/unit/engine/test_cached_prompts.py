"""Prompts that begin like earlier ones: what is found, for whom, and that answers stay the same."""

import asyncio
import random

import pytest

from radiance_core.engine.interface import Delta, Request
from radiance_core.engine.sampling import SamplingParams
from radiance_core.engine.serving import LocalEngine

from .fake_engine import at_once, deltas, idle, ids, request, running, until
from .fake_model import FakeModel, kernel_error, plan
from .texts import continuation

LONG = "abcdefghijklmnopqrstuvwxyz" * 4


def deep(**given: object) -> FakeModel:
    """A model whose every token depends on all before it."""
    given.setdefault("max_context", 200)
    given.setdefault("plans", [plan("full", pages=200)])
    return FakeModel(is_deep=True, **given)  # type: ignore[arg-type]


async def cached(engine: LocalEngine, req: Request) -> int:
    """Cached tokens of a request, whose answer must be the one that its text has."""
    got = await deltas(engine, req)
    text, last = "".join(d.text for d in got), got[-1]
    assert text == continuation(req.prompt_ids, last.completion_tokens)
    return last.cached_tokens


def computed_tokens(model: FakeModel) -> int:
    return sum(s.shape.tokens for s in model.steps)


async def test_a_prompt_that_came_before_is_not_computed_again() -> None:
    """All but the last token of a repeated prompt is found, whatever its length."""
    for length in (1, 2, 4, 5, 17, 32, 33, 64):
        model = deep()
        async with running(model) as engine:
            first, second = request(LONG[:length]), request(LONG[:length])
            assert await cached(engine, first) == 0
            before = computed_tokens(model)
            hit = await cached(engine, second)
            # Blocks have 4 tokens; of a last block that is whole, all but one token.
            assert hit == (length // 4 * 4 if length % 4 else length - 1)
            assert computed_tokens(model) - before == length - hit + 4
            stats = engine.stats()
            assert stats["prefix_cache_queries"] == 2 * length
            assert stats["prefix_cache_hits"] == hit


async def test_the_next_turn_finds_the_answer_too() -> None:
    """A conversation that goes on starts behind its last answer, not behind its last question."""
    async with running(deep()) as engine:
        got = await deltas(engine, request("hello there", max_tokens=14))
        turn = "hello there" + "".join(d.text for d in got)
        # The last token that was drawn is never computed.
        assert await cached(engine, request(turn + " and now?")) == (len(turn) - 1) // 4 * 4


async def test_prompts_share_what_they_have_in_common() -> None:
    """A prompt that leaves an earlier one in its middle finds the whole blocks before."""
    async with running(deep()) as engine:
        await cached(engine, request(LONG[:50]))
        assert await cached(engine, request(LONG[:30] + "!" + LONG[31:50])) == 28
        assert await cached(engine, request("!" + LONG[:50])) == 0


@pytest.mark.parametrize("length", [8, 37, 40, 100])
async def test_prompts_that_come_together_are_computed_once(length: int) -> None:
    """Of several with one beginning the first computes it, and the others find it."""
    model = deep(max_seqs=5, max_tokens=16)
    async with running(model) as engine:
        texts = [LONG[:length] + tail for tail in ("", "", "x", "yz", "")]
        reqs = [request(text, max_tokens=6) for text in texts]
        answers = [await task for task in await at_once(engine, reqs)]
        for req, got in zip(reqs, answers, strict=True):
            assert "".join(d.text for d in got) == continuation(req.prompt_ids, 6)
        assert answers[0][-1].cached_tokens == 0
        whole = length // 4 * 4
        assert all(got[-1].cached_tokens >= whole - 4 for got in answers[1:])
        assert engine.stats()["prompt_tokens"] <= length + 4 * (length - whole + 4 + 2)


async def test_who_refuses_the_cache_waits_for_nobody() -> None:
    """A request that computes all itself enters beside one with the same prompt."""
    model = deep(max_tokens=8)
    prompt = ids(LONG[:64])
    own = Request("own", prompt, SamplingParams(max_tokens=2), reuse_cache=False)
    async with running(model) as engine:
        tasks = await at_once(engine, [Request("a", prompt, SamplingParams(max_tokens=2)), own])
        got = [await task for task in tasks]
    assert [all_of[-1].cached_tokens for all_of in got] == [0, 0]
    assert engine.stats()["prompt_tokens"] == 128


async def test_salts_share_nothing() -> None:
    """A request finds what its own salt computed and nothing else."""

    def salted(salt: str) -> Request:
        return Request("r", ids(LONG[:40]), SamplingParams(max_tokens=3), salt=salt)

    async with running(deep()) as engine:
        for salt in ("", "a", "b", "\ud800", "x" * 10_000):
            assert await cached(engine, salted(salt)) == 0
            assert await cached(engine, salted(salt)) == 39


async def test_a_request_may_refuse_what_is_cached() -> None:
    """``reuse_cache`` off computes all, and its own work still serves others."""
    prompt = ids(LONG[:40])
    fresh = Request("r", prompt, SamplingParams(max_tokens=3), reuse_cache=False)
    async with running(deep()) as engine:
        assert [await cached(engine, fresh) for _ in range(2)] == [0, 0]
        assert engine.stats()["prefix_cache_queries"] == 0
        assert await cached(engine, Request("r", prompt, SamplingParams(max_tokens=3))) == 39


async def test_an_engine_without_a_cache() -> None:
    """Nothing is kept, and every page is free after every request."""
    async with running(deep(), keep_prefixes=False) as engine:
        assert [await cached(engine, request(LONG[:40])) for _ in range(3)] == [0, 0, 0]
        assert engine.stats()["kv_pages_cached_full"] == 0


async def test_forgetting() -> None:
    """After a reset nothing is found; what a running request holds cannot be forgotten."""
    plans = [plan("full", 2600), plan("w", 200, 4, 9)]
    async with running(deep(plans=plans, max_context=10_000, keep=False)) as engine:
        await cached(engine, request(LONG[:40]))
        await idle(engine)
        assert engine.stats()["kv_pages_cached_full"] > 0
        assert await engine.reset_prefix_cache() is True
        stats = engine.stats()
        assert (stats["kv_pages_cached_full"], stats["kv_pages_cached_w"]) == (0, 0)
        assert await cached(engine, request(LONG[:40])) == 0
        stream = engine.generate(request(LONG[:40], max_tokens=9000))
        await anext(stream)
        assert await engine.reset_prefix_cache() is False
        await stream.aclose()
        await idle(engine)
        assert await engine.reset_prefix_cache() is True
    assert await engine.reset_prefix_cache() is False, "an engine that has ended forgets no more"


@pytest.mark.parametrize("window", [2, 3, 4, 9, 30])
async def test_windowed_groups_need_their_window_only(window: int) -> None:
    """A hit takes over the window before it in every windowed group, or nothing in any."""
    for plans in ([plan("w", 200, 4, window)], [plan("full", 200), plan("w", 200, 4, window)]):
        async with running(deep(plans=plans)) as engine:
            assert await cached(engine, request(LONG)) == 0
            assert await cached(engine, request(LONG)) == len(LONG) - 1
            assert await cached(engine, request(LONG + "!")) == len(LONG)


async def test_a_window_that_is_gone_is_a_miss() -> None:
    """Where the pool of one group had no room to keep its window, no group is hit there."""
    plans = [plan("full", 200), plan("w", 10, 4, 8)]
    async with running(deep(plans=plans, max_seqs=1, max_tokens=16)) as engine:
        await cached(engine, request(LONG))
        for _ in range(3):
            await cached(engine, request("!" + "".join(random.choices("xyz", k=100))))
        before = engine.stats()["prefix_cache_evictions"]
        assert before > 0
        assert await cached(engine, request(LONG)) == 0


async def test_groups_of_different_block_sizes() -> None:
    """What is found is whole blocks of every group."""
    plans = [plan("full", 200), plan("big", 40, 16), plan("one", 400, 1, 5)]
    async with running(deep(plans=plans)) as engine:
        await cached(engine, request(LONG[:61]))
        assert await cached(engine, request(LONG[:61])) == 48
        assert await cached(engine, request(LONG[:48])) == 47


async def test_a_cancelled_prompt_is_not_lost() -> None:
    """What was computed before its client left is there when it comes back."""
    model = deep(max_tokens=4)
    async with running(model) as engine:
        victim = asyncio.ensure_future(anext(engine.generate(request(LONG))))
        await until(lambda: engine.stats()["steps"] >= 10)
        victim.cancel()
        await idle(engine)
        assert await cached(engine, request(LONG)) >= 32


async def test_logits_that_are_not_numbers_leave_nothing_behind() -> None:
    """What led to them is not found again, and its pages are cleared."""
    model = deep(max_tokens=8)
    real = model.run

    def run(shape: object, abort: object) -> None:
        real(shape, abort)  # type: ignore[arg-type]
        if bad:
            model.tokens[:] = -1

    model.run = run  # type: ignore[method-assign]
    bad = True
    async with running(model) as engine:
        (only,) = await deltas(engine, request(LONG[:40]))
        assert only.finish_reason == "error"
        await idle(engine)
        assert engine.stats()["kv_pages_cached_full"] == 0
        assert len(set(model.cleared)) == 10
        bad = False
        assert await cached(engine, request(LONG[:40])) == 0


async def test_a_request_that_fails_alone_leaves_what_was_right() -> None:
    """The blocks before a kernel's error may be found; the step that failed wrote none."""
    model = deep(max_tokens=8)
    model.fault = lambda seen: kernel_error() if ord("!") in seen.tokens else None
    async with running(model) as engine:
        got = await deltas(engine, request(LONG[:20] + "!"))
        assert got[-1].finish_reason == "error"
        assert await cached(engine, request(LONG[:24])) == 16


async def test_a_forged_key_does_not_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where all keys are equal, tokens and salts are compared: nobody gets another's state."""
    import hashlib

    class Same:
        def digest(self) -> bytes:
            return bytes(16)

    monkeypatch.setattr(hashlib, "blake2b", lambda *_, **__: Same())
    async with running(deep()) as engine:
        for text in (LONG[:40], LONG[1:41], LONG[:8] + "!" * 10, "zz"):
            for salt in ("", "a"):
                req = Request("r", ids(text), SamplingParams(max_tokens=9), salt=salt)
                assert await cached(engine, req) == 0


async def test_trees_of_prompts_under_eviction() -> None:
    """Over many random prompts that share beginnings, every answer is the text's own."""
    plans = [plan("full", 90), plan("w", 60, 4, 7)]
    model = deep(plans=plans, max_seqs=4, max_tokens=13, keep=False)
    stems = ["".join(random.choices("ab", k=random.randint(1, 60))) for _ in range(6)]

    def draw() -> Request:
        stem = random.choice(stems)
        text = stem[: random.randint(1, len(stem))] + "".join(
            random.choices("ab", k=random.randint(0, 9))
        )
        if random.random() < 0.2:
            stems[random.randrange(6)] = text[:60]
        return request(text, max_tokens=random.randint(1, 30))

    async with running(model, max_queued=400) as engine:

        async def one() -> list[Delta]:
            req = draw()
            got = await deltas(engine, req)
            assert "".join(d.text for d in got) == continuation(
                req.prompt_ids, got[-1].completion_tokens
            )
            return got

        # Now and then eight rounds of short beginnings find fewer; ten times as many never do.
        for turn in range(80):
            await asyncio.gather(*(one() for _ in range(25)))
            if turn >= 7 and engine.stats()["prefix_cache_hits"] > 500:
                break
        await idle(engine)
        stats = engine.stats()
        assert stats["prefix_cache_hits"] > 500
        assert stats["prefix_cache_evictions"] > 50
        assert stats["prompt_tokens"] + stats["prefix_cache_hits"] == stats["prefix_cache_queries"]
