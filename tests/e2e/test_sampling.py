"""The whole way of a token, from a small real model's logits to what is told of it.

The oracle is transformers: its logits in double precision, and its processors of them.
"""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoints.cases import CASES
from checkpoints.making import Made, make

from radiance_core.build import BuildSettings, load_model, plan_model
from radiance_core.engine.interface import Delta, Request
from radiance_core.engine.sampling import SamplingParams
from radiance_core.engine.serving import LocalEngine

CONTEXT, SEQS = 64, 4
CLOSE = 2e-4
"""Error of a log probability, ten times what was met: weights, activations and cache are f32."""


class Bytes:
    """Each token spells a letter, but token 7 a new line; token 514 ends a text."""

    eos_ids = frozenset({514})
    special_ids = frozenset({514})
    error_mode = "replace"
    vocab_size = 515

    def token_bytes(self, id_: int) -> bytes:
        return b"\n" if id_ == 7 else bytes([97 + id_ % 26])

    def starts_with_added_space(self, id_: int) -> bool:
        return False


@dataclass
class Served:
    """A small checkpoint with an engine, and what the reference makes of it."""

    made: Made
    engine: LocalEngine
    count: int = 0

    async def ask(
        self, ids: tuple[int, ...], constraint: Any = None, **sampling: Any
    ) -> list[Delta]:
        self.count += 1
        params = SamplingParams(**{"temperature": 0.0, "max_tokens": 4, **sampling})
        request = Request(f"r{self.count}", ids, params, constraint=constraint)
        async with asyncio.timeout(1000):
            return [delta async for delta in self.engine.generate(request)]

    def each(self, asked: list[tuple[tuple[int, ...], dict[str, Any]]]) -> list[list[Delta]]:
        """Return the answers of requests that come at once."""

        async def all_of_them() -> list[list[Delta]]:
            return await asyncio.gather(*(self.ask(ids, **how) for ids, how in asked))

        return asyncio.run(all_of_them())

    def one(self, ids: tuple[int, ...], **how: Any) -> list[Delta]:
        return self.each([(ids, how)])[0]

    def logits(self, ids: tuple[int, ...]) -> np.ndarray:
        """Return the reference's logits after each token, f64 [len(ids), V]."""
        return self.made.logits(list(ids))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    torch.set_num_threads(1)
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    made = make(CASES[0], Path(tmp_path_factory.mktemp("sampling")), seed)
    settings = BuildSettings(
        made.path, max_seqs=SEQS, max_tokens=24, max_context=CONTEXT, threads=2, kv_dtype="f32"
    )
    model = load_model(plan_model(settings))
    bounds = {"max_context": CONTEXT, "max_seqs": SEQS, "max_tokens": 24, "max_queued": 10_000}
    engine = LocalEngine(model, Bytes(), **bounds)  # type: ignore[arg-type]
    engine.start()
    yield Served(made, engine)
    engine.stop()
    model.close()


def prompt(rng: np.random.Generator, length: int) -> tuple[int, ...]:
    return tuple(int(t) for t in rng.integers(0, 500, length))


def tokens(deltas: list[Delta]) -> tuple[int, ...]:
    assert deltas[-1].error is None, deltas[-1].error
    return tuple(t for d in deltas for t in d.token_ids)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    away = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(away - np.log(np.exp(away).sum(axis=-1, keepdims=True)))


def test_told_log_probabilities_are_the_references(served: Served) -> None:
    """Of drawn tokens, of the prompt's, and of the most likely ones, whatever the sampling."""
    rng = np.random.default_rng()
    ids = prompt(rng, 31)
    ways: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 1.7, "seed": 5, "logit_bias": {3: 4.0}, "frequency_penalty": 1.0},
        {"temperature": 0.9, "seed": 6, "top_k": 7, "min_tokens": 3},
    ]
    asked = [(ids, {**way, "logprobs": n, "prompt_logprobs": 20 - n}) for n, way in enumerate(ways)]
    for n, deltas in enumerate(served.each(asked)):
        drawn = tokens(deltas)
        logs = log_softmax(served.logits((*ids, *drawn)))
        told = [t for d in deltas for t in d.logprobs]
        assert tuple(t.token_id for t in told) == drawn
        prompt_told = [t for d in deltas for t in d.prompt_logprobs]
        assert tuple(t.token_id for t in prompt_told) == ids[1:]
        assert deltas[0].prompt_logprobs, "they come with the first delta"
        for place, each in enumerate([*prompt_told, *told]):
            row = logs[place]
            assert each.logprob == pytest.approx(row[each.token_id], abs=CLOSE)
            # Only those that are as likely but for rounding may stand on either side.
            first, last = ((row > row[each.token_id] + d).sum() for d in (2 * CLOSE, -2 * CLOSE))
            assert first < each.rank <= last
            best = np.sort(row)[::-1][: len(each.top)]
            assert [v for _, v in each.top] == pytest.approx(list(best), abs=CLOSE)
            assert [row[i] for i, _ in each.top] == pytest.approx(list(best), abs=CLOSE)
            assert len(each.top) == (20 - n if place < len(prompt_told) else n)


