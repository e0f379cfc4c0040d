"""A server's process: the port, keys, signals, exit statuses."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from live_server import LiveServer, running, small_model
from promptness import usually

LONG = {"messages": [{"role": "user", "content": "Count to a thousand in words."}],
        "max_tokens": 4000, "stream": True, "ignore_eos": True}  # fmt: skip


def ask(url, body, **headers):
    """Send a request and return the response object."""
    data = json.dumps(body).encode()
    kind = {"content-type": "application/json", **headers}
    request = urllib.request.Request(f"{url}/v1/chat/completions", data, kind)
    return urllib.request.urlopen(request, timeout=60)


def start(*options):
    """Run the command to its end; return status and output."""
    model = str(small_model())
    command = [sys.executable, "-m", "radiance_core.cli.main", "--model", model, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_at_once(number):
    """An idle server ends with 0 in well under a second."""

    def end():
        with running() as server:
            started = time.monotonic()
            server.process.send_signal(number)
            assert server.end() == 0, server.output
            return time.monotonic() - started

    assert usually(end, 1.5) < 1.5


def test_a_drain_ends_with_an_error_event():
    """At the drain limit a running stream gets its error event, and the status is still 0."""

    def drain():
        with running("--drain-timeout", "0.5") as server:
            stream = ask(server.url, LONG)
            first = stream.readline()
            assert first.startswith(b"data: ")
            started = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            rest = stream.read()
            assert server.end() == 0, server.output
            took = time.monotonic() - started
            last = [line for line in rest.split(b"\n") if line.startswith(b"data: ")][-1]
            assert json.loads(last[6:])["error"]["code"] == "draining"
            assert b"[DONE]" not in rest
            return took

    assert 0.4 < usually(drain, 2.5) < 2.5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_within_a_second(number):
    """Whoever asks twice does not wait for the drain; the first says so, and streams hear it."""
    assert usually(lambda: _ended_by_a_second(number), 1.2) < 1.2


def _ended_by_a_second(number):
    """Return how long a server with streams lasts after a second signal.

    Endless where a stream did not hear why: what is told has less time than the end.
    """
    with running() as server:
        streams = [ask(server.url, LONG) for _ in range(3)]
        for stream in streams:
            stream.readline()
        server.process.send_signal(number)
        deadline = time.monotonic() + 20
        while "a second Ctrl-C or SIGTERM stops now" not in server.output:
            assert time.monotonic() < deadline, server.output
            time.sleep(0.01)
        time.sleep(0.3)
        assert server.process.poll() is None
        started = time.monotonic()
        server.process.send_signal(number)
        heard = [_last_error(stream) for stream in streams]
        assert server.end() == 128 + number
        took = time.monotonic() - started
    told = ("draining", "server: it was told to stop at once.")
    return took if heard == [told] * 3 else float("inf")


def _last_error(stream):
    try:
        lines = [li for li in stream.read().split(b"\n") if li.startswith(b"data: ")]
    except http.client.HTTPException:  # cut off
        return None
    last = lines[-1] if lines else b"data: {}"
    error = json.loads(last[6:]).get("error", {})
    return error.get("code"), error.get("message")


def test_a_taken_port_is_said_before_the_model_is_read():
    """The port is bound first, and the text names it and who holds it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, output = start("--port", str(port))
    assert status != 0
    assert f"port {port}" in output
    assert "Traceback" not in output
    assert "STARTUP REPORT" not in output


def test_an_open_bind_without_a_key_is_refused():
    """The refusal names both ways out."""
    status, output = start("--host", "0.0.0.0", "--port", "0")
    assert status != 0
    assert "--api-key" in output
    assert "--insecure" in output
    assert "Traceback" not in output


def test_the_key_is_wanted():
    """With --api-key nothing but health answers without it."""
    with running("--api-key", "sekret") as server:
        assert b"ok" in urllib.request.urlopen(f"{server.url}/health", timeout=10).read()
        short = {**LONG, "max_tokens": 2, "stream": False}
        for headers in ({}, {"x-api-key": "wrong"}):
            with pytest.raises(urllib.error.HTTPError) as caught:
                ask(server.url, short, **headers)
            assert caught.value.code == 401
            caught.value.close()
        with ask(server.url, short, authorization="Bearer sekret") as got:
            assert got.status == 200
        assert "sekret" not in server.output


def test_health_answers_while_the_model_loads():
    """The port answers 503 before the model is ready, then 200: bound first, truthful always.

    The server is imported while weights are waited for, or after half a second; this model's take
    seconds, as the reference library lays them out.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    slow = ["--kernels", "libref", "--debug-accept-reference-kernels", "--max-model-len", "64"]
    server = LiveServer(["--model", str(small_model()), "--port", str(port), *slow])
    seen = []
    try:
        deadline = time.monotonic() + 60
        while (not seen or seen[-1] != 200) and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as got:
                    seen.append(got.status)
            except urllib.error.HTTPError as err:
                seen.append(err.code)
                err.close()
            except OSError:
                assert server.process.poll() is None, server.output
            time.sleep(0.005)
    finally:
        server.process.kill()
        server.process.wait(10)
    assert seen[-1] == 200
    assert 503 in seen
