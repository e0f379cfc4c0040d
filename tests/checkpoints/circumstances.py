"""The same requests in different circumstances: alone, in a crowd, after others, out of pages."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from radiance_core.build import BuildSettings, Plan, load_model, plan_model
from radiance_core.engine.interface import Delta, Request
from radiance_core.engine.pace import Pace
from radiance_core.engine.sampling import SamplingParams
from radiance_core.engine.serving import LocalEngine

CONTEXT = 160
WRONG = {"guessed rightly": 0.0, "guessed now and then": 0.3, "guessed wrongly": 1.0}
"""Requests that are always guessed ahead of, by name: the share of guesses that are wrong."""


class Numbers:
    """A tokenizer whose tokens are spelled as numbers, for models that know no text."""

    eos_ids = frozenset({2})
    special_ids = frozenset({2})
    error_mode = "replace"

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def token_bytes(self, id_: int) -> bytes:
        """Return the number and a space."""
        return b"%d " % id_

    def starts_with_added_space(self, _id: int) -> bool:
        """Return that none does."""
        return False


@dataclass(frozen=True, slots=True)
class Circumstance:
    """How a request is served.

    Args:
        name: for people.
        max_seqs, max_tokens: bounds of a step.
        pages: tokens of every pool in full-length conversations; small ones make requests give way.
        keep_prefixes: whether the prefix cache is on.
        drafts: tokens that are guessed ahead.
        shortage: share of the times that pages are refused although there are some.
        alone: one request at a time.
        fillers: seats that long answers to short prompts hold all the time; their own answers are
            not compared.
        chunk: prompt tokens of a step that several take part in; 0 for what time allows.
    """

    name: str
    max_seqs: int = 8
    max_tokens: int = 64
    pool: float = 8.0
    keep_prefixes: bool = False
    drafts: int = 0
    shortage: float = 0.0
    alone: bool = False
    fillers: int = 0
    chunk: int = 0


SEATS = 32
ALONE = Circumstance("alone, whole prompts", max_seqs=1, max_tokens=CONTEXT, alone=True)
CROWDS = (
    Circumstance("among others"),
    Circumstance("among others, cached prompts", keep_prefixes=True),
    Circumstance("short of pages", pool=4.0, shortage=0.3),
    Circumstance("short of pages, cached prompts", pool=4.0, shortage=0.3, keep_prefixes=True),
    Circumstance("one token a step and sequence", max_seqs=4, max_tokens=1, keep_prefixes=True),
    Circumstance("chunks of 7", max_seqs=3, max_tokens=7),
    Circumstance("chunks of 16, cached prompts", max_tokens=16, keep_prefixes=True),
    Circumstance("guesses of 1", drafts=1),
    Circumstance("guesses of 6, cached prompts", drafts=6, keep_prefixes=True),
    Circumstance("guesses of 3, short of pages", drafts=3, pool=4.0, shortage=0.3),
    *(
        Circumstance(
            f"among 31 others, chunks of {chunk}",
            max_seqs=SEATS,
            max_tokens=SEATS - 1 + chunk,
            pool=float(SEATS),
            keep_prefixes=chunk in (7, 64),
            drafts=2 if chunk == 512 else 0,
            fillers=SEATS - 1,
            chunk=chunk,
        )
        for chunk in (1, 7, 16, 64, 512)
    ),
)


class Chunks(Pace):
    """Says how many prompt tokens a step may take, whatever it costs."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self._chunk = tokens

    @property
    def tokens(self) -> int:
        """Return the number that was asked for."""
        return self._chunk


def settings_of(path: Path, how: Circumstance, **more: Any) -> BuildSettings:
    """Return how the model is built for a circumstance."""
    return BuildSettings(
        path,
        max_seqs=how.max_seqs,
        max_tokens=how.max_tokens,
        max_context=CONTEXT,
        max_drafts=how.drafts,
        accept_reference=True,
        **more,
    )


