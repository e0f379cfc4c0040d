"""Streamed chats over HTTP with the time of every piece, for the load generators."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np
from aiohttp.http_exceptions import HttpProcessingError

_LAG_STEP_S = 0.005


class UnusableServerError(Exception):
    """A server that cannot be asked: it does not answer, or its model is not known."""


class UnreachableServerError(UnusableServerError):
    """A server that has ended, or was never there."""


@dataclass(slots=True)
class Timed:
    """One answer; times are seconds of ``time.perf_counter``.

    ``failure`` is "" when it came to its end; ``broken`` says that its connection ended before.
    ``pieces`` holds when each piece of text came, which may be of several tokens. Where a server
    tells no usage, ``tokens`` counts pieces.
    """

    due: float
    status: int = 0
    failure: str = ""
    broken: bool = False
    text: str = ""
    finish: str = ""
    tokens: int = 0
    retry_after_s: float | None = None
    pieces: list[float] = field(default_factory=list)
    ended: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the answer is whole."""
        return self.status == 200 and not self.failure

    @property
    def first_s(self) -> float:
        """Seconds from when it was due until the first text."""
        return self.pieces[0] - self.due if self.pieces else self.ended - self.due

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between pieces of text."""
        return [b - a for a, b in zip(self.pieces, self.pieces[1:], strict=False)]

    @property
    def per_token_s(self) -> float:
        """Mean seconds a token after the first; 0 when there is only one."""
        return (self.pieces[-1] - self.pieces[0]) / (self.tokens - 1) if self.tokens > 1 else 0.0


class Caller:
    """Streams chats of one model from one server."""

    def __init__(self, session: aiohttp.ClientSession, model: str) -> None:
        self._session, self.model = session, model

    async def chat(self, body: dict[str, Any], due: float | None = None) -> Timed:
        """Send a chat and take its pieces as they come; failures are part of what is returned."""
        timed = Timed(time.perf_counter() if due is None else due)
        whole = {"stream_options": {"include_usage": True}, **body}
        whole |= {"model": self.model, "stream": True}
        try:
            async with self._session.post("chat/completions", json=whole) as answer:
                timed.status = answer.status
                if answer.status != 200:
                    timed.failure = (await answer.text(errors="replace"))[:200]
                    after = answer.headers.get("retry-after", "")
                    timed.retry_after_s = float(after) if after.isdigit() else None
                else:
                    await _read(answer, timed)
        except TimeoutError:
            timed.failure, timed.broken = "timeout", False
        except (aiohttp.ClientError, OSError) as error:
            timed.failure, timed.broken = f"{type(error).__name__}: {error}"[:200], True
        except (HttpProcessingError, ValueError) as error:
            # What comes is no HTTP, or a line of it has no end.
            timed.failure, timed.broken = f"{type(error).__name__}: {error}"[:200], False
        timed.ended = time.perf_counter()
        return timed


async def _read(answer: aiohttp.ClientResponse, timed: Timed) -> None:
    timed.failure, timed.broken = "the stream was cut", True
    async for line in answer.content:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            timed.failure, timed.broken = "", False
            break
        try:
            event = json.loads(data)
            if "error" in event:
                timed.failure, timed.broken = str(event["error"])[:200], False
                return
            _take(event, timed)
        except (ValueError, TypeError, AttributeError):
            shown = data[:120].decode("utf-8", "replace")
            timed.failure = f"the stream: expected an event of a chat in JSON, got {shown!r}"
            timed.broken = False
            return
    timed.tokens = timed.tokens or len(timed.pieces)


def _take(event: dict[str, Any], timed: Timed) -> None:
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        if text := delta.get("content") or delta.get("reasoning_content"):
            timed.pieces.append(time.perf_counter())
            timed.text += text
        timed.finish = choice.get("finish_reason") or timed.finish
    if usage := event.get("usage"):
        timed.tokens = int(usage.get("completion_tokens") or 0)


@asynccontextmanager
async def calling(
    url: str, key: str | None = None, timeout_s: float = 600.0, model: str | None = None
) -> AsyncIterator[Caller]:
    """Open connections to a server, as many as there are requests.

    Args:
        url: of the server; it may end in /v1, as clients have it.
        key: API key.
        timeout_s: of each request as a whole.
        model: what is asked; without it the only one that the server lists.

    Raises:
        UnusableServerError: the server does not answer, or does not say what its one model is.
    """
    if not url.startswith(("http://", "https://")):
        raise UnusableServerError(f"{url}: expected a URL that begins with http:// or https://")
    base = url.rstrip("/").removesuffix("/v1") + "/v1/"
    async with aiohttp.ClientSession(
        base,
        headers={"authorization": f"Bearer {key}"} if key else {},
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        connector=aiohttp.TCPConnector(limit=0),
    ) as session:
        yield Caller(session, model or await _only_model(session, f"{base}models"))


async def _only_model(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get("models") as answer:
            status, body = answer.status, await answer.text(errors="replace")
    except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
        raise UnreachableServerError(
            f"{url}: expected a server that answers, got {type(error).__name__}: {error}"
        ) from error
    if status in (401, 403):
        raise UnusableServerError(f"{url}: expected to be let in, got HTTP {status}; give --key")
    try:
        names = [str(each["id"]) for each in json.loads(body)["data"]] if status == 200 else None
    except (ValueError, LookupError, TypeError):
        names = None
    if names is None:
        raise UnusableServerError(
            f"{url}: expected a list of models, got HTTP {status} {body[:80]!r}; say with --model "
            "which to ask"
        )
    if len(names) != 1:
        raise UnusableServerError(
            f"{url}: expected one model, got {', '.join(names) or 'none'}; say with --model which "
            "to ask"
        )
    return names[0]


@asynccontextmanager
async def lag() -> AsyncIterator[list[float]]:
    """Measure by how many seconds this program's own event loop comes too late."""
    late: list[float] = []

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_LAG_STEP_S)
            late.append(max(0.0, time.perf_counter() - before - _LAG_STEP_S))

    task = asyncio.create_task(watch())
    try:
        yield late
    finally:
        task.cancel()


def while_all_run(answers: list[Timed]) -> float:
    """Return tokens a second from when the last has begun until the first has ended; 0 if never.

    A piece may hold several tokens, so that tokens are spread over the pieces of each answer.
    """
    if not all(a.pieces for a in answers):
        return 0.0
    begin, end = max(a.pieces[0] for a in answers), min(a.pieces[-1] for a in answers)
    if end <= begin:
        return 0.0
    inside = (a.tokens * sum(begin < t <= end for t in a.pieces) / len(a.pieces) for a in answers)
    return sum(inside) / (end - begin)


def percentiles(values: Sequence[float], *ranks: float) -> list[float]:
    """Return percentiles, 0 of nothing."""
    return [float(v) for v in np.percentile(values, ranks)] if values else [0.0] * len(ranks)
