"""What requests are answered: where a text ends, what steps are given, no word of neighbours."""

import asyncio
import random

import numpy as np
import pytest

from radiance_core.engine.interface import Request
from radiance_core.engine.sampling import SamplingParams
from radiance_core.engine.sampling_row import ROW

from .fake_engine import answer, at_once, deltas, idle, ids, request, running
from .fake_model import FakeModel, plan


async def test_an_answer_has_its_text_and_its_counts() -> None:
    """The tokens' text arrives token by token, the last delta has the totals."""
    async with running(FakeModel()) as engine:
        got = await deltas(engine, request("ab", max_tokens=4))
    assert [d.text for d in got] == ["c", "d", "e", "f"]
    last = got[-1]
    assert (last.finish_reason, last.stop_reason, last.error) == ("length", None, None)
    assert (last.prompt_tokens, last.completion_tokens, last.cached_tokens) == (2, 4, 0)


async def test_no_tokens_wanted_warm_the_cache() -> None:
    """max_tokens 0 computes the prompt and tells nothing; the same prompt is found afterwards."""
    async with running(FakeModel()) as engine:
        (only,) = await deltas(engine, request("abcdefghi", max_tokens=0))
        assert (only.finish_reason, only.text, only.token_ids) == ("length", "", ())
        assert (only.prompt_tokens, only.num_tokens, only.completion_tokens) == (9, 0, 0)
        assert engine.stats()["tokens_generated"] == 0
        _, last = await answer(engine, "abcdefghi", max_tokens=1)
    assert last.cached_tokens == 8


async def test_the_context_ends_an_answer() -> None:
    """Prompt and answer fill the context and no more, whatever was asked."""
    for wanted in (None, 1000):
        async with running(FakeModel(max_context=64)) as engine:
            _, last = await answer(engine, "x" * 60, max_tokens=wanted)
        assert (last.finish_reason, last.completion_tokens) == ("length", 4)


async def test_stop_tokens() -> None:
    """A stop token ends the text without being part of it; it is named when the request did so."""
    async with running(FakeModel(token_after=lambda t: 0 if t == ord("e") else t + 1)) as engine:
        text, last = await answer(engine, "ab", max_tokens=20)
        assert (text, last.finish_reason, last.stop_reason) == ("cde", "stop", None)
        assert last.completion_tokens == 4
        text, last = await answer(engine, "ab", stop_token_ids=(ord("d"),))
        assert (text, last.finish_reason, last.stop_reason) == ("c", "stop", ord("d"))


async def test_ignore_eos_goes_on() -> None:
    """The model's own end does not end the text, a stop token of the request does."""
    async with running(FakeModel(token_after=lambda t: (t + 1) % 256 if t != 98 else 0)) as engine:
        text, last = await answer(engine, "ab", ignore_eos=True, max_tokens=3)
        assert (text, last.finish_reason) == ("\x01\x02", "length")
        text, last = await answer(engine, "ab", ignore_eos=True, stop_token_ids=(2,), max_tokens=9)
        assert (text, last.stop_reason) == ("\x01", 2)


@pytest.mark.parametrize(("stop", "text"), [("ef", "cd"), ("cdef", ""), ("g", "cdef"), ("c", "")])
async def test_stop_strings_across_tokens(stop: str, text: str) -> None:
    """A stop string ends the text before it, although its letters come one token at a time."""
    async with running(FakeModel()) as engine:
        got, last = await answer(engine, "ab", stop=(stop, "zz"), max_tokens=20)
    assert (got, last.finish_reason, last.stop_reason) == (text, "stop", stop)


async def test_held_back_text_comes_in_the_end() -> None:
    """What could have become a stop string and did not is part of the text."""
    async with running(FakeModel()) as engine:
        got, last = await answer(engine, "ab", stop=("efgX",), max_tokens=5)
    assert (got, last.finish_reason, last.stop_reason) == ("cdefg", "length", None)


