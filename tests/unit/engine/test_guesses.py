"""Tokens that are guessed ahead: answers stay the same, and right guesses save steps."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiance_core.engine.drafting import PATTERNS, PromptLookup
from radiance_core.engine.interface import Delta, Request
from radiance_core.engine.sampling import SamplingParams

from .fake_engine import at_once, deltas, idle, ids, request, running
from .fake_model import FakeModel, kernel_error, plan
from .texts import continuation

LOOP = "abcdefgh"


def looping(**given_: object) -> FakeModel:
    """A model that says the same eight letters for ever, so that guesses are right."""
    given_.setdefault("max_context", 300)
    given_.setdefault("max_tokens", 64)
    given_.setdefault("plans", [plan("full", 200), plan("w", 200, 4, 9)])
    return FakeModel(token_after=lambda t: 97 + (t - 96) % 8, **given_)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=80), st.integers(1, 20), st.data())
def test_a_guess_is_what_followed_before(text: list[int], count: int, data: st.DataObject) -> None:
    """The longest pattern that stood there before says what follows, from its last place."""
    lookup = PromptLookup()
    for cut in sorted({data.draw(st.integers(1, len(text))) for _ in range(3)} | {len(text)}):
        got = lookup.guess(text[:cut], count)
        assert got == expected_guess(text[:cut], count)


def expected_guess(text: list[int], count: int) -> list[int]:
    for size in PATTERNS:
        places = [at for at in range(size, len(text)) if text[at - size : at] == text[-size:]]
        if len(text) >= size and places:
            grown = list(text)
            for at in range(places[-1], places[-1] + count):
                grown.append(grown[at])
            return grown[len(text) :]
    return []


@pytest.mark.parametrize("drafts", [1, 3, 8, 16])
async def test_right_guesses_save_steps(drafts: int) -> None:
    """A text that repeats takes about one step for each guess and one more."""
    plain, quick = looping(), looping(max_drafts=drafts)
    async with running(plain) as engine:
        expected = await deltas(engine, request("h" + LOOP, max_tokens=100))
    async with running(quick) as engine:
        assert await deltas(engine, request("h" + LOOP, max_tokens=100)) == expected
        await idle(engine)
        stats = engine.stats()
    assert len(quick.steps) <= 100 / (1 + drafts) + 14
    assert stats["accepted_tokens"] == stats["draft_tokens"] > 0
    assert stats["decode_steps"] == stats["steps"] - stats["prefill_steps"]
    assert stats["tokens_generated"] == 100


@pytest.mark.parametrize("drafts", [1, 2, 5, 16])
async def test_answers_are_the_same_with_guesses(drafts: int) -> None:
    """Whatever is guessed, right or wrong, every delta is the one without guesses."""
    follows = [random.randrange(97, 103) for _ in range(256)]
    asked = [
        Request(
            str(i),
            ids("".join(random.choices("abcdef", k=random.randint(1, 60)))),
            SamplingParams(
                max_tokens=random.randint(1, 60),
                temperature=random.choice([0.0, 1.0]),
                presence_penalty=random.choice([0.0, 0.5]),
                penalty_last_n=random.choice([5, 64, -1]),
                logprobs=random.choice([None, 2]),
                prompt_logprobs=random.choice([None, None, 1]),
                min_tokens=random.choice([0, 5]),
                stop=random.choice([(), ("ab", "cde")]),
                stop_token_ids=random.choice([(), (100,)]),
                seed=i,
            ),
        )
        for i in range(30)
    ]
    got: list[list[list[Delta]]] = []
    for guesses in (0, drafts):
        model = FakeModel(
            plans=[plan("full", 40), plan("w", 40, 4, 7)],
            max_seqs=4, max_tokens=24, max_context=130, max_drafts=guesses,
            token_after=lambda last: follows[last],
        )  # fmt: skip
        told = model.told
        told.rank[:] = 1
        real = model.run

        def run(
            shape: object, abort: object, real: object = real, model: FakeModel = model
        ) -> None:
            real(shape, abort)  # type: ignore[operator]
            # What is told of a row is a number of its own text.
            rows = model.inputs["out_ids"][: shape.out_rows]  # type: ignore[attr-defined]
            model.told.logprob[: len(rows), 0] = model.inputs["positions"][rows] * -0.5

        model.run = run  # type: ignore[method-assign]
        async with running(model, max_queued=40, keep_prefixes=False) as engine:
            got.append([await t for t in await at_once(engine, asked)])
            await idle(engine)
            stats = engine.stats()
    assert stats["draft_tokens"] > stats["accepted_tokens"] > 0
    for req, without, with_them in zip(asked, *got, strict=True):
        assert without == with_them, req


async def test_guesses_over_a_small_pool() -> None:
    """Guesses never cost another request its pages, and what they wrote in vain is not found."""
    model = FakeModel(
        plans=[plan("full", 26)], max_seqs=6, max_tokens=24, max_context=100, max_drafts=4,
        is_deep=True,
    )  # fmt: skip
    reqs = [request("ab" * random.randint(1, 30), max_tokens=40) for _ in range(20)]
    async with running(model, max_queued=30) as engine:
        for _ in range(2):
            answers = [await t for t in await at_once(engine, reqs)]
            for req, got in zip(reqs, answers, strict=True):
                assert "".join(d.text for d in got) == continuation(req.prompt_ids, 40)
        await idle(engine)
        stats = engine.stats()
        assert stats["preemptions"] > 0
        assert stats["prefix_cache_hits"] > 0
        assert stats["draft_tokens"] > 0


async def test_prompts_are_not_starved_by_guesses() -> None:
    """While a prompt waits, guesses leave half of a step's tokens to it."""
    model = looping(max_drafts=16, max_seqs=4, max_tokens=16, keep=True)
    async with running(model) as engine:
        reqs = [request("h" + LOOP * 2, max_tokens=150) for _ in range(3)]
        tasks = await at_once(engine, [*reqs, request("xyz" * 60, max_tokens=1)])
        for task in tasks:
            await task
    mixed = [s for s in model.steps if any(ord("y") in s.rows(i) for i in range(s.shape.seqs))]
    assert len(mixed) <= 180 / 6 + 4


