"""What is logged: one event a request, facts and ids, never words of a conversation or keys."""

import asyncio
import json
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from radiance_core.cli.logs import configure_logs

CHAT = "/v1/chat/completions"
SECRET = "the words of a conversation"


async def test_one_event_a_request_with_its_facts(start):
    """The access event has route, status, id and token counts; prompts and keys are not in it."""
    live = await start(api_keys=("sekret",))
    body = {"messages": [{"role": "user", "content": SECRET}], "zebra": 1, "stream": True}
    headers = {"X-Api-Key": "sekret", "X-Request-Id": "mine", "content-type": "application/json"}
    with capture_logs() as events:
        url = live.url + CHAT
        async with live.http.post(url, data=json.dumps(body), headers=headers) as got:
            await got.read()
        await live.get("/v1/nothing?key=sekret", headers={"X-Api-Key": "sekret"})
        await live.get("/health")
    [chat, nothing] = [event for event in events if event["event"] == "http_request"]
    assert (chat["route"], chat["status"], chat["request_id"]) == ("/chat/completions", 200, "mine")
    assert (chat["completion_tokens"], chat["streamed"], chat["ignored"]) == (5, True, ["zebra"])
    assert chat["duration_ms"] > 0
    assert (nothing["route"], nothing["status"]) == ("unknown", 404)
    assert SECRET not in str(events)
    assert "sekret" not in str(events)


async def test_a_client_that_leaves_is_499_in_the_log(live, hi):
    """A departure is a fact in the log, not an error with a traceback."""
    live.engine.endless, live.engine.gap_s = True, 0.005
    with capture_logs() as events:
        _, writer = await asyncio.open_connection("127.0.0.1", live.server.port)
        body = json.dumps(hi).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        while not live.engine.open:
            await asyncio.sleep(0.005)
        writer.transport.abort()
        while live.engine.open or not events:
            await asyncio.sleep(0.005)
    assert [(event["event"], event["status"]) for event in events] == [("http_request", 499)]


async def test_a_failure_is_logged_with_its_cause_and_id(live, hi):
    """What the client is not told stands in the log, under the id that the client has."""
    live.engine.raise_after = 0
    with capture_logs() as events:
        _, _, headers = await live.post(CHAT, hi)
    [failure] = [event for event in events if event["event"] == "http_request_failed"]
    assert failure["request_id"] == headers["x-request-id"]
    assert isinstance(failure["exc_info"], ValueError)


async def test_what_an_operator_asks_about_a_request(live, hi):
    """Route as called, times, tokens, reasons, and the name that /sessions has for it."""
    live.engine.before_first_s = 0.05
    with capture_logs() as events:
        await live.post("/chat/completions", hi | {"n": 2, "max_tokens": 3})
        await live.post("/v1/completions", {"prompt": "x"})
        await live.get("/v1/models/none")
        await live.get("/v1/nothing%0a" + "x" * 300 + "?secret=1")
    bare, completion, model, strange = [e for e in events if e["event"] == "http_request"]
    assert (bare["path"], bare["route"]) == ("/chat/completions", "/chat/completions")
    assert (completion["path"], model["path"]) == ("/v1/completions", "/v1/models/none")
    assert (strange["path"], strange["route"]) == ("/v1/nothing%0A" + "x" * 186, "unknown")
    assert 50 <= bare["ttft_ms"] <= bare["duration_ms"]
    assert (bare["completion_tokens"], bare["cached_tokens"]) == (6, 1)
    assert (bare["finish_reason"], completion["finish_reason"]) == ("length", "stop")
    assert bare["queued_ms"] == 250
    assert bare["sequence"] == live.engine.requests[0].request_id
    assert "ttft_ms" not in model


async def test_what_is_polled_is_told_to_those_who_debug(live):
    """A page that looks every second does not fill the log, but its refusals do show."""
    with capture_logs() as events:
        for path in ("/stats", "/sessions", "/load", "/metrics", "/", "/dashboard/main.js"):
            async with live.http.get(live.url + path) as got:
                assert got.status == 200
            async with live.http.post(live.url + path) as got:
                assert got.status == 405
        await live.get("/server_info")
    told = [(e["log_level"], e["status"]) for e in events if e["event"] == "http_request"]
    assert told == [("debug", 200), ("info", 405)] * 6 + [("info", 200)]


@pytest.fixture
def configured():
    """Put back how events are logged."""
    before = structlog.get_config()
    yield configure_logs
    structlog.configure(**before)


def test_lines_as_text_and_as_json(configured, capsys):
    """One event is one line in either form, whatever its values; the cause of errors is in it."""
    facts = {"a": 1, "text": 'two\nlines "quoted"', "listed": ["x", "y"], "path": Path("/p")}
    for form in ("text", "json"):
        configured("info", form)
        log = structlog.get_logger("test")
        log.debug("hidden")
        try:
            raise ValueError("why")
        except ValueError as error:
            log.error("shown", exc_info=error, **facts)
        [line] = capsys.readouterr().err.splitlines()
        assert "ValueError: why" in line
        if form == "json":
            got = json.loads(line)
            assert (got["event"], got["level"], got["a"]) == ("shown", "error", 1)
            assert (got["text"], got["listed"]) == (facts["text"], ["x", "y"])
            assert got["path"] == "/p"
        else:
            assert " level=error event=shown " in line
