"""Rows of sampling: what looks back, what breaks repetitions, and what no row can hold."""

import asyncio
import random
import time
from typing import Any

import numpy as np
import pytest
from processor_time import least

from radiance_core.constrain.errors import ConstraintError
from radiance_core.engine.breakers import MOST_TOKENS, BreakerFinder
from radiance_core.engine.interface import Request
from radiance_core.engine.row_plan import plan_rows, row_fault
from radiance_core.engine.sampling import SamplingParams
from radiance_core.engine.sampling_row import (
    BIAS,
    DRY,
    GREEDY,
    LOGPROBS,
    MASK,
    PENALTY,
    XTC,
    flags_of,
)
from radiance_core.engine.token_history import TokenHistory
from radiance_core.text.errors import TokenizerError

from .fake_engine import at_once, deltas, request, running
from .fake_model import FakeModel, plan

PIECES = [b"", b"a", b"b", b"ab", b"\n", b"a\n", b": b", b"\xc3", b"\xa4", b"x: "]


def spelled(token: int) -> bytes:
    if token >= len(PIECES):
        raise TokenizerError(f"token {token}: expected an id of the vocabulary")
    return PIECES[token]


def ended(tokens: list[int], texts: list[str]) -> list[int]:
    """Say by comparing at every byte in which tokens a breaker ends."""
    owner = [place for place, token in enumerate(tokens) for _ in spelled(token)]
    text = b"".join(spelled(t) for t in tokens)
    ends = [0] * len(tokens)
    for breaker in (t.encode() for t in texts):
        for at in range(len(text) - len(breaker) + 1):
            if text[at : at + len(breaker)] == breaker:
                first, last = owner[at], owner[at + len(breaker) - 1]
                if last - first < MOST_TOKENS:
                    ends[last] = 1
    return ends


def test_breakers_are_found_however_tokens_cut_them() -> None:
    """Token by token, in runs or whole, with drafts that are gone again: the marks are the same."""
    rng = random.Random()
    for _ in range(300):
        tokens = [rng.randrange(len(PIECES)) for _ in range(rng.randint(1, 60))]
        texts = rng.sample(["\n", ": ", "ab", "ba\n", "ä", "aaaa", "abababababababababababab"], 3)
        history = TokenHistory(BreakerFinder(texts, spelled))
        at = 0
        while at < len(tokens):
            at += rng.randint(1, 9)
            drafted = [rng.randrange(len(PIECES)) for _ in range(rng.choice([0, 0, 3]))]
            history.follow(tokens[:at], drafted)
            seen = [*tokens[:at], *drafted]
            ids, breakers = np.zeros(len(seen), np.int32), np.zeros(len(seen), np.uint8)
            history.copy(0, len(seen), ids, breakers)
            assert ids.tolist() == seen
            ends = ended(seen, texts)
            assert breakers.tolist() == ends
            since = ends[::-1].index(1) if 1 in ends else len(ends)
            assert history.since_breaker(len(seen)) == since


def test_a_token_without_a_spelling_breaks_nothing() -> None:
    """An id that the model has and the tokenizer has not is no reason to fail."""
    history = TokenHistory(BreakerFinder(["\n"], spelled))
    history.follow([1, 99, 4, 99, 99], [])
    assert history.since_breaker(5) == 2


def test_a_whole_prompt_takes_little_time() -> None:
    """A hundred thousand tokens are marked in well under a second."""
    tokens = [1, 2, 4, 9] * 25_000

    def mark() -> None:
        TokenHistory(BreakerFinder(["\n", ":", '"', "*"], spelled)).follow(tokens, [])

    assert least(mark, 1, time.thread_time) < 1