async def test_a_fault_among_guesses_ends_one_request() -> None:
    """Halves of a step run with the same guesses, and give the same answers."""
    model = looping(max_drafts=4, max_seqs=4)
    model.fault = lambda seen: kernel_error() if ord("!") in seen.tokens else None
    async with running(model) as engine:
        good = [request("h" + LOOP, max_tokens=50) for _ in range(3)]
        tasks = await at_once(engine, [*good, request("a!", max_tokens=5)])
        *answers, bad = [await t for t in tasks]
        assert bad[-1].finish_reason == "error"
        for got in answers:
            assert "".join(d.text for d in got) == (LOOP * 7)[:50]


class Alternating:
    """Allows "a" then "b" then "a" and so on, and ends after a number of letters."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.count = 0
        self.walked = 0

    def fill(self, words: np.ndarray) -> None:
        words[:] = 0
        token = 97 + self.count % 2
        words[token // 32] = np.int32(1 << token % 32)

    def accept(self, token: int) -> bool:
        if self.count == self.length or token != 97 + self.count % 2:
            return False
        self.count += 1
        return True

    def rewind(self, count: int) -> None:
        self.count -= count
        self.walked += count
        assert self.count >= 0

    @property
    def is_complete(self) -> bool:
        return self.count == self.length


async def test_constraints_are_walked_and_taken_back() -> None:
    """A constrained text is guessed too, and its constraint ends where its text does."""
    model = looping(max_drafts=4)
    constraint = Alternating(31)
    req = Request(
        "c", ids("xab"), SamplingParams(max_tokens=60, temperature=0), constraint=constraint
    )
    async with running(model) as engine:
        got = await deltas(engine, req)
        await idle(engine)
        stats = engine.stats()
    assert "".join(d.text for d in got) == ("ab" * 16)[:31]
    assert got[-1].finish_reason == "stop"
    assert constraint.count == 31
    assert constraint.walked > 0
    assert stats["accepted_tokens"] > 10
