"""Streams under trouble: failures, clients that leave or do not read, silence."""

import asyncio
import json
import socket
import time
from functools import partial

import aiohttp
import pytest
from promptness import until, usually_async

CHAT = "/v1/chat/completions"


async def open_stream(live, hi, rcvbuf=None, **fields):
    """Send a streaming request on a socket of one's own."""
    sock = socket.socket()
    if rcvbuf:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", live.server.port))
    reader, writer = await asyncio.open_connection(sock=sock)
    body = json.dumps({**hi, "stream": True, **fields}).encode()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                 b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)  # fmt: skip
    return reader, writer


@pytest.mark.parametrize("how", ["fail_after", "raise_after"])
async def test_failure_in_the_middle_is_an_event_then_the_end(live, hi, how):
    """After the first token a failure is one error event, and no [DONE] that looks like success."""
    setattr(live.engine, how, 2)
    live.engine.gap_s = 0.01
    status, _, events = await live.stream(CHAT, hi)
    assert status == 200
    assert "[DONE]" not in events
    error = events[-1]["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert error["type"] == "server_error"
    assert "/usr" not in error["message"]
    assert all("error" not in event for event in events[:-1])
    assert all(e["choices"][0]["finish_reason"] is None for e in events[:-1])


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_request(live, hi, how, stream):
    """Within 250 ms the engine's iterator is closed, however the client went; others go on."""
    live.engine.endless, live.engine.gap_s = True, 0.01
    live.model.max_context = 100_000

    async def leave():
        bystander = asyncio.create_task(live.post(CHAT, hi | {"max_tokens": 60}))
        reader, writer = await open_stream(live, hi, stream=stream)
        await until(lambda: live.engine.open == 2 or bystander.done())
        if stream:
            await reader.readuntil(b"Hello")
        sock = writer.get_extra_info("socket")
        if how == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.transport.abort()
        elif how == "half":
            sock.shutdown(socket.SHUT_WR)
        else:
            writer.close()
        took = await until(lambda: live.engine.open <= 1)
        # Where nothing went on for all this time, it may be the other that has ended.
        took = float("inf") if bystander.done() else took
        status, got, _ = await bystander
        assert (status, got["usage"]["completion_tokens"]) == (200, 60)
        writer.close()
        await until(lambda: not live.server.state.running)
        return took

    assert await usually_async(leave, 0.25) < 0.25


async def test_a_client_that_leaves_while_it_waits_frees_its_request(live, hi):
    """Leaving before the first token, with or without headers sent, cancels as well."""
    live.engine.gate = asyncio.Event()

    async def leave(has_headers):
        reader, writer = await open_stream(live, hi)
        await until(lambda: live.engine.open == 1)
        if has_headers:
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 120)
        writer.transport.abort()
        return await until(lambda: live.engine.open == 0)

    for has_headers in (False, True):
        assert await usually_async(partial(leave, has_headers), 0.25) < 0.25


async def test_headers_do_not_wait_for_a_slow_first_token(start, hi):
    """A long prompt gets its headers and the role early, then comments, then the text."""
    live = await start(first_byte_s=0.05, keepalive_s=0.05)
    live.engine.gate = asyncio.Event()
    body = json.dumps({**hi, "stream": True})
    kind = {"content-type": "application/json"}
    async with live.http.post(live.url + CHAT, data=body, headers=kind) as got:
        text = ""
        while text.count(": keep-alive\n\n") < 2:
            text += (await asyncio.wait_for(got.content.readany(), 120)).decode()
        assert "Hello" not in text
        live.engine.gate.set()
        text += (await got.read()).decode()
    assert text.index("assistant") < text.index("keep-alive") < text.index("Hello")
    assert text.endswith("data: [DONE]\n\n")


async def test_a_late_refusal_is_an_event(start, hi):
    """When headers had to go out first, a failure of the prompt is told in the stream."""
    live = await start(first_byte_s=0.05)
    live.engine.gate, live.engine.fail_after = asyncio.Event(), 0
    body = json.dumps({**hi, "stream": True})
    kind = {"content-type": "application/json"}
    async with live.http.post(live.url + CHAT, data=body, headers=kind) as got:
        assert got.status == 200
        live.engine.gate.set()
        text = (await got.read()).decode()
    assert "error" in json.loads(text.split("\n\n")[-2].removeprefix("data: "))
    assert "[DONE]" not in text


async def test_an_unforeseen_error_in_a_stream_is_an_event(live, hi, monkeypatch):
    """Whatever breaks after the headers, the client hears of it and nothing else is sent."""
    from radiance_core.server.chat import ChatForm

    def broken(self, usage):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(ChatForm, "closing", broken)
    status, _, events = await live.stream(CHAT, hi)
    assert status == 200
    assert events[-1]["error"]["type"] == "server_error"
    assert "secret" not in str(events)
    assert live.engine.open == 0