@pytest.mark.parametrize(
    ("sampling", "masked", "flags"),
    [
        ({"temperature": 0.0}, False, GREEDY),
        ({"temperature": 0.0}, True, MASK),
        ({"temperature": 0.0, "logprobs": 0}, False, GREEDY | LOGPROBS),
        ({"temperature": 0.0, "presence_penalty": 1.0}, False, PENALTY),
        ({"temperature": 0.0, "presence_penalty": 1.0, "penalty_last_n": 0}, False, GREEDY),
        ({"temperature": 0.0, "xtc_probability": 1.0}, False, GREEDY),
        ({"temperature": 0.7, "xtc_probability": 1.0}, False, XTC),
        ({"logit_bias": {3: 1.0}, "dry_multiplier": 1.0}, True, BIAS | DRY | MASK),
        ({"dry_multiplier": 1.0, "dry_last_n": 0}, False, 0),
    ],
)
def test_flags(sampling: dict[str, Any], masked: bool, flags: int) -> None:
    """A row asks for the stages that it needs and no other; greedy is what nothing changes."""
    assert flags_of(SamplingParams(**sampling), masked=masked) == flags


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        ({"logprobs": 21}, "logprobs: expected 0 to 20, got 21"),
        ({"prompt_logprobs": -1}, "prompt_logprobs: expected 0 to 20, got -1"),
        ({"logit_bias": {256: 1.0}}, "logit_bias: expected token ids from 0 to 255, got 256"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias: expected token ids from 0 to 255, got -1"),
        (
            {"logit_bias": dict.fromkeys(range(1025), 1.0)},
            "logit_bias: expected at most 1024 tokens, got 1025",
        ),
        ({"top_k": 2**31}, "sampling: expected numbers that a sampling row can hold: "),
        ({"dry_base": 1e300}, "sampling: expected numbers that a sampling row can hold: "),
    ],
)
async def test_what_no_row_can_hold_ends_that_request(sampling: dict[str, Any], said: str) -> None:
    """It is told before the request reaches a step, and its neighbours do not notice."""
    assert (row_fault(SamplingParams(**sampling), 256) or "").startswith(said)
    async with running(FakeModel()) as engine:
        (only,) = await deltas(engine, request("ab", **sampling))
        assert only.finish_reason == "error"
        assert (only.error or "").startswith(said)
        assert (await deltas(engine, request("ab")))[-1].finish_reason == "length"


def test_ends_are_masked_bit_by_bit() -> None:
    """Every id that ends a text is left out, wherever it stands in a word; others are not."""
    ends = {0, 31, 32, 63, 64, 98, 500, -1}
    params = SamplingParams(min_tokens=1)
    rows = plan_rows(Request("r", (1,), params), 3, ends, 99, spelled)
    assert rows.no_end is not None
    allowed = np.unpackbits(rows.no_end.view(np.uint8), bitorder="little")[:99]
    assert set(np.flatnonzero(allowed == 0).tolist()) == {0, 31, 32, 63, 64, 98}