def test_a_prompt_alone_can_be_told(served: Served) -> None:
    """With max_tokens 0 nothing is generated; the prompt's tokens are told all the same."""
    ids = prompt(np.random.default_rng(), CONTEXT)
    (only,) = served.one(ids, max_tokens=0, prompt_logprobs=2)
    assert (only.num_tokens, only.completion_tokens, only.finish_reason) == (0, 0, "length")
    logs = log_softmax(served.logits(ids))
    want = [logs[i, t] for i, t in enumerate(ids[1:])]
    assert [t.logprob for t in only.prompt_logprobs] == pytest.approx(want, abs=CLOSE)


def test_told_numbers_do_not_depend_on_neighbours(served: Served) -> None:
    """The same request is told the same bits alone, among others, and with its prompt cached."""
    rng = np.random.default_rng()
    asked = [
        (prompt(rng, int(rng.integers(1, 30))), {"temperature": 1.0, "seed": i, "logprobs": 5,
         "prompt_logprobs": 3 if i % 2 else None, "max_tokens": 12})
        for i in range(12)
    ]  # fmt: skip
    alone = [served.one(ids, **how) for ids, how in asked]
    for got, want in zip(served.each(asked), alone, strict=True):
        assert [d.logprobs for d in got] == [d.logprobs for d in want]
        assert [d.prompt_logprobs for d in got] == [d.prompt_logprobs for d in want]
        assert tokens(got) == tokens(want)


WARPERS = [
    {"temperature": 1.0},
    {"temperature": 0.6, "top_k": 20},
    {"temperature": 1.2, "top_p": 0.8},
    {"temperature": 0.8, "min_p": 0.05},
    {"temperature": 0.9, "typical_p": 0.7},
    {"temperature": 0.9, "top_k": 60, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.9},
]


def processed(logits: np.ndarray, ids: tuple[int, ...], how: dict[str, Any]) -> np.ndarray:
    """Return the probabilities after transformers' processors, in the order of the chain."""
    made: list[Any] = []
    if "repetition_penalty" in how:
        made.append(transformers.RepetitionPenaltyLogitsProcessor(how["repetition_penalty"]))
    if how.get("temperature", 1.0) != 1.0:
        made.append(transformers.TemperatureLogitsWarper(how["temperature"]))
    for name, kind in (
        ("top_k", transformers.TopKLogitsWarper),
        ("top_p", transformers.TopPLogitsWarper),
        ("min_p", transformers.MinPLogitsWarper),
        ("typical_p", transformers.TypicalLogitsWarper),
    ):
        if name in how:
            made.append(kind(how[name]))
    scores = torch.tensor(logits[None])
    for processor in made:
        scores = processor(torch.tensor([ids]), scores)
    return np.asarray(torch.softmax(scores, -1)[0].numpy())


def with_clear_edges(
    served: Served, rng: np.random.Generator, how: dict[str, Any]
) -> tuple[tuple[int, ...], np.ndarray]:
    """Return a prompt, and what may come after it, of which rounding changes no candidate."""
    for _ in range(200):
        ids = prompt(rng, 5)
        logits = served.logits(ids)[-1]
        p = processed(logits, ids, how)
        noise = rng.uniform(-CLOSE, CLOSE, (20, len(logits)))
        if all(((processed(logits + n, ids, how) > 0) == (p > 0)).all() for n in noise):
            return ids, p
    raise AssertionError("every prompt has a candidate at the edge")


