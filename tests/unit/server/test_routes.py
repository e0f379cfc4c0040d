"""Routes, errors in the one form, ids, models, health."""

import json
import re

import pytest

from radiance_core.engine.interface import EngineStopped, PromptTooLong, QueueFull
from radiance_core.server.app import ROUTES, find
from radiance_core.server.errors import ApiError, from_engine, scrub

CHAT = "/v1/chat/completions"


def check_error(got, path=""):
    """Check the keys of the path's form and their types, and that nothing private shows."""
    error = got["error"]
    assert error["message"]
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)
    if "/messages" in path:
        assert (set(got), got["type"]) == ({"type", "error", "request_id"}, "error")
    else:
        assert error["param"] is None or isinstance(error["param"], str)
        assert error["code"] is None or isinstance(error["code"], str)
    assert not re.search(r"0x[0-9a-f]{4}|/usr|Traceback|\.py", error["message"])


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("path", sorted(ROUTES))
async def test_wrong_method_is_405_with_allow(live, prefix, path):
    """Every route answers another method with 405, the error form and the methods it has."""
    for method in {"GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"} - ROUTES[path].keys():
        status, got, headers = await live.get(prefix + path, method)
        assert status == 405
        check_error(got, path)
        assert headers["allow"] == ", ".join(sorted(ROUTES[path]))


WITH_A_BODY = [path for path, methods in sorted(ROUTES.items()) if "POST" in methods
               and path not in {"/ping", "/reset_prefix_cache"}]  # fmt: skip


@pytest.mark.parametrize("path", WITH_A_BODY)
async def test_every_route_refuses_a_bad_body_in_its_form(live, path):
    """Broken JSON, no object, a wrong type, an unknown model and no JSON are each a 4xx."""
    for asked, statuses in [
        ({"raw": "{"}, {400}),
        ({"raw": "[]"}, {400}),
        ({"raw": ""}, {400}),
        ({"raw": b"\xff"}, {400}),
        ({"raw": '{"model":1}'}, {400}),
        ({"raw": '{"model":"x","model":"x"}'}, {400}),
        ({"body": {"model": "none", "messages": [{"role": "user", "content": "x"}]}}, {400, 404}),
        ({"raw": "{}", "headers": {"content-type": "text/plain"}}, {415}),
        ({"raw": "{}", "headers": {"content-encoding": "gzip"}}, {415}),
    ]:
        status, got, _ = await live.post(path, **asked)
        assert status in statuses, (asked, got)
        check_error(got, path)
    assert live.engine.requests == []


@pytest.mark.parametrize("path", [
    "/v1", "/v1/", "/v2/models", "/v1/v1/models", "/v1/models/", "//health", "/v1/engines",
    "/v1/chat", "/chat/completions/x", "/%2e%2e/etc/passwd", "/v1/embedding",
])  # fmt: skip
async def test_unknown_path_is_404_in_the_error_form(live, path):
    """What is not there says so as OpenAI does."""
    for method in ("GET", "POST"):
        status, got, _ = await live.get(path, method)
        assert (status, got["error"]["code"]) == (404, "unknown_url")
        assert got["error"]["message"].startswith(f"Invalid URL ({method} /")
        check_error(got)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/v1/chat", "/v1/chat/completions"),
        ("/chat/completion", "/chat/completions"),
        ("/v1/v1/models", "/v1/models"),
        ("/v1/Models/", "/v1/models"),
        ("/v1/embedding", "/v1/embeddings"),
        ("/api/generate", "/v1/completions"),
        ("/api/tags", "/v1/models"),
        ("/api/chat", "/v1/chat/completions"),
        ("/helth", "/health"),
    ],
)
async def test_a_path_that_is_near_a_route_is_told_it(live, path, meant):
    """A slip, or the name that another server has, leads to the route here."""
    _, got, _ = await live.post(path, {})
    assert got["error"]["message"] == f"Invalid URL (POST {path}); did you mean {meant}?"
    assert find(meant) is not None


async def test_a_path_that_is_near_nothing_is_told_the_main_routes(live):
    """However long it is, at once."""
    _, got, _ = await live.get("/" + "q" * 8000)
    assert got["error"]["message"].endswith(
        "q); routes are /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, "
        "/v1/models and more."
    )


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("completions", {"messages": [{"role": "user", "content": "hi"}]},
         "messages: a conversation goes to /v1/chat/completions."),
        ("chat/completions", {"prompt": "hi"},
         "prompt: a text to continue goes to /v1/completions."),
    ],
)  # fmt: skip
async def test_a_body_of_another_route_is_told_where_it_goes(live, path, body, says):
    """A conversation among texts, or a text among conversations."""
    status, got, _ = await live.post(f"/v1/{path}", body)
    assert (status, got["error"]["message"]) == (400, says)