async def test_min_tokens_come_before_any_end() -> None:
    """Neither stop token nor stop string ends the text before; the limit still does."""
    async with running(FakeModel(token_after=lambda t: 0 if t == ord("d") else t + 1)) as engine:
        text, last = await answer(engine, "ab", min_tokens=2, max_tokens=20)
        assert (text, last.completion_tokens, last.finish_reason) == ("cd", 3, "stop")
        text, last = await answer(engine, "ab", min_tokens=3, max_tokens=5)
        assert (text, last.finish_reason) == ("cd\x01\x02\x03", "length")
        text, last = await answer(engine, "ab", min_tokens=2, stop=("c",), max_tokens=2)
        assert (text, last.finish_reason) == ("cd", "length")
    async with running(FakeModel()) as engine:
        text, last = await answer(engine, "ab", min_tokens=2, stop=("c", "d", "f"), max_tokens=9)
        assert (text, last.stop_reason) == ("cde", "f")
        text, _ = await answer(engine, "ab", min_tokens=9, max_tokens=2)
        assert text == "cd"


async def test_characters_are_never_torn() -> None:
    """A character of several tokens arrives whole, and an unfinished one as U+FFFD at the end."""
    spelled = b"a" + "é€".encode() + b"\xe2"
    following = {spelled[i]: spelled[i + 1] for i in range(len(spelled) - 2)}
    # The bytes differ pairwise but for the last one, which is reached by count.
    model = FakeModel(token_after=lambda t: following.get(t, 0xE2))
    async with running(model) as engine:
        got = await deltas(engine, request("a", max_tokens=5))
        assert [d.text for d in got] == ["", "é", "", "", "€"]
        text, _ = await answer(engine, "a", max_tokens=3)
        assert text == "é\N{REPLACEMENT CHARACTER}"


async def test_long_prompts_are_computed_in_chunks() -> None:
    """A prompt longer than a step is spread over steps; only the last of them draws."""
    model = FakeModel(max_tokens=16)
    async with running(model) as engine:
        text, _ = await answer(engine, "abcdefghij" * 4, max_tokens=3)
    assert text == "klm"
    assert [(s.shape.tokens, s.shape.out_rows) for s in model.steps] == [
        (16, 0), (16, 0), (8, 1), (1, 1), (1, 1),
    ]  # fmt: skip
    assert [s.shape.decode_seqs for s in model.steps] == [0, 0, 0, 1, 1]


async def test_a_prompt_of_one_token_is_no_decoding() -> None:
    """A row counts as decoding only where earlier keys are cached."""
    model = FakeModel()
    async with running(model) as engine:
        assert (await answer(engine, "a", max_tokens=2))[0] == "bc"
    assert [(s.shape.decode_tokens, s.shape.decode_seqs) for s in model.steps] == [(0, 0), (1, 1)]


async def test_requests_share_steps_and_not_answers() -> None:
    """Many random requests at once each get the answer that they get alone."""
    plans = [plan("full", pages=48), plan("w", pages=48, window=5), plan("big", 12, 16)]
    model = FakeModel(plans=plans, max_seqs=3, max_tokens=8)
    wanted = [("".join(random.choices("abcdefgh", k=random.randint(1, 40))), random.randint(1, 20))
              for _ in range(30)]  # fmt: skip
    async with running(model, max_queued=40) as engine:
        tasks = await at_once(engine, [request(t, max_tokens=n) for t, n in wanted])
        together = await asyncio.gather(*tasks)
        await idle(engine)
        for (text, count), got in zip(wanted, together, strict=True):
            expected = "".join(chr(ord(text[-1]) + 1 + i) for i in range(count))
            assert "".join(d.text for d in got) == expected
            assert got[-1].prompt_tokens == len(text)
    assert max(s.shape.seqs for s in model.steps) == 3
    assert any(0 < s.shape.decode_seqs < s.shape.seqs for s in model.steps)


async def test_greedy_and_drawn_rows() -> None:
    """The sampling row holds the request's numbers; a draw depends on seed and position alone."""
    model = FakeModel()
    async with running(model) as engine:
        await answer(engine, "ab", max_tokens=3)
        await answer(engine, "ab", max_tokens=3, temperature=0.5, top_k=7, top_p=0.9, seed=-1)
        await answer(engine, "xyz", max_tokens=3, temperature=0.5, top_k=7, top_p=0.9, seed=-1)
    rows = [ROW.unpack(s.sampling[0].tobytes()) for s in model.steps]
    assert [r[20] for r in rows[:3]] == [1, 1, 1], "greedy rows say so"
    assert [r[:2] for r in rows[3:6]] == [(2**64 - 1, i) for i in range(3)]
    assert rows[3:6] == rows[6:9], "the prompt is no part of a draw"
    assert rows[3][2] == pytest.approx(0.5)
    assert rows[3][3] == pytest.approx(0.9)
    assert (rows[3][13], rows[3][20]) == (7, 0)