@pytest.mark.parametrize("how", WARPERS, ids="+".join)
def test_draws_follow_the_references_distribution(served: Served, how: dict[str, Any]) -> None:
    """Over many seeds tokens come as often as transformers' processors say (chi-square)."""
    rng = np.random.default_rng()
    trials = 2500
    ids, p = with_clear_edges(served, rng, how)
    first = int(rng.integers(2**40))
    asked = [(ids, {**how, "max_tokens": 1, "seed": first + i}) for i in range(trials)]
    drawn = np.array([tokens(deltas)[0] for deltas in served.each(asked)])
    assert (p[drawn] > 0).all()
    counts = np.bincount(drawn, minlength=len(p))
    often = p * trials >= 8
    groups = [*np.flatnonzero(often)[:, None].tolist(), np.flatnonzero(~often).tolist()]
    seen = np.array([counts[g].sum() for g in groups], float)
    wanted = np.array([p[g].sum() * trials for g in groups])
    # What is left over may be next to nothing, which no count is like.
    if wanted[-1] < 8:
        seen[-2:], wanted[-2:] = seen[-2:].sum(), wanted[-2:].sum()
        seen, wanted = seen[:-1], wanted[:-1]
    freedom = max(len(seen) - 1, 1)
    chi = float(((seen - wanted) ** 2 / wanted).sum())
    # Wilson and Hilferty: six standard deviations, passed once in a hundred million runs.
    bound = freedom * (1 - 2 / (9 * freedom) + 6 * math.sqrt(2 / (9 * freedom))) ** 3
    assert chi < bound, (chi, bound, freedom)


def clear(scores: np.ndarray) -> bool:
    """Whether the best score is better by more than rounding."""
    best = np.sort(scores)[-2:]
    return bool(best[1] - best[0] > 0.02)


def stepwise(served: Served, ids: tuple[int, ...], drawn: tuple[int, ...], change: Any) -> int:
    """Check that each drawn token is the best of the changed logits; return how many were clear."""
    clearly = 0
    for n, token in enumerate(drawn):
        text = (*ids, *drawn[:n])
        scores = change(served.logits(text)[-1].copy(), text)
        if clear(scores):
            assert token == scores.argmax()
            clearly += 1
    return clearly


def test_penalties_are_the_references(served: Served) -> None:
    """Greedy text under a repetition, a frequency and a presence penalty, token by token."""
    ids = prompt(np.random.default_rng(), 6) * 2

    def change(scores: np.ndarray, text: tuple[int, ...]) -> np.ndarray:
        repeated = transformers.RepetitionPenaltyLogitsProcessor(1.4)
        scores = repeated(torch.tensor([text]), torch.tensor(scores[None]))[0].numpy()
        counts = np.bincount(text, minlength=len(scores))
        return np.asarray(scores - 0.3 * counts - 0.5 * (counts > 0))

    how = {"repetition_penalty": 1.4, "frequency_penalty": 0.3, "presence_penalty": 0.5}
    drawn = tokens(served.one(ids, **how, penalty_last_n=-1, max_tokens=16, ignore_eos=True))
    assert stepwise(served, ids, drawn, change) > 4


def test_dry_ends_a_loop(served: Served) -> None:
    """A repetition that the prompt began is lowered by multiplier * base ^ (length - allowed)."""
    rng = np.random.default_rng()
    ids = tuple(int(t) * 5 for t in rng.integers(0, 100, 8)) * 3
    how = {"dry_multiplier": 5.0, "dry_base": 2.0, "dry_allowed_length": 2, "max_tokens": 12}

    def change(scores: np.ndarray, text: tuple[int, ...]) -> np.ndarray:
        longest: dict[int, int] = {}
        broken = [t for t in range(len(text)) if text[t] == 7]
        limit = len(text) - 1 - broken[-1] if broken else len(text)
        for j in range(len(text) - 1):
            n = 0
            while n <= j and n < limit and text[j - n] == text[-1 - n]:
                n += 1
            if n >= 2 and text[j + 1] != 7:
                longest[text[j + 1]] = max(n, longest.get(text[j + 1], 0))
        for token, length in longest.items():
            scores[token] -= 5.0 * 2.0 ** (length - 2)
        return scores

    drawn = tokens(served.one(ids, **how, ignore_eos=True))
    assert stepwise(served, ids, drawn, change) > 3


