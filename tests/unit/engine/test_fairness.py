"""Who shares a key shares its part: no tenant takes the places of the others."""

import asyncio
import random
import threading
from dataclasses import replace

import pytest

from radiance_core.engine.interface import Delta, QueueFull, Request

from .fake_engine import at_once, deltas, idle, request, running, until
from .fake_model import FakeModel, plan


def of(tenant: str, text: str, priority: int = 0, **sampling: object) -> Request:
    """A request of a tenant, whose text begins like no other's."""
    return replace(request(text, **sampling), tenant=tenant, priority=priority)


def firsts(model: FakeModel) -> str:
    """The letters that prompts began with, in the order in which the prompts were read."""
    starts = [(s.rows(i), s.positions[s.cu_seqlens[i]])
              for s in model.steps for i in range(s.shape.seqs)]  # fmt: skip
    return "".join(chr(rows[0]) for rows, at in starts if at == 0)


async def test_tenants_take_turns() -> None:
    """With one seat, each tenant that waits enters once before any enters twice."""
    model = FakeModel(max_seqs=1)
    async with running(model, max_queued=20, keep_prefixes=False) as engine:
        asked = [of("A", c + "x", max_tokens=1) for c in "abcd"]
        asked += [of("B", c + "x", max_tokens=1) for c in "nop"]
        asked += [of("C", "zx", max_tokens=1)]
        for task in await at_once(engine, asked):
            await task
    assert firsts(model) == "anzbocpd"


async def test_priority_goes_before_turns() -> None:
    """A lower number enters first, whoever it is of and however many of its tenant ran."""
    model = FakeModel(max_seqs=1)
    async with running(model, max_queued=20, keep_prefixes=False) as engine:
        asked = [of("A", c + "x", max_tokens=1) for c in "ab"]
        asked += [of("B", "nx", 1, max_tokens=1), of("A", "cx", -1, max_tokens=1)]
        for task in await at_once(engine, asked):
            await task
    assert firsts(model) == "cabn"


async def test_a_free_seat_goes_to_who_has_fewest() -> None:
    """While one tenant's long answers hold seats, the next seats are another's."""
    model = FakeModel(max_seqs=4, plans=[plan(pages=200)])
    async with running(model, max_queued=20, keep_prefixes=False) as engine:
        asked = [of("A", c + "x", max_tokens=9) for c in "abcdefgh"]
        asked += [of("B", c + "x", max_tokens=9) for c in "no"]
        for task in await at_once(engine, asked):
            await task
    assert set(firsts(model)[:4]) == set("abno")


def displaced(outcome: list[Delta] | BaseException) -> bool:
    """Whether a request was sent away rather than answered."""
    told = "others, who wait for less, needed the place of this request; come back later"
    assert isinstance(outcome, list) or (type(outcome) is QueueFull and told in str(outcome))
    return not isinstance(outcome, list)


async def test_one_tenant_fills_the_queue_only_while_nobody_else_comes() -> None:
    """Newcomers of others displace the last of who has most, until all have equal shares."""
    model = FakeModel(max_seqs=1)
    model.gate = threading.Event()
    async with running(model, max_queued=6) as engine:
        mine = [asyncio.create_task(deltas(engine, of("A", "ax"))) for _ in range(7)]
        await until(lambda: engine.stats()["requests_waiting"] == 6)
        with pytest.raises(QueueFull, match="6 requests wait already and at most 6 may"):
            await deltas(engine, of("A", "ax"))
        others = [asyncio.create_task(deltas(engine, of("B", "bx"))) for _ in range(3)]
        await until(lambda: engine.stats()["requests_rejected"] == 4)
        for tenant in "AB":
            with pytest.raises(QueueFull, match="6 requests wait already"):
                await deltas(engine, of(tenant, "cx"))
        assert engine.stats()["requests_waiting"] == 6
        model.gate.set()
        got = await asyncio.gather(*mine, *others, return_exceptions=True)
        assert [displaced(one) for one in got] == [False] * 4 + [True] * 3 + [False] * 3
        await idle(engine)
        assert engine.stats()["tokens_waiting"] == 0


async def test_who_lost_its_place_comes_back_first() -> None:
    """Under any mix of tenants, priorities and few pages, all are answered whole and in order."""
    rng = random.Random()
    seed = rng.randrange(2**32)
    rng = random.Random(seed)
    model = FakeModel(plans=[plan(pages=17)], max_seqs=4, keep=False)
    async with running(model, max_queued=99) as engine:
        asked = [
            of(rng.choice("ABC"), rng.choice("abcdefg") * rng.randint(1, 30), rng.choice([0, 0, 1]),
               max_tokens=rng.randint(0, 30))
            for _ in range(60)
        ]  # fmt: skip
        for req, task in zip(asked, await at_once(engine, asked), strict=True):
            last = (await task)[-1]
            assert last.completion_tokens == req.sampling.max_tokens, f"seed {seed}"
        await idle(engine)
        assert engine.stats()["preemptions"] > 0, f"seed {seed}"