async def test_head_is_get_without_a_body(live):
    """HEAD answers as GET does."""
    async with live.http.head(live.url + "/v1/models") as got:
        assert got.status == 200
        assert await got.read() == b""


async def test_models_list_and_retrieve(start):
    """The list has each name; one is found by any spelling of its id; created never changes."""
    live = await start(served_model_names=("team/best:v1", "alias"))
    status, got, _ = await live.get("/v1/models")
    assert status == 200
    assert got["object"] == "list"
    assert [card["id"] for card in got["data"]] == ["team/best:v1", "alias", "org/tiny:q4"]
    for card in got["data"]:
        assert (card["object"], card["created"]) == ("model", 1_700_000_000)
        assert (card["owned_by"], card["root"]) == ("radiance", "team/best:v1")
        assert card["max_model_len"] == 512
    import yarl

    for path in ("team/best:v1", "team%2Fbest%3Av1", "team/best%3av1", "alias", "org%2ftiny:q4"):
        async with live.http.get(yarl.URL(f"{live.url}/v1/models/{path}", encoded=True)) as got:
            assert got.status == 200, path
            assert "data" not in await got.json()
    status, got, _ = await live.get("/v1/models/none")
    assert (status, got["error"]["code"]) == (404, "model_not_found")
    assert "team/best:v1, alias, org/tiny:q4" in got["error"]["message"]


async def test_model_may_be_absent_or_any_of_its_names(start, hi):
    """An absent model is the one there is; a wrong one is a 404 that lists what exists."""
    live = await start(served_model_names=("best",))
    for name in ("best", "org/tiny:q4", None):
        status, got, _ = await live.post(CHAT, hi | {"model": name})
        assert (status, got["model"]) == (200, "best")
    for name in ("gpt-4", "", "BEST", "x" * 10_000):
        status, got, _ = await live.post(CHAT, hi | {"model": name})
        assert (status, got["error"]["code"]) == (404, "model_not_found")
        assert got["error"]["param"] == "model"
        assert "best, org/tiny:q4" in got["error"]["message"]
        assert len(got["error"]["message"]) < 300
        check_error(got)


async def test_request_ids_are_echoed_when_well_formed(live):
    """A good id comes back, a bad one is replaced, and none is made up when one was given."""
    for good in ("abc", "a-b_c.d:e", "A" * 128):
        _, _, headers = await live.get("/version", headers={"X-Request-Id": good})
        assert headers["x-request-id"] == good
    for bad in ("", "a b", "a" * 129, "-x", "ü", "a;b", '"'):
        _, _, headers = await live.get("/version", headers={"X-Request-Id": bad})
        assert re.fullmatch(r"req_[0-9a-f]{32}", headers["x-request-id"])
    _, _, headers = await live.get("/nothing", headers={"X-Request-Id": "err"})
    assert headers["x-request-id"] == "err"


async def test_version(live):
    """The program's version is on its own route."""
    assert (await live.get("/version"))[1] == {"version": "1.2.3"}


async def test_loading_is_503_everywhere_but_the_port_answers(start, hi):
    """Before there is a model the server says so, with a wait; afterwards it serves."""
    live = await start(attach=False)
    status, got, headers = await live.get("/health")
    assert (status, got["status"], headers["retry-after"]) == (503, "loading", "1")
    for call in (live.post(CHAT, hi), live.post("/v1/completions", {"prompt": "x"}),
                 live.get("/v1/models"), live.get("/v1/models/x")):  # fmt: skip
        status, got, headers = await call
        assert (status, got["error"]["code"]) == (503, "model_loading")
        assert int(headers["retry-after"]) >= 1
        check_error(got)
    status, _, [got] = await live.stream(CHAT, hi)
    assert status == 503
    live.server.attach(live.engine, live.model)
    assert (await live.get("/health"))[:2] == (
        200, {"status": "ok", "detail": "steps run", "model": "org/tiny:q4"},
    )  # fmt: skip
    assert (await live.post(CHAT, hi))[0] == 200
    for method in ("GET", "POST"):
        assert (await live.get("/ping", method))[0] == 200


