"""Who runs and who gives way: by priority, then by arrival, and nobody for ever."""

import asyncio
import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from radiance_core.engine import observation
from radiance_core.engine.interface import Delta, QueueFull, Request
from radiance_core.engine.sampling import SamplingParams
from radiance_core.engine.serving import LocalEngine

from .fake_engine import at_once, deltas, idle, ids, request, running, until
from .fake_model import FakeModel, Seen, plan
from .texts import continuation


async def all_right(engine: LocalEngine, reqs: Sequence[Request]) -> list[list[Delta]]:
    """Deltas of requests that come together; each answer must be the one that its text has."""
    answers = [await task for task in await at_once(engine, reqs)]
    for req, got in zip(reqs, answers, strict=True):
        count = req.sampling.max_tokens or 0
        assert got[-1].completion_tokens == count
        assert "".join(d.text for d in got) == continuation(req.prompt_ids, count)
    return answers


async def test_pages_for_half_of_them() -> None:
    """Where pages last for fewer than run, all are answered as if alone, and some gave way.

    Two of 34 and 35 tokens to come over 7 pages of 16 is the smallest mix known to go wrong.
    """
    model = FakeModel(plans=[plan("full", 7, 16)], max_context=80, max_tokens=64, is_deep=True)
    async with running(model) as engine:
        prompts = ["".join(random.choices("abc", k=34)) for _ in range(2)]
        await all_right(engine, [request(p, max_tokens=35) for p in prompts])
        await idle(engine)
        assert engine.stats()["preemptions"] >= 1
        assert engine.stats()["tokens_generated"] == 70


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    "plans",
    [
        [plan("full", 20)],
        [plan("full", 20), plan("w", 16, 4, 9)],
        [plan("full", 20), plan("b", 5, 16)],
    ],
)
async def test_a_crowd_in_a_small_pool(plans: list[Any], keep: bool) -> None:
    """Tens of requests over a pool for one and a bit: all are right, prompts are counted once."""
    model = FakeModel(plans=plans, max_seqs=6, max_tokens=16, max_context=80, is_deep=True)
    wanted = [
        request(
            "".join(random.choices("ab", k=random.randint(1, 40))), max_tokens=random.randint(1, 40)
        )
        for _ in range(100)
    ]
    async with running(model, max_queued=100, keep_prefixes=keep) as engine:
        got = await all_right(engine, wanted)
        await idle(engine)
        stats = engine.stats()
        assert stats["preemptions"] > 0
        prompts = sum(len(r.prompt_ids) for r in wanted)
        assert stats["prompt_tokens"] == prompts - sum(all_of[-1].cached_tokens for all_of in got)
        assert stats["recomputed_tokens"] > 0
        rows = sum(s.shape.tokens for s in model.steps)
        answered = stats["tokens_generated"] - len(wanted)
        assert rows == stats["prompt_tokens"] + stats["recomputed_tokens"] + answered


async def test_cached_tokens_are_those_of_the_first_time() -> None:
    """What is found again after a preemption is no cached prompt."""
    model = FakeModel(plans=[plan("full", 12)], max_context=48, is_deep=True)
    async with running(model) as engine:
        reqs = [request(c * 8, max_tokens=30) for c in "abcd"]
        got = await all_right(engine, reqs)
        assert engine.stats()["preemptions"] > 0
        assert [all_of[-1].cached_tokens for all_of in got] == [0] * 4


async def test_nobody_gives_way_for_ever() -> None:
    """Between two tokens of an answer its request loses its place three times at most."""
    model = FakeModel(
        plans=[plan("full", 24)], max_seqs=8, max_tokens=5, max_context=96, is_deep=True
    )
    async with running(model, max_queued=99) as engine:
        worst = []
        leave = engine._loop.cache.leave

        def watched(held: Any) -> Any:
            worst.append(max((s.stalls for s in engine._loop._running), default=0))
            return leave(held)

        engine._loop.cache.leave = watched  # type: ignore[method-assign]
        reqs = [request("".join(random.choices("ab", k=random.randint(1, 60))), max_tokens=36)
                for _ in range(30)]  # fmt: skip
        await all_right(engine, reqs)
        assert engine.stats()["preemptions"] > 0
        assert max(worst) <= 3


async def test_lower_numbers_go_first() -> None:
    """Of those that wait the lowest priority number enters, and among equals the earliest."""
    model = FakeModel(max_seqs=1)
    model.gate = threading.Event()
    async with running(model, max_queued=99) as engine:
        first = asyncio.create_task(deltas(engine, request("zz")))
        await until(lambda: engine.stats()["requests_running"] >= 1)
        ended: list[tuple[int, int]] = []

        async def one(number: int, priority: int) -> None:
            params = SamplingParams(max_tokens=2, temperature=0)
            await deltas(engine, Request(str(number), ids("ab"), params, priority=priority))
            ended.append((priority, number))

        tasks = []
        for number in range(30):
            tasks.append(asyncio.create_task(one(number, random.randint(-2, 2))))
            await asyncio.sleep(0)
        model.gate.set()
        await asyncio.gather(first, *tasks)
        assert ended == sorted(ended)


