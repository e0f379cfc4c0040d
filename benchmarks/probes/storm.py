"""More requests than can be served at once."""

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass

import aiohttp

from probes.exchange import CHAT
from probes.table import Probe, Seen
from probes.target import Target

REQUESTS, AT_ONCE = 1000, 300
PATIENCE_S = 60.0
LIMIT_S = 240.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one request."""

    kind: str
    seconds: float
    may_retry: bool = True


async def _one(
    session: aiohttp.ClientSession, url: str, body: bytes, seats: asyncio.Semaphore
) -> Reply:
    async with seats:
        start = time.monotonic()
        try:
            async with session.post(url, data=body) as answer:
                await answer.read()
                kind, wait = str(answer.status), "retry-after" in answer.headers
        except TimeoutError:
            kind, wait = "timeout", False
        except aiohttp.ClientError as error:
            kind, wait = type(error).__name__, False
        return Reply(kind, time.monotonic() - start, wait)


async def _all(target: Target) -> list[Reply]:
    headers = {"content-type": "application/json"}
    if target.key:
        headers["authorization"] = f"Bearer {target.key}"
    url = f"http://{target.client.host}:{target.client.port}{target.client.prefix}{CHAT}"
    body = json.dumps(target.chat(max_tokens=4)).encode()
    seats = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=PATIENCE_S),
        connector=aiohttp.TCPConnector(limit=0),
    ) as session:
        tasks = [asyncio.create_task(_one(session, url, body, seats)) for _ in range(REQUESTS)]
        done, pending = await asyncio.wait(tasks, timeout=LIMIT_S)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    return [task.result() for task in done]


def storm(target: Target) -> Seen:
    """Send 1,000 small requests, 300 at a time: each is served or told at once to come back."""
    start = time.monotonic()
    replies = asyncio.run(_all(target))
    took = time.monotonic() - start
    kinds = Counter(reply.kind for reply in replies)
    if missing := REQUESTS - len(replies):
        kinds["not sent in time"] = missing
    refusals = [reply for reply in replies if reply.kind in ("429", "503")]
    told = sum(reply.may_retry for reply in refusals)
    text = f"{', '.join(f'{n} × {kind}' for kind, n in kinds.most_common())} in {took:.0f} s"
    if refusals:
        # The client shares the processors, so only the median says something about the server.
        middle = sorted(reply.seconds for reply in refusals)[len(refusals) // 2]
        text += f"; refusals took {middle:.2f} s (median), {told} with Retry-After"
    return Seen(set(kinds) <= {"200", "429", "503"} and told == len(refusals), text)


PROBES = [
    Probe(
        f"{REQUESTS:,} requests, {AT_ONCE} at a time",
        "each 200, or 429/503 with Retry-After; none lost",
        storm,
    )
]
