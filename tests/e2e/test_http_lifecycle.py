"""A server's process: the port, keys, signals, exit statuses."""

import http.client
import json
import math
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from live_server import LiveServer, running, small_model
from promptness import usually

LONG = {"messages": [{"role": "user", "content": "Count to a thousand in words."}],
        "max_tokens": 4000, "stream": True, "ignore_eos": True}  # fmt: skip
SECOND_S = 1.2


def ask(url, body, **headers):
    """Send a request and return the response object."""
    data = json.dumps(body).encode()
    kind = {"content-type": "application/json", **headers}
    request = urllib.request.Request(f"{url}/v1/chat/completions", data, kind)
    return urllib.request.urlopen(request, timeout=240)


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
            assert took > 0.4
            last = [line for line in rest.split(b"\n") if line.startswith(b"data: ")][-1]
            assert json.loads(last[6:])["error"]["code"] == "draining"
            assert b"[DONE]" not in rest
            return took

    assert usually(drain, 2.5) < 2.5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_within_a_second(number):
    """Whoever asks twice does not wait for the drain; the first says so, and streams hear it."""
    assert usually(lambda: _ended_by_a_second(number), SECOND_S) < SECOND_S


def _ended_by_a_second(number):
    """Return how long a server with streams lasts after a second signal.

    Where a stream did not hear why it ends, that never counts as in time, however busy the
    machine is.
    """
    with running() as server:
        streams = [ask(server.url, LONG) for _ in range(3)]
        for stream in streams:
            stream.readline()
        server.process.send_signal(number)
        deadline = time.monotonic() + 240
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
    assert {told, None} >= set(heard)
    return took if heard == [told] * 3 else math.inf


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


GATE = """
import pathlib, time
while not pathlib.Path({open!r}).exists():
    time.sleep(0.005)
"""


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """A file without which nothing is loaded: a library that is looked for waits for it."""
    opened = tmp_path / "open"
    (tmp_path / "gate.py").write_text(GATE.format(open=str(opened)))
    info = tmp_path / "radiance_gate-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: radiance-gate\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[radiance.kernels]\ngate = gate\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return opened


def test_health_answers_while_the_model_loads(gate):
    """The port answers 503 before the model is ready, then 200: bound first, truthful always."""
    server = LiveServer(["--model", str(small_model()), "--port", "0", "--max-model-len", "64"])
    seen = []
    try:
        port = _port_of(server.process)
        deadline = time.monotonic() + 240
        while 200 not in seen:
            assert time.monotonic() < deadline, server.output
            seen.append(_health(port))
            if len(seen) == 3:
                assert not server.output
                gate.touch()
    finally:
        server.process.kill()
        server.process.wait(60)
    assert set(seen[:3]) == {503}
    assert set(seen[:-1]) == {503}


def _port_of(process):
    """Return the port that a process listens on, once it does."""
    deadline = time.monotonic() + 240
    while True:
        assert process.poll() is None
        assert time.monotonic() < deadline
        for each in psutil.Process(process.pid).net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN:
                return each.laddr.port
        time.sleep(0.01)


def _health(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=240) as got:
            return got.status
    except urllib.error.HTTPError as err:
        err.close()
        return err.code


def test_a_server_holds_no_types_that_its_model_has_not():
    """ml_dtypes is for bf16 and fp8: with integers alone, a start and an answer leave it out."""
    with running() as server:
        ask(server.url, {**LONG, "max_tokens": 2, "stream": False}).read()
        mapped = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "libavx.so" in mapped
    assert "ml_dtypes" not in mapped
