"""On the host an answer depends on its request alone: on no neighbour, chunk, cache or page."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints.cases import CASES
from checkpoints.circumstances import (
    ALONE,
    CROWDS,
    SEATS,
    Circumstance,
    answers,
    guessable,
    hint,
    requests,
    serving,
)
from checkpoints.making import make

MODELS = {case.name: case for case in CASES if case.name in ("llama-gguf-q8_0", "gemma3")}
COUNT = 16


@pytest.fixture(scope="module", params=sorted(MODELS))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model: one of integer weights, one with windows."""
    torch.set_num_threads(1)
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    return make(MODELS[request.param], tmp_path_factory.mktemp("model"), seed).path


@pytest.mark.parametrize("how", CROWDS, ids=lambda how: how.name)
def test_answers_do_not_depend_on_circumstances(model: Path, how: Circumstance) -> None:
    """Tokens, texts, log probabilities and reasons are equal, bit by bit, to those alone."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    with serving(model, ALONE, threads=2) as engine:
        asked = requests(rng, 8 if how.fillers else COUNT, engine._n_vocab)
        asked += guessable(rng, engine._n_vocab) if how.drafts else []
        expected = answers(engine, asked, ALONE, rng)
    with serving(model, how, threads=2) as engine:
        hint(engine, asked, expected)
        got = answers(engine, asked, how, rng)
        again = answers(engine, asked, how, rng)
        stats, seats = engine.stats(), engine.most_seats
    for request, one, first, second in zip(asked, expected, got, again, strict=True):
        assert one == first, f"seed {seed}: {request}"
        assert one == second, f"seed {seed}, asked again: {request}"
    assert how.max_seqs < SEATS or seats == SEATS, f"seed {seed}: at most {seats} at once"
    if how.shortage:
        assert stats["preemptions"] > 0, f"seed {seed}: none gave way"
    if how.keep_prefixes:
        assert stats["prefix_cache_hits"] > 0, f"seed {seed}: nothing was found"
    if how.drafts:
        assert stats["draft_tokens"] > stats["accepted_tokens"] > 0, f"seed {seed}: no guesses"