def with_pool(plan: Plan, conversations: float) -> Plan:
    """Return a plan whose pools back as many full-length conversations."""
    groups = tuple(
        replace(g, pages=max(1, int(-(-CONTEXT // g.block_size) * conversations)))
        if not g.window
        else g
        for g in plan.budget.groups
    )
    return replace(plan, budget=replace(plan.budget, groups=groups))


@contextmanager
def serving(
    path: Path, how: Circumstance, tokenizer: Any = None, **more: Any
) -> Iterator[LocalEngine]:
    """Serve a model in a circumstance; ``more`` goes into its build settings."""
    plan = with_pool(plan_model(settings_of(path, how, **more)), how.pool)
    model = load_model(plan)
    try:
        engine = LocalEngine(
            model,
            tokenizer or Numbers(model.n_vocab),
            max_context=CONTEXT,
            max_seqs=how.max_seqs,
            max_tokens=how.max_tokens,
            max_queued=10**6,
            keep_prefixes=how.keep_prefixes,
            max_drafts=how.drafts,
        )
        _refuse_some(engine, how.shortage)
        _watch_seats(engine)
        if how.chunk:
            engine._loop.pace = Chunks(how.chunk)
        engine.start()
        try:
            yield engine
        finally:
            engine.stop()
    finally:
        model.close()


class Hints:
    """Guesses what an answer is known to be, and now and then something else."""

    def __init__(self, ids: Sequence[int], wrong: float) -> None:
        self._ids = ids
        self._wrong = wrong

    def guess(self, ids: Sequence[int], count: int) -> list[int]:
        """Return up to ``count`` tokens to follow ``ids``."""
        known = self._ids[len(ids) : len(ids) + count]
        return [3 if random.random() < self._wrong else token for token in known]


def hint(engine: LocalEngine, asked: Sequence[Request], known: Sequence[Sequence[Delta]]) -> None:
    """Let an engine that guesses ahead guess from answers that are known, rightly or wrongly."""
    texts = {
        request.request_id: [*request.prompt_ids, *(t for d in got for t in d.token_ids)]
        for request, got in zip(asked, known, strict=True)
    }
    made = type(engine)._sequence

    def hinted(request: Request, emit: Any) -> Any:
        seq = made(engine, request, emit)
        if seq.lookup is not None:
            wrong = WRONG.get(request.request_id, random.choice([0.0, 0.3, 1.0]))
            seq.lookup = Hints(texts.get(request.request_id, ()), wrong)
        return seq

    engine._sequence = hinted  # type: ignore[method-assign]


def _watch_seats(engine: LocalEngine) -> None:
    """Keep in ``most_seats`` the most sequences that went through one step."""
    loop = engine._loop
    run = loop._model.run
    engine.most_seats = 0  # type: ignore[attr-defined]

    def watched(shape: Any, abort: Any = None) -> None:
        engine.most_seats = max(engine.most_seats, shape.seqs)  # type: ignore[attr-defined]
        run(shape, abort)

    loop._model.run = watched  # type: ignore[method-assign]


def _refuse_some(engine: LocalEngine, share: float) -> None:
    loop = engine._loop
    hold = loop.cache.hold

    refused: dict[Any, int] = {}

    def sometimes(held: Any, *asked: int) -> bool:
        # Who asks may ask again before it gives way; one that runs alone gets what there is.
        if random.random() < share:
            refused[held] = 3
        if len(loop._running) > 1 and refused.get(held):
            refused[held] -= 1
            return False
        return hold(held, *asked)

    loop.cache.hold = sometimes  # type: ignore[method-assign]


def requests(rng: random.Random, count: int, vocab_size: int) -> list[Request]:
    """Return requests of every kind of sampling whose prompts share beginnings."""
    stems = [[rng.randrange(3, vocab_size) for _ in range(CONTEXT - 40)] for _ in range(5)]
    made = []
    for number in range(count):
        prompt = rng.choice(stems)[: rng.randint(1, CONTEXT - 40)]
        prompt = prompt + [rng.randrange(3, vocab_size) for _ in range(rng.choice([0, 0, 1, 9]))]
        made.append(Request(str(number), tuple(prompt), _sampling(rng)))
    return made


def guessable(rng: random.Random, vocab_size: int) -> list[Request]:
    """Return a request for each of ``WRONG``; penalties, which leave no room to guess, are off."""
    plain = SamplingParams(max_tokens=25, temperature=0.7, ignore_eos=True)
    return [
        Request(
            name,
            tuple(rng.randrange(3, vocab_size) for _ in range(20)),
            replace(plain, seed=rng.randrange(2**64)),
        )
        for name in WRONG
    ]


def _sampling(rng: random.Random) -> SamplingParams:
    return SamplingParams(
        max_tokens=rng.randint(1, 30),
        temperature=rng.choice([0.0, 0.0, 0.7, 1.5]),
        top_p=rng.choice([1.0, 0.9]),
        top_k=rng.choice([0, 40]),
        min_p=rng.choice([0.0, 0.05]),
        repetition_penalty=rng.choice([1.0, 1.0, 1.0, 1.2]),
        frequency_penalty=rng.choice([0.0, 0.0, 0.0, 0.6]),
        penalty_last_n=rng.choice([16, 64, -1]),
        dry_multiplier=rng.choice([0.0, 0.0, 0.0, 0.8]),
        xtc_probability=rng.choice([0.0, 0.3]),
        logit_bias=rng.choice([{}, {5: 1.5, 7: -100.0}]),
        logprobs=rng.choice([None, 0, 3]),
        seed=rng.randrange(2**64),
        ignore_eos=rng.random() < 0.5,
    )


def answers(
    engine: LocalEngine, asked: Sequence[Request], how: Circumstance, rng: random.Random
) -> list[list[Delta]]:
    """Return every delta of every request, with how much was cached left out."""
    vocab_size = engine._n_vocab

    async def one(request: Request, delay_s: float) -> list[Delta]:
        if delay_s:
            await asyncio.sleep(delay_s)
        return [replace(d, cached_tokens=0) async for d in engine.generate(request)]

    async def fill(number: int) -> None:
        while True:
            prompt = tuple(rng.randrange(3, vocab_size) for _ in range(rng.randint(1, 3)))
            sampling = replace(_sampling(rng), max_tokens=rng.randint(60, 150), ignore_eos=True)
            async for _ in engine.generate(Request(f"f{number}", prompt, sampling, priority=-1)):
                pass

    async def run() -> list[list[Delta]]:
        if how.alone:
            return [await one(request, 0.0) for request in asked]
        with engine._loop._wake:
            # Most come before any of them can end, the others while they run.
            fillers = [asyncio.create_task(fill(number)) for number in range(how.fillers)]
            delays = (rng.choice([0.0, 0.0, 0.001, 0.01, 0.1]) for _ in asked)
            tasks = [asyncio.create_task(one(*each)) for each in zip(asked, delays, strict=True)]
            await asyncio.sleep(0)
        got = [await task for task in tasks]
        for filler in fillers:
            filler.cancel()
        ends = await asyncio.gather(*fillers, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends
        return got

    return asyncio.run(run())