async def test_the_lowest_priority_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """When pages are short it is the last in line that loses its own, not the one that asks."""
    monkeypatch.setattr(observation, "PUBLISH_EVERY_S", 0)
    model = FakeModel(plans=[plan("full", 12)], max_seqs=3, max_context=48, is_deep=True)
    async with running(model) as engine:
        params = SamplingParams(max_tokens=30, temperature=0)
        asked = [
            Request(f"p{p}", ids(c * 8), params, priority=p)
            for p, c in ((5, "a"), (-1, "b"), (0, "c"))
        ]
        states: list[set[tuple[str, str]]] = []

        def look(_: Seen) -> None:
            engine._loop._publish()
            states.append({(i.request_id, i.state) for i in engine.sequences()})

        model.fault = look  # type: ignore[assignment]
        await all_right(engine, asked)
        seen = set().union(*states)
        assert ("p5", "preempted") in seen
        assert ("p-1", "preempted") not in seen


async def test_prompts_are_chunked_in_order_beside_decoding() -> None:
    """Rows that continue come first, then prompts by priority, as far as the step goes."""
    model = FakeModel(max_seqs=4, max_tokens=10, max_context=64)
    async with running(model, start=False) as engine:
        for name, text, priority in (
            ("a", "ab", 0),
            ("b", "mnmnmnmnmnmnmn", 3),
            ("c", "xyxyxyxyxyxy", 1),
        ):
            params = SamplingParams(max_tokens=9, temperature=0)
            seq_request = Request(name, ids(text), params, priority=priority)
            engine._loop.submit(engine._sequence(seq_request, lambda _: True))
        engine.start()
        await idle(engine)
    first, second, third, fourth = (
        [bytes(s.rows(i)).decode() for i in range(s.shape.seqs)] for s in model.steps[:4]
    )
    assert first == ["ab", "xyxyxyxy"]
    assert second == ["c", "xyxy", "mnmnm"]
    assert third == ["d", "z", "nmnmnmnm"]
    assert fourth == ["e", "{", "n"]
    assert [(s.shape.decode_seqs, s.shape.seqs) for s in model.steps[:4]] == [
        (0, 2),
        (1, 3),
        (2, 3),
        (3, 3),
    ]


async def test_steps_are_counted_by_kind() -> None:
    """Decode, prefill and mixed steps make up all steps, and so do their seconds."""
    model = FakeModel(max_seqs=2)
    async with running(model) as engine:
        reqs = [request("abcd", max_tokens=9), request("ab" * 16, max_tokens=4)]
        await asyncio.gather(*await at_once(engine, reqs))
        await idle(engine)
        s = engine.stats()
    kinds = ("decode", "prefill", "mixed")
    assert sum(s[f"{k}_steps"] for k in kinds) == s["steps"] == len(model.steps)
    assert sum(s[f"{k}_seconds"] for k in kinds) == pytest.approx(s["step_seconds"])
    assert all(s[f"{k}_steps"] > 0 for k in kinds)
    decode = [s for s in model.steps if s.shape.decode_seqs == s.shape.seqs]
    assert s["decode_steps"] == len(decode)


async def test_the_queue_is_bounded_by_tokens() -> None:
    """Prompts that would wait are refused beyond a number of tokens; free places are no queue."""
    model = FakeModel(max_seqs=2, max_context=64)
    model.gate = threading.Event()
    async with running(model, max_queued_tokens=50) as engine:
        tasks = await at_once(engine, [request("a" * 40), request("z" * 40)])
        await until(lambda: engine.stats()["requests_running"] >= 2)
        tasks += await at_once(engine, [request("b" * 30)])
        assert engine.stats()["tokens_waiting"] == 30
        with pytest.raises(QueueFull, match="30 tokens wait already and at most 50 may, got 21"):
            await deltas(engine, request("c" * 21))
        assert engine.stats()["requests_rejected"] == 1
        tasks += await at_once(engine, [request("c" * 20)])
        model.gate.set()
        assert [(await t)[-1].finish_reason for t in tasks] == ["length"] * 4
        assert engine.stats()["tokens_waiting"] == 0


async def test_what_operators_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is listed with its counts and pages, and is gone when it is done."""
    monkeypatch.setattr(observation, "PUBLISH_EVERY_S", 0)
    model = FakeModel(max_seqs=1, max_context=64)
    model.gate = threading.Event()
    async with running(model) as engine:
        asked = [
            Request(name, ids("abcdefgh"), SamplingParams(max_tokens=6), priority=p)
            for name, p in (("one", 2), ("two", 0), ("three", -1))
        ]
        tasks = await at_once(engine, asked[:1])
        await until(lambda: engine.stats()["requests_running"] >= 1 and model.entered.is_set())
        tasks += await at_once(engine, asked[1:])
        # One step passes: the next finds another gate, which is shut.
        first, model.gate = model.gate, threading.Event()
        first.set()
        await until(lambda: len(engine.sequences()) >= 3)
        one, three, two = engine.sequences()
        assert [i.request_id for i in (one, two, three)] == ["one", "two", "three"]
        assert [i.state for i in (one, two, three)] == ["running", "waiting", "waiting"]
        assert (one.priority, one.prompt_tokens, one.generated_tokens) == (2, 8, 1)
        assert (one.pages, two.pages) == ({"full": 3}, {})
        assert one.age_s >= two.age_s >= 0
        model.gate.set()
        await asyncio.gather(*tasks)
        await idle(engine)
        await until(lambda: engine.sequences() == ())
