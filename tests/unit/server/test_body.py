"""Bodies: what is no JSON, too big, too deep, too slow or badly wrapped is a 400-class answer."""

import asyncio
import json
import threading
import tracemalloc

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from processor_time import least

from radiance_core.server import body
from radiance_core.server.errors import ApiError
from radiance_core.server.settings import ServerSettings

CHAT = "/v1/chat/completions"
SETTINGS = ServerSettings()
GOOD = b'{"messages":[{"role":"user","content":"hi"}]'


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "got nothing"),
        (b"  \n", "got nothing"),
        (b"{", "line 1 column 2"),
        (b"[]", "got an array"),
        (b'"x"', "got a string"),
        (b"null", "got null"),
        (b"7", "got a number"),
        (b"true", "got a boolean"),
        (GOOD, "expected JSON"),
        (GOOD + b"}{}", "Extra data"),
        (GOOD + b',"a":1,}', "expected JSON"),
        (GOOD + b",'a':1}", "expected JSON"),
        (b"\xef\xbb\xbf" + GOOD + b"}", "expected JSON"),
        (GOOD + b',"a":"\xff"}', "bad byte at offset"),
        (GOOD + b',"a":"\xc0\xaf"}', "bad byte"),
        (GOOD + b',"a":"\xed\xa0\x80"}', "bad byte"),
        (GOOD + b',"a":"\\ud800"}', "surrogate"),
        (GOOD + b',"a":["x",{"b":"\\uDFFF"}]}', "surrogate"),
        (GOOD + b',"\\ud800":1}', "surrogate"),
        (GOOD + b',"a":"\\u0000"}', "NUL"),
        (GOOD + b',"a":"\x00"}', "control character"),
        (b"\x00" + GOOD + b"}", "expected JSON"),
        (GOOD + b',"a":' + b"9" * 30 + b"}", "64 bits"),
        (GOOD + b',"a":' + b"9" * 100_000 + b"}", "64 bits"),
        (GOOD + b',"a":1e999}', "finite"),
        (GOOD + b',"a":NaN}', "NaN"),
        (GOOD + b',"a":-Infinity}', "-Infinity"),
        (GOOD + b',"a":01}', "expected JSON"),
        (GOOD + b',"messages":[]}', "'messages' twice"),
        (GOOD + b',"a":{"b":1,"b":1}}', "'b' twice"),
        (GOOD + b',"a":' + b"[" * 200 + b"]" * 200 + b"}", "nesting"),
        (GOOD + b',"a":' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}", "nesting"),
    ],
)
async def test_what_is_no_good_json_is_a_400(live, raw, words):
    """Each is an invalid_request_error that says what is wrong; none is a 5xx."""
    status, got, _ = await live.post(CHAT, raw=raw)
    assert status == 400
    assert got["error"]["type"] == "invalid_request_error"
    assert words in got["error"]["message"]
    assert live.engine.requests == []


@pytest.mark.parametrize(
    "bomb",
    [
        b"[" * 5_000_000,
        b"[" * 2_500_000 + b"]" * 2_500_000,
        b'{"a":' * 1_000_000,
        b'{"x":[' + b"[]," * 5_000_000 + b"[]]}",
        b'{"x":[' + b"1," * 10_000_000 + b"1]}",
        b'{"x":"' + b"\\" * 20_000_001 + b'"}',
        b'"' * 20_000_001,
        b'{"a":"' + b'[{\\"' * 3_000_000,
    ],
)
def test_bombs_cost_little(bomb):
    """Depth and number are refused before anything is built: in time and space near the body's."""

    def parse():
        with pytest.raises(ApiError) as caught:
            body.parse(bomb, SETTINGS)
        assert caught.value.status == 400

    tracemalloc.start()
    try:
        parse()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(bomb) + (64 << 20)
    assert least(parse, 1.5) < 1.5  # a fifth of this on an idle core


@pytest.mark.parametrize("depth", [1, 127, 128, 129, 130, 1000])
def test_depth_is_counted_exactly(depth):
    """A body is refused from one level past the limit on, and brackets in strings do not count."""
    inner = json.dumps("[{" * 500 + '"' + "[{" * 500 + "\\" + "]" * 3)
    raw = ('{"a":' + "[" * (depth - 1) + inner + "]" * (depth - 1) + "}").encode()
    if depth <= SETTINGS.max_json_depth:
        assert body.parse(raw, SETTINGS)
    else:
        with pytest.raises(ApiError, match="at most 128 levels"):
            body.parse(raw, SETTINGS)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=30,
)


@given(st.dictionaries(st.text("abc", max_size=3), json_values), st.booleans())
def test_good_json_is_read_as_the_standard_library_reads_it(value, ascii_only):
    """Whatever is well formed comes through unchanged, escaped or not."""
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert body.parse(raw, SETTINGS) == json.loads(raw)


@given(st.binary(max_size=200))
def test_any_bytes_are_json_or_a_400(raw):
    """No input makes the parser raise anything but the one error."""
    try:
        status = 200 if isinstance(body.parse(raw, SETTINGS), dict) else 500
    except ApiError as err:
        status = err.status
    assert status in {200, 400}