async def test_without_a_seed_draws_differ() -> None:
    """Two requests that name no seed get seeds of their own, kept for the whole answer."""
    model = FakeModel()
    async with running(model) as engine:
        for _ in range(2):
            await answer(engine, "ab", max_tokens=3, temperature=1.0)
    seeds = [ROW.unpack(s.sampling[0].tobytes())[0] for s in model.steps]
    assert len(set(seeds[:3])) == len(set(seeds[3:])) == 1
    assert seeds[0] != seeds[3]


@pytest.mark.parametrize(("last_n", "kept"), [(3, 3), (-1, None), (64, None), (0, 0)])
async def test_penalties_look_back(last_n: int, kept: int | None) -> None:
    """The history of a row is the last tokens of prompt and answer, as many as were asked for."""
    model = FakeModel()
    params = {"presence_penalty": 0.5, "penalty_last_n": last_n, "max_tokens": 4}
    async with running(model) as engine:
        await asyncio.gather(answer(engine, "abcd", **params), answer(engine, "mn", **params))
    checked = 0
    for step in model.steps:
        for out in range(step.shape.out_rows):
            row = ROW.unpack(step.sampling[out].tobytes())
            offset, length, flags = row[17], row[18], row[20]
            position = step.positions[step.out_ids[out]]
            first = "abcd" if step.tokens[step.out_ids[out]] < ord("m") else "mn"
            seen = [*ids(first), *range(ord(first[-1]) + 1, 255)][: position + 1]
            expected = seen if kept is None else seen[max(0, len(seen) - kept) :]
            if kept == 0:
                assert flags == 1, "without a window nothing is penalised and the row is greedy"
            else:
                assert flags == 2
                assert step.history[offset : offset + length].tolist() == expected
                assert (row[2], row[13]) == (1.0, 1), "greedy with penalties is a draw among one"
            checked += 1
    assert checked == 8


async def test_windowed_caches_let_go() -> None:
    """Pages that a window has passed are given back while the answer goes on."""
    model = FakeModel(
        plans=[plan("w", pages=16, window=6)], max_seqs=1, max_tokens=8, max_context=200
    )
    async with running(model) as engine:
        _, last = await answer(engine, "a" * 50, max_tokens=100)
        assert last.completion_tokens == 100
        await idle(engine)
    # 6 tokens of window, 8 of a step and 4 of a block are at most 5 pages at once.
    assert max(sum(0 <= p < 16 for p in s.tables["w"][0].tolist()) for s in model.steps) <= 5
    assert (model.steps[-1].tables["w"][0][:34] == -1).all()


async def test_stats_count_what_happened() -> None:
    """Counters hold requests, prompt tokens and generated tokens."""
    async with running(FakeModel()) as engine:
        await answer(engine, "abc", max_tokens=4)
        await answer(engine, "ab", max_tokens=2)
        await idle(engine)
        s = engine.stats()
    assert (s["requests_finished"], s["requests_failed"], s["requests_cancelled"]) == (2, 0, 0)
    assert (s["prompt_tokens"], s["tokens_generated"], s["kv_pages_used_full"]) == (5, 6, 0)
    assert s["steps"] == 6


async def test_a_step_is_reproducible() -> None:
    """The same seeded request gives the same deltas twice, alone and beside another."""
    async with running(FakeModel()) as engine:
        req = SamplingParams(temperature=0.7, seed=5, max_tokens=8)
        alone = await deltas(engine, Request("a", ids("ab"), req))
        again, _ = await asyncio.gather(
            deltas(engine, Request("b", ids("ab"), req)), answer(engine, "q", max_tokens=9)
        )
    assert alone == again


def test_the_row_has_the_contracts_layout() -> None:
    """Offsets of the 96-byte row, which kernels read by number."""
    assert ROW.size == 96
    row = np.frombuffer(ROW.pack(1, 2, *[0.5] * 11, *range(9)), np.uint8)
    assert row[16:60].view(np.float32).tolist() == [0.5] * 11
    assert row[60:96].view(np.int32).tolist() == list(range(9))