class Steps:
    """Allows one token after each text, and counts how its state is moved."""

    def __init__(self, path: bytes) -> None:
        self.path, self.at = path, 0

    def fill(self, words: np.ndarray) -> None:
        words[:] = 0
        if self.at < len(self.path):
            words.view(np.uint32)[self.path[self.at] // 32] = 1 << self.path[self.at] % 32

    def accept(self, token: int) -> bool:
        if self.at < len(self.path) and token == self.path[self.at]:
            self.at += 1
            return True
        return False

    def rewind(self, count: int) -> None:
        self.at -= count

    @property
    def is_complete(self) -> bool:
        return self.at == len(self.path)


async def test_a_constraint_leads_a_text_and_ends_it() -> None:
    """Greedy text goes where only the constraint lets it, and ends when the constraint is whole."""
    async with running(FakeModel()) as engine:
        asked = request("ab", max_tokens=20)
        asked.constraint = Steps(b"zebra")
        got = await deltas(engine, asked)
        assert "".join(d.text for d in got) == "zebra"
        assert (got[-1].finish_reason, got[-1].completion_tokens) == ("stop", 5)
        assert tuple(t for d in got for t in d.token_ids) == tuple(b"zebra")


async def test_a_constraint_without_a_next_token_ends_its_request_alone() -> None:
    """The client is told that the constraint leaves nothing; a neighbour is answered as ever."""

    class Nothing(Steps):
        is_complete = False

    async with running(FakeModel()) as engine:
        asked = request("ab", max_tokens=20)
        asked.constraint = Nothing(b"ze")
        got = await deltas(engine, asked)
        assert "".join(d.text for d in got) == "ze"
        assert (got[-1].finish_reason, got[-1].at_fault) == ("error", "constraint")
        assert (got[-1].error or "").startswith(
            "constraint: expected a token that may come after 2 generated ones"
        )
        assert (await deltas(engine, request("ab")))[-1].finish_reason == "length"


async def test_a_constraint_that_fails_to_go_on_ends_its_request_alone(capsys) -> None:
    """What a constraint says of a drawn token is told as its request's fault and logged as news."""

    class Stuck(Steps):
        def accept(self, token: int) -> bool:
            if self.at == 2:
                raise ConstraintError("constraint: expected less, got more; make it simpler.")
            return super().accept(token)

    async with running(FakeModel()) as engine:
        asked = request("ab", max_tokens=20)
        asked.constraint = Stuck(b"zebra")
        got = await deltas(engine, asked)
        assert "".join(d.text for d in got) == "ze"
        assert (got[-1].finish_reason, got[-1].at_fault) == ("error", "constraint")
        assert got[-1].error == "constraint: expected less, got more; make it simpler."
        assert (await deltas(engine, request("ab")))[-1].finish_reason == "length"
    logged = "".join(capsys.readouterr())
    assert "Traceback" not in logged
    assert "level=error" not in logged


async def test_drafted_places_are_masked_as_if_the_draft_were_drawn() -> None:
    """Each place has the mask after the drafts before it, and the state is as it was before."""
    model = FakeModel(max_seqs=8)
    async with running(model, start=False) as engine:
        asked = request("ab", max_tokens=20, min_tokens=2)
        asked.constraint = Steps(b"zebra")
        seq = engine._sequence(asked, lambda _: True)
        seq.drafted = list(b"zebxy")
        drawing = engine._loop._batch.drawing
        drawing.begin()
        for place in range(6):
            drawing.write(seq, place, len(seq.tokens) + place)
        assert asked.constraint.at == 0
    rows = [np.unpackbits(r.view(np.uint8), bitorder="little") for r in model.inputs["bitmask"]]
    # Where a draft is not allowed something else is drawn, and nobody looks at what follows.
    assert [np.flatnonzero(r).tolist() for r in rows[:4]] == [[ord(c)] for c in "zebr"]


@pytest.mark.parametrize("last_n", [-1, 3, 64])
async def test_drafted_places_look_back_at_one_history(last_n: int) -> None:
    """Each place sees the tokens before it, and all of a text's places need room for one text."""
    model = FakeModel(max_seqs=8)
    async with running(model, start=False) as engine:
        drawing = engine._loop._batch.drawing
        drawing.begin()
        asked = [request("ab" * 20, presence_penalty=1.0, penalty_last_n=last_n) for _ in range(2)]
        out = 0
        for each in asked:
            seq = engine._sequence(each, lambda _: True)
            seq.drafted = list(b"xyz")
            for at in range(40, 44):
                drawing.write(seq, out, at)
                offset, length = model.inputs["sampling"][out].view(np.int32)[19:21]
                seen = bytes(model.inputs["history"][offset : offset + length].tolist())
                whole = b"ab" * 20 + b"xyz"[: at - 40]
                assert seen == (whole if last_n < 0 else whole[-last_n:])
                out += 1
        rows = model.inputs["sampling"].view(np.int32)[:8]
        used = max(row[19] + row[20] for row in rows)
        assert used <= 2 * 43


async def test_a_whole_text_ends_before_min_tokens() -> None:
    """When the constraint allows only an end, the text ends although more was asked for."""

    class Ends(Steps):
        is_complete = False

        def fill(self, words: np.ndarray) -> None:
            super().fill(words)
            if self.at == len(self.path):
                words[0] |= 1  # token 0 ends a text

    async with running(FakeModel()) as engine:
        asked = request("ab", max_tokens=20, min_tokens=9)
        asked.constraint = Ends(b"ox")
        got = await deltas(engine, asked)
        assert ("".join(d.text for d in got), got[-1].finish_reason) == ("ox", "stop")


async def test_special_tokens_are_shown_on_request() -> None:
    """A special id that is named is part of the text; without that it is not."""
    ends = FakeModel(token_after=lambda t: 0 if t == ord("d") else t + 1)
    async with running(ends) as engine:
        for shown, text in ((frozenset(), "cd\x01\x02"), (frozenset({0}), "cd\x00\x01\x02")):
            asked = request("ab", max_tokens=5, ignore_eos=True)
            asked.shown_special_ids = shown
            assert "".join(d.text for d in await deltas(engine, asked)) == text


async def test_a_prompt_is_told_once_though_its_place_is_lost() -> None:
    """In pieces as small as a step has rows, and over preemptions, each token is told, in order."""
    model = FakeModel([plan(pages=9, block_size=4)], max_seqs=3, max_context=36)
    texts = ["abcdefghijklm", "nopqrstuvw", "xyzabcdefghij", "ab", "c"]
    async with running(model) as engine:
        asked = [
            request(text, max_tokens=22, prompt_logprobs=0, logprobs=0, ignore_eos=True)
            for text in texts
        ]
        answers = await asyncio.gather(*await at_once(engine, asked))
        assert engine.stats()["preemptions"] > 0
    for text, got in zip(texts, answers, strict=True):
        told = [t.token_id for d in got for t in d.prompt_logprobs]
        assert bytes(told) == text.encode()[1:]
        assert bool(got[0].prompt_logprobs) == (len(text) > 1)
        tokens = [t for d in got for t in d.token_ids]
        assert [t.token_id for d in got for t in d.logprobs] == tokens
        assert len(tokens) == 22
    widest = max(len(step.out_ids) for step in model.steps)
    assert widest == model.max_seqs
