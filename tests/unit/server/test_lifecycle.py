"""Bind before load, drain on a signal, end."""

import asyncio
import json
import os
import signal
import socket
import time

import pytest
from promptness import until, usually_async

from radiance_abi.errors import ConfigurationError
from radiance_core.server.lifecycle import Server
from radiance_core.server.ports import BindError, bind, check_exposure
from radiance_core.server.settings import ServerSettings

CHAT = "/v1/chat/completions"


def test_an_open_server_wants_a_key():
    """Beyond loopback a key is needed, or the word that none is meant."""
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org", ""):
        with pytest.raises(ConfigurationError, match=r"--api-key.*--insecure"):
            check_exposure(ServerSettings(host=host))
        check_exposure(ServerSettings(host=host, insecure=True))
        check_exposure(ServerSettings(host=host, api_keys=("k",)))
    for host in ("127.0.0.1", "localhost", "::1"):
        check_exposure(ServerSettings(host=host))


async def test_a_taken_port_names_its_holder():
    """The error has the port, and the process that holds it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BindError) as caught:
            await Server(ServerSettings(port=port), "0").bind()
    text = str(caught.value)
    assert f"port {port}:" in text
    assert f"process {os.getpid()}" in text
    assert "--port" in text


def test_bad_addresses():
    """A host that is not ours or no host at all is said so."""
    with pytest.raises(BindError, match=r"--host no\.such\.invalid"):
        bind("no.such.invalid", 0)
    with pytest.raises(BindError, match=r"port 0: cannot listen on 192\.0\.2\.1"):
        bind("192.0.2.1", 0)
    with pytest.raises(BindError, match="--port: expected a number from 0 to 65535, got 70000"):
        bind("127.0.0.1", 70_000)


def test_all_addresses_of_a_name_share_one_port():
    """A name may be two addresses; port 0 picks one number for both."""
    sockets = bind("localhost", 0)
    assert len({each.getsockname()[1] for each in sockets}) == 1
    for each in sockets:
        each.close()


async def test_drain_lets_running_requests_end(start, hi):
    """A drain refuses what is new, finishes what runs, and takes no longer than that."""

    async def drain():
        live = await start(drain_timeout_s=600.0)
        live.engine.gate = asyncio.Event()
        running = asyncio.create_task(live.stream(CHAT, hi))
        whole = asyncio.create_task(live.post(CHAT, hi))
        while live.engine.open < 2:
            await asyncio.sleep(0.01)
        started = time.monotonic()
        draining = asyncio.create_task(live.server.drain())
        await until(lambda: live.server.state.health().state == "draining")
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", live.server.port)
        assert not draining.done()
        live.engine.gate.set()
        await draining
        took = time.monotonic() - started
        status, _, events = await running
        assert (status, events[-1]) == (200, "[DONE]")
        assert (await whole)[0] == 200
        return took

    assert await usually_async(drain, 2) < 2


async def test_drain_tells_those_it_cuts_off(start, hi):
    """At the limit a stream gets an error event and a whole answer a 503 with a wait."""

    async def drain():
        live = await start(drain_timeout_s=0.3)
        live.engine.endless, live.engine.gap_s = True, 0.02
        live.model.max_context = 100_000
        running = asyncio.create_task(live.stream(CHAT, hi))
        whole = asyncio.create_task(live.post(CHAT, hi))
        while live.engine.open < 2:
            await asyncio.sleep(0.01)
        started = time.monotonic()
        await live.server.drain()
        took = time.monotonic() - started
        assert took > 0.25
        status, _, events = await running
        assert status == 200
        assert events[-1]["error"]["code"] == "draining"
        assert "[DONE]" not in events
        status, got, headers = await whole
        assert (status, got["error"]["code"]) == (503, "draining")
        assert headers["retry-after"]
        assert live.engine.open == 0
        return took

    assert await usually_async(drain, 1.3) < 1.3


async def test_a_kept_connection_hears_of_the_drain(start, hi):
    """A request on an open connection during a drain is a 503, and the connection closes."""
    live = await start()
    live.engine.gap_s = 0.2
    reader, writer = await asyncio.open_connection("127.0.0.1", live.server.port)
    body = json.dumps(hi).encode()
    once = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
            b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)  # fmt: skip
    writer.write(once + once)
    while not live.engine.open:
        await asyncio.sleep(0.01)
    await live.server.drain()
    answer = await asyncio.wait_for(reader.read(), 120)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 503" in answer or answer.count(b"HTTP/1.1") == 1
    writer.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_run_binds_loads_serves_and_ends_on_a_signal(start, number):
    """The port answers while the model loads; a signal ends it with 0."""

    async def serve():
        spare = await start()
        server = Server(ServerSettings(port=0), "0")
        ready = asyncio.Event()

        async def load():
            await ready.wait()
            return spare.engine, spare.model

        running = asyncio.create_task(server.run(load))
        while server.port == 0:
            await asyncio.sleep(0.01)
        async with spare.http.get(f"{server.url}/health") as got:
            assert got.status == 503
            assert (await got.json())["status"] == "loading"
        ready.set()
        while server.state.phase != "ready":
            await asyncio.sleep(0.01)
        async with spare.http.get(f"{server.url}/health") as got:
            assert got.status == 200
        started = time.monotonic()
        os.kill(os.getpid(), number)
        assert await running == 0
        took = time.monotonic() - started
        assert spare.engine.state == "draining"
        return took

    assert await usually_async(serve, 0.5) < 0.5


async def test_a_signal_while_loading_ends_the_load(start):
    """A server that is still loading stops at once."""
    spare = await start()
    server = Server(ServerSettings(port=0), "0")
    loading, cancelled = asyncio.Event(), asyncio.Event()

    async def load():
        loading.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return spare.engine, spare.model

    running = asyncio.create_task(server.run(load))
    await loading.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(running, 120) == 0  # the load alone never ends
    assert cancelled.is_set()


async def test_a_failed_load_ends_the_server_with_its_error():
    """What load raises comes out of run, and the port is free again."""
    server = Server(ServerSettings(port=0), "0")

    async def load():
        raise ConfigurationError("model: no such file")

    with pytest.raises(ConfigurationError, match="no such file"):
        await server.run(load)
    bind("127.0.0.1", server.port)[0].close()


async def test_the_second_signal_ends_at_once(start, hi, monkeypatch):
    """A second signal does not wait for the drain limit, and the status says so."""
    exits = []
    monkeypatch.setattr(os, "_exit", exits.append)
    monkeypatch.setattr("radiance_core.server.lifecycle._HARD_EXIT_S", 5.0)

    async def end():
        spare = await start()
        spare.engine.endless, spare.engine.gap_s = True, 0.02
        spare.model.max_context = 100_000
        server = Server(ServerSettings(port=0), "0")

        async def load():
            return spare.engine, spare.model

        running = asyncio.create_task(server.run(load))
        while server.state.phase != "ready":
            await asyncio.sleep(0.01)
        body = json.dumps({**hi, "stream": True})
        kind = {"content-type": "application/json"}
        async with spare.http.post(server.url + CHAT, data=body, headers=kind) as got:
            await got.content.readany()
            os.kill(os.getpid(), signal.SIGTERM)
            await until(lambda: server.state.phase == "draining")
            assert not running.done()
            started = time.monotonic()
            os.kill(os.getpid(), signal.SIGTERM)
            assert await running == 128 + signal.SIGTERM
            took = time.monotonic() - started
        assert spare.engine.open == 0
        return took

    assert await usually_async(end, 1) < 1


async def test_half_a_header_does_not_hold_up_the_end(start):
    """A client that has sent a letter and no more is not waited for until the drain's limit."""
    live = await start(drain_timeout_s=600.0)
    _, writer = await asyncio.open_connection("127.0.0.1", live.server.port)
    writer.write(b"G")
    await writer.drain()
    await until(lambda: any(c._first_byte_at is not None for c in live.server._listener.open))
    async with asyncio.timeout(200):
        await live.server.drain()
    writer.close()