@hypothesis_settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(junk=st.dictionaries(
    st.sampled_from(["prompt", "n", "stop", "seed", "model", "echo", "stream_options", "logit_bias",
                     "max_tokens", "temperature", "stop_token_ids", "zebra", "top_k"]),
    json_values))  # fmt: skip
async def test_any_json_is_an_answer_or_a_400(live, junk):
    """Whatever the fields hold, the answer is 200 or a client error in the one form."""
    status, got, _ = await live.post("/v1/completions", {"prompt": "x", **junk})
    assert status in {200, 400, 404}
    assert status == 200 or set(got["error"]) >= {"message", "type", "param", "code"}


async def test_type_and_encoding(live, hi):
    """Only JSON is read, in UTF-8, and nothing compressed; +json types and charsets are fine."""
    raw = json.dumps(hi).encode()
    for kind in ("text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data",
                 "application/json; charset=utf-16", "application/jsonp"):  # fmt: skip
        status, got, _ = await live.post(CHAT, raw=raw, headers={"content-type": kind})
        assert (status, got["error"]["code"]) == (415, "unsupported_media_type"), kind
    for kind in ("application/json", "Application/JSON; charset=UTF-8", "application/vnd.x+json"):
        assert (await live.post(CHAT, raw=raw, headers={"content-type": kind}))[0] == 200
    for coding in ("gzip", "deflate", "br", "identity"):
        status, got, _ = await live.post(CHAT, raw=raw, headers={"content-encoding": coding})
        assert (status, got["error"]["code"]) == (415, "unsupported_content_encoding")


async def test_size_is_counted_while_it_comes(start, hi):
    """One byte past the limit is 413, by its announced length or by counting chunks."""
    live = await start(max_body_bytes=2000)
    raw = json.dumps(hi).encode()
    assert (await live.post(CHAT, raw=raw + b" " * (2000 - len(raw))))[0] == 200
    status, got, headers = await live.post(CHAT, raw=raw + b" " * (2001 - len(raw)))
    assert (status, got["error"]["code"]) == (413, "body_too_large")
    assert headers["connection"] == "close"

    async def chunks():
        for _ in range(100):
            yield b" " * 100

    status, got, _ = await live.post(CHAT, raw=chunks())
    assert (status, got["error"]["code"]) == (413, "body_too_large")


async def test_a_body_that_stops_coming_is_408(start):
    """A client that sends half a body does not hold the connection for ever."""
    live = await start(body_timeout_s=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", live.server.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n"
                 b"Content-Type: application/json\r\n\r\n{")  # fmt: skip
    answer = await asyncio.wait_for(reader.read(), 120)
    assert b" 408 " in answer.split(b"\r\n")[0]
    assert b'"code":"body_timeout"' in answer
    writer.close()


async def test_a_client_that_waits_is_invited(live, hi):
    """Expect: 100-continue gets its word once the headers have passed, and only then."""
    raw = json.dumps(hi).encode()
    head = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n"
            b"Content-Length: %d\r\nExpect: %s\r\n\r\n")  # fmt: skip
    for kind, expect, first in [
        (b"application/json", b"100-continue", b"100"), (b"text/plain", b"100-continue", b"415"),
        (b"application/json", b"200-ok", b"417"),
    ]:  # fmt: skip
        reader, writer = await asyncio.open_connection("127.0.0.1", live.server.port)
        writer.write(head % (kind, len(raw), expect))
        status = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 120)).split()[1]
        assert status == first
        if first == b"417":
            said = await asyncio.wait_for(reader.readuntil(b"}}"), 120)
            assert b"Expect: expected 100-continue, got '200-ok'." in said
        if first == b"100":
            writer.write(raw)
            assert b" 200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 120)
        writer.close()


async def test_broken_chunks_are_400(live):
    """A body whose transfer coding is broken is a client's error in the one form."""
    reader, writer = await asyncio.open_connection("127.0.0.1", live.server.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked"
                 b"\r\nContent-Type: application/json\r\n\r\nzz\r\n{}\r\n0\r\n\r\n")  # fmt: skip
    answer = await asyncio.wait_for(reader.read(), 120)
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert b'"error"' in answer
    writer.close()


async def test_a_large_body_is_parsed_beside_the_event_loop(live, hi, monkeypatch):
    """Small bodies are parsed at once, large ones on another thread; both are honoured."""
    threads = []
    parse = body.parse

    def noted(data, settings):
        threads.append(threading.current_thread() is threading.main_thread())
        return parse(data, settings)

    monkeypatch.setattr(body, "parse", noted)
    for size in (10, 100_000):
        status, got, _ = await live.post("/v1/chat/completions", hi | {"zebra": "x" * size})
        assert (status, got["radiance"]["ignored"]) == (200, ["zebra"])
    status, got, _ = await live.post("/v1/chat/completions", hi | {"max_token": "x" * 100_000})
    assert (status, got["error"]["param"]) == (400, "max_token")
    assert threads == [True, False, False]