async def test_text_for_a_slow_reader_is_gathered_not_queued(start, hi):
    """A reader that pauses gets the same text in fewer, larger events, and memory stays small."""
    live = await start(stream_buffer_bytes=64 * 1024)
    live.model.max_context = 200_000
    live.engine.endless, live.engine.words = True, ["word " * 20]
    reader, writer = await open_stream(live, hi, rcvbuf=65536, max_tokens=50_000)
    await reader.readuntil(b"word")
    [generation] = live.server.state.running

    def held():
        return sum(len(delta.text) for delta in generation._pending.values())

    await until(lambda: held() > 60_000)
    for _ in range(100):
        await asyncio.sleep(0)  # the engine goes on as far as it may
    assert 60_000 < held() <= 64 * 1024 + 100
    raw = bytearray()
    while b"[DONE]" not in raw[-100:]:
        raw += await asyncio.wait_for(reader.read(1 << 20), 120)
    writer.close()
    assert raw.count(b"word ") > 999_000  # the rest was read with the first words
    assert max(map(len, raw.split(b"data: "))) > 60_000


async def test_a_client_that_reads_nothing_is_cut_off(start, hi):
    """Past the stall limit the connection is dropped and the request freed, big answer or small."""
    live = await start(stall_timeout_s=1.0, stream_buffer_bytes=1024)
    live.model.max_context = 10_000_000
    live.engine.endless, live.engine.words = True, ["x" * 1000]
    reader, writer = await open_stream(live, hi, rcvbuf=2048)
    reader._transport.pause_reading()
    await until(lambda: live.engine.open == 1)
    await until(lambda: live.engine.open == 0)
    await until(lambda: not live.server._listener.open)
    writer.close()


async def test_an_answer_that_is_never_read_does_not_hold_the_connection(start, hi):
    """Also an answer that is whole, but sits in the buffer, ends with the stall limit."""
    live = await start(stall_timeout_s=0.5)
    live.model.max_context = 10_000_000
    live.engine.endless, live.engine.words = True, ["x" * 100_000]
    reader, writer = await open_stream(live, hi, rcvbuf=2048, stream=False, max_tokens=100)
    reader._transport.pause_reading()
    await until(lambda: live.engine.requests)
    await until(lambda: live.engine.open == 0)
    await until(lambda: not live.server._listener.open)
    writer.close()


async def test_many_random_departures_leak_nothing(live, hi):
    """Clients that leave at random moments leave no request, task or connection behind."""
    import random

    live.engine.endless, live.engine.gap_s = True, 0.002
    before = len(asyncio.all_tasks())

    async def visit():
        _, writer = await open_stream(live, hi, n=random.choice([1, 3]),
                                      stream=random.random() < 0.7)  # fmt: skip
        await asyncio.sleep(random.random() * 0.1)
        writer.transport.abort() if random.random() < 0.5 else writer.close()

    for _ in range(10):
        await asyncio.gather(*(visit() for _ in range(20)))
    await until(lambda: live.engine.open == 0 and not live.server._listener.open)
    await until(lambda: not live.server.state.running)
    await until(lambda: len(asyncio.all_tasks()) <= before + 1)
    live.engine.endless = False
    assert (await live.post(CHAT, hi))[1]["choices"][0]["message"]["content"] == "Hello, wörld 🙂."


async def test_slow_headers_are_cut_off(start):
    """A client that never finishes its headers is dropped; one that says nothing, later."""
    live = await start(header_timeout_s=0.3, idle_timeout_s=600)
    slow_reader, slow = await asyncio.open_connection("127.0.0.1", live.server.port)
    _, mute = await asyncio.open_connection("127.0.0.1", live.server.port)
    await until(lambda: len(live.server._listener.open) == 2)
    started = time.monotonic()
    slow.write(b"GET /version HTTP/1.1\r\nHost: local")

    async def drip():
        while True:
            await asyncio.sleep(0.05)
            slow.write(b"x")

    dripping = asyncio.create_task(drip())
    with pytest.raises((ConnectionError, AssertionError)):
        assert await asyncio.wait_for(slow_reader.read(), 120)
    assert time.monotonic() - started > 0.3
    assert len(live.server._listener.open) == 1, "the mute one is still there"
    dripping.cancel()
    slow.close()
    mute.close()
    patient = await start(header_timeout_s=0.01, idle_timeout_s=1)
    started = time.monotonic()
    mute_reader, mute = await asyncio.open_connection("127.0.0.1", patient.server.port)
    with pytest.raises((ConnectionError, AssertionError)):
        assert await asyncio.wait_for(mute_reader.read(), 120)
    assert time.monotonic() - started > 1
    mute.close()


async def test_connections_have_a_cap_and_idle_ones_give_way(start, hi):
    """Idle connections cannot keep others out; busy ones are not closed for newcomers."""
    live = await start(max_connections=3)
    idle = [await asyncio.open_connection("127.0.0.1", live.server.port) for _ in range(3)]
    assert (await live.get("/version"))[0] == 200
    live.engine.endless, live.engine.gap_s = True, 0.01
    live.model.max_context = 100_000
    busy = [await open_stream(live, hi) for _ in range(3)]
    await until(lambda: live.engine.open == 3)
    async with aiohttp.ClientSession() as newcomer, newcomer.get(live.url + "/version") as got:
        assert got.status == 503
        assert got.headers["retry-after"]
        assert got.headers["x-request-id"].startswith("req_")
        assert (await got.json())["error"]["code"] == "too_many_connections"
    assert live.engine.open == 3
    for _, writer in [*idle, *busy]:
        writer.close()