def test_biases_force_and_ban(served: Served) -> None:
    """A token at +100 comes, the best one at -100 does not; greedy and drawn alike."""
    ids = prompt(np.random.default_rng(), 9)
    best = tokens(served.one(ids, max_tokens=1))[0]
    for temperature in (0.0, 0.7):
        how = {"temperature": temperature, "seed": 3}
        assert set(tokens(served.one(ids, **how, logit_bias={77: 100.0}))) == {77}
        assert best not in tokens(served.one(ids, **how, max_tokens=1, logit_bias={best: -100.0}))
    after = served.one(ids, max_tokens=1)
    assert tokens(after) == (best,), "what one request brought does not reach the next"


def test_no_end_before_min_tokens(served: Served) -> None:
    """What would end the text is never drawn before, rather than drawn and not shown."""
    ids = prompt(np.random.default_rng(), 9)
    how = {"temperature": 0.0, "logit_bias": {514: 100.0, 13: 60.0}, "stop_token_ids": (13,)}
    assert tokens(served.one(ids, **how)) == (514,)
    deltas = served.one(ids, **how, min_tokens=5, max_tokens=9)
    drawn = tokens(deltas)
    assert len(drawn) == 6
    assert not {13, 514} & set(drawn[:5])
    assert (drawn[5], deltas[-1].finish_reason) == (514, "stop")


@dataclass
class Even:
    """Allows even tokens below ``below``, each once; whole after ``most``."""

    most: int
    taken: list[int] = field(default_factory=list)
    lies: bool = False
    below: int = 514

    def fill(self, words: np.ndarray) -> None:
        allowed = np.zeros(32 * len(words), bool)
        allowed[0 : self.below : 2] = True
        allowed[self.taken] = False
        words[:] = np.packbits(allowed, bitorder="little").view(np.int32)

    def accept(self, token: int) -> bool:
        if token % 2 or self.lies:
            return False
        self.taken.append(token)
        return True

    def rewind(self, count: int) -> None:
        del self.taken[len(self.taken) - count :]

    @property
    def is_complete(self) -> bool:
        return len(self.taken) == self.most


def test_constraints_mask_what_is_drawn(served: Served) -> None:
    """Only allowed tokens come, greedy or not; a whole text ends; neighbours draw as ever."""
    rng = np.random.default_rng()
    ids = prompt(rng, 9)
    free = served.one(ids, temperature=1.0, seed=8, max_tokens=6)
    asked = [(ids, {"temperature": 1.0, "seed": 8, "max_tokens": 6})]
    ruled = [Even(4), Even(4), Even(99), Even(4, lies=True), Even(99, below=6)]
    for i, constraint in enumerate(ruled):
        how = {"temperature": float(i % 2), "seed": 4, "constraint": constraint, "max_tokens": 6}
        asked.append((ids, how))
    unruled, *others = served.each(asked)
    assert tokens(unruled) == tokens(free)
    for constraint, deltas in zip(ruled[:3], others[:3], strict=True):
        drawn = tokens(deltas)
        assert list(drawn) == constraint.taken
        assert all(t % 2 == 0 for t in drawn)
        assert len(set(drawn)) == len(drawn)
    assert [d[-1].finish_reason for d in others] == ["stop", "stop", "length", "error", "error"]
    assert "which the constraint of the text does not allow" in (others[3][-1].error or "")
    assert "expected a token that may come after 3 generated ones" in (others[4][-1].error or "")


def test_xtc_drops_the_likely(served: Served) -> None:
    """When it always acts, the most likely token of several likely ones never comes."""
    ids = prompt(np.random.default_rng(), 4)
    p = np.exp(log_softmax(served.logits(ids)[-1]))
    order = np.argsort(-p)
    # In the widest gap below some likely ones rounding takes none across the threshold.
    least = 1 + int(np.argmax(p[order[1:9]] - p[order[2:10]]))
    threshold = float(p[order[least]] + p[order[least + 1]]) / 2
    how = {"temperature": 1.0, "xtc_probability": 1.0, "xtc_threshold": threshold, "max_tokens": 1}
    drawn = {tokens(d)[0] for d in served.each([(ids, {**how, "seed": i}) for i in range(200)])}
    assert not drawn & set(order[:least].tolist())