async def test_health_tells_the_engines_truth(live, hi):
    """An engine that broke makes the server unhealthy, though the server itself lives."""
    live.engine.state = "failed"
    status, got, headers = await live.get("/health")
    assert (status, got["status"], got["error"]["code"]) == (503, "failed", "failed")
    assert got["detail"] == "it broke"
    assert headers["retry-after"]
    live.server.fail("no kernels at /usr/lib/x.so")
    status, got, _ = await live.get("/health")
    check_error(got)
    assert (await live.post(CHAT, hi))[1]["error"]["code"] == "engine_failed"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("refusal", "status", "code", "retry"),
    [
        (QueueFull("engine: 8 requests wait", 2.5), 429, "queue_full", "3"),
        (EngineStopped("engine: it is draining"), 503, "engine_stopped", "1"),
        (PromptTooLong("prompt", 600, 512), 400, "context_length_exceeded", None),
        (ValueError('File "/usr/x.py", line 3'), 500, None, None),
        (MemoryError(), 503, "out_of_memory", "1"),
    ],
)
async def test_refusals_have_real_statuses_also_when_streaming(
    live, hi, stream, refusal, status, code, retry
):
    """What fails before the first token is a status, not an event; waits are told in whole s."""
    live.engine.refusal = refusal
    if stream:
        got_status, headers, [got] = await live.stream(CHAT, hi)
    else:
        got_status, got, headers = await live.post(CHAT, hi)
    assert (got_status, got["error"]["code"]) == (status, code)
    check_error(got)
    assert headers.get("retry-after") == retry
    assert headers.get("x-should-retry") == ("false" if status == 500 else None)
    assert live.engine.open == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_before_the_first_token_is_a_500_not_to_be_repeated(live, hi, stream):
    """A kernel that fails in the prompt gives a status; its paths stay here."""
    live.engine.fail_after = 0
    if stream:
        status, headers, [got] = await live.stream(CHAT, hi)
    else:
        status, got, headers = await live.post(CHAT, hi)
    assert (status, headers["x-should-retry"]) == (500, "false")
    assert "kernel gemm_nt failed" in got["error"]["message"]
    check_error(got)


async def test_one_failing_choice_fails_the_answer_and_frees_the_others(live, hi):
    """With several choices one refusal is the answer, and nothing goes on behind it."""
    live.engine.raise_after = 2
    status, got, _ = await live.post(CHAT, hi | {"n": 4})
    assert status == 500
    check_error(got)
    assert live.engine.open == 0


def test_scrubbing():
    """Paths, addresses and traceback lines of others' texts do not reach a client."""
    for private in ("/usr/lib/python3/a.py", 'File "/x/y.py", line 12, in f', "0x7f001234abcd",
                    "C:\\Users\\me\\model", "~/models/a.gguf"):  # fmt: skip
        assert scrub(f"it failed: {private} (3)") in {
            "it failed: [removed] (3)", "it failed: [removed], in f (3)",
        }  # fmt: skip
    for plain in ("expected 3/4 of it", "and/or", "a http://host/x y", "16 x 0x1"):
        assert scrub(plain) == plain
    assert len(scrub("x" * 10_000)) == 1000
    assert scrub("\ud800") == "?"


def test_engine_errors_keep_api_errors():
    """An error that already is an answer stays what it is."""
    error = ApiError(418, "x")
    assert from_engine(error, "p", 1) is error


async def test_what_is_no_http_gets_the_error_form(live):
    """Garbage, long lines and many headers are answered in JSON, and the connection closes."""
    import asyncio

    said = set()
    many = b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % i for i in range(101)) + b"\r\n"
    line, lines = "malformed_request_line", "line_too_long"
    for raw, status, code in [
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, line),
        (b"HELLO\r\n\r\n", 400, line),
        (b"GET / HTTP/9.9\r\n\r\n", 400, line),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431, lines),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 9000 + b"\r\n\r\n", 431, lines),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX\x01: a\r\n\r\n", 400, "malformed_request"),
        (many, 431, "too_many_headers"),
        (b"GET /version HTTP/1.1\r\nHost: localhost\r\n"
         + b"".join(b"X-%d: %s\r\n" % (i, b"a" * 4000) for i in range(9)) + b"\r\n", 431, None),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
         400, "malformed_request"),
        (b"GET /version HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400,
         "malformed_request"),
        (b"GET /version HTTP/1.1\r\n\r\n", 400, "malformed_request"),
    ]:  # fmt: skip
        reader, writer = await asyncio.open_connection("127.0.0.1", live.server.port)
        writer.write(raw)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 120)
        assert int(head.split()[1]) == status, raw[:40]
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
        body = json.loads(await reader.readexactly(length))
        check_error(body)
        assert body["error"]["code"] == code, (raw[:40], body)
        said.add(body["error"]["message"])
        assert re.search(rb"(?i)x-request-id: req_[0-9a-f]{32}\r\n", head), raw[:40]
        writer.close()
    assert len(said) == 5, said
