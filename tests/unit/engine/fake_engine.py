"""An engine over the fake model, and short ways to ask it."""

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from radiance_core.engine.interface import Delta, Request
from radiance_core.engine.sampling import SamplingParams
from radiance_core.engine.serving import LocalEngine
from radiance_core.text.errors import TokenizerError

from .fake_model import N_VOCAB, FakeModel

NO_TEXT = 200
Asked = list["asyncio.Task[list[Delta]]"]


class Letters:
    """Token n is the byte n; 0 ends a text and shows nothing, NO_TEXT has no bytes at all."""

    eos_ids = frozenset({0})
    special_ids = frozenset({0})
    error_mode = "replace"
    vocab_size = N_VOCAB

    def token_bytes(self, id_: int) -> bytes:
        if id_ == NO_TEXT:
            raise TokenizerError(f"token {id_}: expected an id of the vocabulary")
        return bytes([id_])

    def starts_with_added_space(self, id_: int) -> bool:
        return False


def ids(text: str) -> tuple[int, ...]:
    """Tokens of ASCII text."""
    return tuple(text.encode())


_count = iter(range(10**9))


def request(text: str, **sampling: object) -> Request:
    """A request; greedy unless told otherwise."""
    params = {"temperature": 0.0, "max_tokens": 5, **sampling}
    return Request(f"r{next(_count)}", ids(text), SamplingParams(**params))  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def running(
    model: FakeModel, *, max_queued: int = 8, start: bool = True, **more: Any
) -> AsyncIterator[LocalEngine]:
    """An engine, stopped at the end; whatever happened, no page may be left in use."""
    engine = LocalEngine(
        model,  # type: ignore[arg-type]
        Letters(),  # type: ignore[arg-type]
        max_context=model.max_context,
        max_seqs=model.max_seqs,
        max_tokens=model.max_tokens,
        max_queued=max_queued,
        max_drafts=model.max_drafts,
        **more,
    )
    if start:
        engine.start()
    try:
        yield engine
    finally:
        if model.gate is not None:
            model.gate.set()
        await asyncio.to_thread(engine.stop)


async def deltas(engine: LocalEngine, req: Request) -> list[Delta]:
    """All deltas of a request, within a time that no test needs."""
    async with asyncio.timeout(240):
        return [d async for d in engine.generate(req)]


async def at_once(engine: LocalEngine, reqs: Iterable[Request]) -> Asked:
    """Ask for several requests so that the engine sees all of them before any runs."""
    with engine._loop._wake:
        tasks = [asyncio.create_task(deltas(engine, r)) for r in reqs]
        await asyncio.sleep(0)
    return tasks


async def answer(engine: LocalEngine, text: str, **sampling: object) -> tuple[str, Delta]:
    """The whole text of an answer, and its last delta."""
    got = await deltas(engine, request(text, **sampling))
    assert [d.finish_reason for d in got[:-1]] == [None] * (len(got) - 1)
    assert sum(d.num_tokens for d in got) == got[-1].completion_tokens
    return "".join(d.text for d in got), got[-1]


async def until(condition: Callable[[], object], within_s: float = 240.0) -> None:
    """Wait until the engine has come to something; say so when it does not, rather than hang."""
    end = time.monotonic() + within_s
    while not condition():
        where = inspect.getsource(condition).strip()
        assert time.monotonic() < end, f"still not so after {within_s:.0f} s: {where}"
        await asyncio.sleep(0.001)


async def idle(engine: LocalEngine, within_s: float = 240.0) -> None:
    """Wait until nothing runs or waits, no page is held, and the last step has been counted."""
    async with asyncio.timeout(within_s):
        while True:
            s = engine.stats()
            held = [v for k, v in s.items() if k.startswith("kv_pages_used_")]
            left = any((*held, s["requests_running"], s["requests_waiting"]))
            if not left and engine._loop.busy_since is None:
                return
            await asyncio.sleep(0.002)
