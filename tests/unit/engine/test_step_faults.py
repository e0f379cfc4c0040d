"""What goes wrong in a step ends the request that brings it, and leaves the others as they were."""

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from radiance_core.engine.drawing import Drawing
from radiance_core.text.detokenizer import Detokenizer

from .fake_engine import NO_TEXT, answer, at_once, deltas, idle, ids, request, running, until
from .fake_model import FakeModel, kernel_error, poisoned_by
from .texts import continuation


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (kernel_error, "A kernel failed: attn: expected a result, got status -12"),
        (
            MemoryError,
            "The machine had no memory left for this request; try again later.",
        ),
    ],
)
async def test_a_fault_in_a_step_ends_the_request_that_brings_it(
    error: Callable[[], BaseException], told: str, logs: list[dict]
) -> None:
    """One request is what a kernel fails on; the others of its steps are answered as if alone."""
    texts = ["ab", "mn", "uv", "pq", "xyzx", "gh", "ij"]
    model = FakeModel(max_seqs=len(texts) + 1, is_deep=True)
    async with running(model) as engine:
        alone = {t: await answer(engine, t, max_tokens=20) for t in texts}
        model.fault = poisoned_by("!", error)
        await engine.reset_prefix_cache()
        for _ in range(5):
            order = random.sample([*texts, "a!"], len(texts) + 1)
            got = dict(zip(order, await asyncio.gather(
                *(deltas(engine, request(t, max_tokens=20)) for t in order)
            ), strict=True))  # fmt: skip
            (bad,) = got.pop("a!")
            assert (bad.finish_reason, bad.error, bad.completion_tokens) == ("error", told, 0)
            for text, all_of in got.items():
                assert "".join(d.text for d in all_of) == alone[text][0]
                assert all_of[-1].completion_tokens == 20
        await idle(engine)
        assert engine.health().ok
        assert engine.stats()["requests_failed"] == 5
    failed = [e["requests"] for e in logs if e["event"] == "step_failed"]
    assert min(len(names) for names in failed) == 1, "halves end at one"


async def test_host_work_that_fails_ends_its_request(
    monkeypatch: pytest.MonkeyPatch, logs: list[dict]
) -> None:
    """Memory that runs out while a row is written, at any step, is that request's end alone."""
    write = Drawing.write
    left = 0

    def short(self: Drawing, seq: Any, out: int, at: int) -> None:
        nonlocal left
        if seq.request.prompt_ids == ids("bad"):
            left -= 1
            if left < 0:
                raise MemoryError("no room")
        write(self, seq, out, at)

    monkeypatch.setattr(Drawing, "write", short)
    async with running(FakeModel(is_deep=True)) as engine:
        texts = ["ab", "mn", "bad", "uv"]
        for steps in range(6):
            left = steps
            reqs = [request(t, max_tokens=8) for t in texts]
            answers = [await t for t in await at_once(engine, reqs)]
            for text, got in zip(texts, answers, strict=True):
                told = "".join(d.text for d in got)
                if text != "bad":
                    assert told == continuation(ids(text), 8)
                    continue
                assert got[-1].error == (
                    "The request could not be made ready for a step: MemoryError: no room"
                )
                assert continuation(ids(text), 8).startswith(told)
        await idle(engine)
        assert engine.health().ok
        assert engine.stats()["requests_failed"] == 6
    assert {e["event"] for e in logs} == {"request_failed"}


async def test_text_that_cannot_be_held_ends_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that runs out while a token becomes text is that request's end alone."""
    push = Detokenizer.push

    def short(self: Detokenizer, token: int) -> str:
        if token == ord("y"):
            raise MemoryError("no room")
        return push(self, token)

    monkeypatch.setattr(Detokenizer, "push", short)
    async with running(FakeModel()) as engine:
        bad, good = [await t for t in await at_once(engine, [request("wx"), request("ab")])]
        assert bad[-1].error == "Token 121 could not be turned into text: no room"
        assert "".join(d.text for d in good) == "cdefg"
        await idle(engine)
        assert engine.health().ok


async def test_a_fault_that_passes_ends_nothing() -> None:
    """A step of several sequences that fails once is made up for in its halves."""
    model = FakeModel(max_seqs=2)
    model.gate = threading.Event()
    async with running(model) as engine:
        tasks = await at_once(engine, [request("ab") for _ in range(3)])
        await until(lambda: engine.stats()["requests_running"] >= 2)
        while model.fail_next is None:
            model.fail_next = kernel_error()
        model.gate.set()
        got = [await t for t in tasks]
        assert sorted(len(all_of) for all_of in got) in ([1, 5, 5], [5, 5, 5])
        assert engine.health().ok


async def test_logits_that_are_not_numbers_end_one_request() -> None:
    """A row without a finite logit fails its request; the row beside it goes on."""
    model = FakeModel(token_after=lambda t: -1 if t == ord("z") else (t + 1) % 256)
    async with running(model) as engine:
        bad, good = await asyncio.gather(
            answer(engine, "wx", max_tokens=9), answer(engine, "ab", max_tokens=9)
        )
        assert bad[0] == "yz"
        assert bad[1].error == "The model's logits were not finite, so no token could be chosen."
        assert (bad[1].completion_tokens, good[0]) == (2, "cdefghijk")
        await idle(engine)


async def test_a_token_without_text_ends_one_request() -> None:
    """An id that the tokenizer lacks is that request's error, not the engine's."""
    model = FakeModel(token_after=lambda t: NO_TEXT if t == ord("c") else (t + 1) % 256)
    async with running(model) as engine:
        bad, good = await asyncio.gather(
            deltas(engine, request("ab", max_tokens=9)), answer(engine, "mn", max_tokens=9)
        )
        assert bad[-1].error == (
            "Token 200 could not be turned into text: token 200: expected an id of the vocabulary"
        )
        assert good[0] == "opqrstuvw"
        assert engine.health().ok
