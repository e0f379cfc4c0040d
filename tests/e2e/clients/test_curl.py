"""curl against a live server: what people paste into a terminal."""

import json
import subprocess

import pytest
from e2e.clients.facts import COUNT, GREETING, KEY, MODEL

JSON = ("-H", "content-type: application/json")
BEARER = ("-H", f"authorization: Bearer {KEY}")
X_KEY = ("-H", f"x-api-key: {KEY}")


@pytest.fixture
def curl(server):
    def run(path, *arguments, body=None):
        data = ("-d", json.dumps(body)) if body is not None else ()
        command = ["curl", "-sS", "-m", "60", *arguments, *data, server.url + path]
        return subprocess.run(command, check=True, capture_output=True, timeout=90).stdout

    return run


@pytest.mark.parametrize(
    ("path", "body", "read"),
    [
        ("/v1/chat/completions", {"messages": GREETING, "max_tokens": 3},
         lambda got: got["choices"][0]["message"]["content"]),
        ("/chat/completions", {"messages": GREETING, "max_tokens": 3},
         lambda got: got["choices"][0]["message"]["content"]),
        ("/v1/completions", {"prompt": "one, two,", "max_tokens": 3},
         lambda got: got["choices"][0]["text"]),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 3},
         lambda got: got["output"][0]["content"][0]["text"]),
        ("/v1/messages", {"messages": GREETING, "max_tokens": 3},
         lambda got: got["content"][0]["text"]),
        ("/v1/messages/count_tokens", {"messages": GREETING}, lambda got: got["input_tokens"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", [BEARER, X_KEY])
def test_every_route_answers_with_either_header(curl, path, body, read, key):
    """Without a model's name, with the key in the one header or the other."""
    assert read(json.loads(curl(path, *JSON, *key, body=body | {"temperature": 0})))


def test_one_conversation_has_one_text_in_every_dialect(curl):
    """The same system prompt and turns give the same answer and counts on the three routes."""
    turns = [{"role": "user", "content": "My name is Ada."},
             {"role": "assistant", "content": "Hello Ada!"},
             {"role": "user", "content": "Say my name."}]  # fmt: skip
    system = {"role": "system", "content": "You are brief."}
    greedy = {"temperature": 0, "ignore_eos": True}
    chat = json.loads(curl("/v1/chat/completions", *JSON, *BEARER, body=greedy | {
        "messages": [system, *turns], "max_tokens": 12}))  # fmt: skip
    items = json.loads(curl("/v1/responses", *JSON, *BEARER, body=greedy | {
        "instructions": system["content"], "input": turns, "max_output_tokens": 12}))  # fmt: skip
    blocks = json.loads(curl("/v1/messages", *JSON, *BEARER, body=greedy | {
        "system": system["content"], "messages": turns, "max_tokens": 12}))  # fmt: skip
    text = chat["choices"][0]["message"]["content"]
    assert text
    assert items["output"][0]["content"][0]["text"] == text
    assert blocks["content"][0]["text"] == text
    spent = blocks["usage"]["input_tokens"] + blocks["usage"]["cache_read_input_tokens"]
    assert chat["usage"]["prompt_tokens"] == items["usage"]["input_tokens"] == spent


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/chat/completions", b"data: [DONE]\n\n"),
        ("/v1/responses", b'"status":"incomplete"'),
        ("/v1/messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
    ],
)
def test_streams_are_readable_as_they_are(curl, path, last):
    """Each stream ends as its dialect ends, and comes as plain lines."""
    asked = {"stream": True, "temperature": 0}
    if path.endswith("responses"):
        asked |= {"input": "Count to fifty in words.", "max_output_tokens": 5}
    else:
        asked |= {"messages": COUNT, "max_tokens": 5}
    got = curl(path, "-N", "-i", *JSON, *BEARER, body=asked)
    head, _, rest = got.partition(b"\r\n\r\n")
    assert b"content-type: text/event-stream" in head.lower()
    assert last in rest[-1500:]
    assert all(line.startswith((b"data: ", b"event: ", b":", b"")) for line in rest.split(b"\n"))


def test_refusals_have_a_status_and_one_form(curl):
    """No key is a 401, no JSON a 415, no embeddings a 501, each with an error object."""
    status = ("-w", "\n%{http_code}")
    for arguments, body, expected in [
        (("/v1/chat/completions", *JSON), {"messages": GREETING}, 401),
        (("/v1/chat/completions", *BEARER, "-H", "content-type: text/plain"), {}, 415),
        (("/v1/embeddings", *JSON, *BEARER), {"input": "x", "model": MODEL}, 501),
        (("/v1/nothing", *JSON, *BEARER), {}, 404),
    ]:
        path, *rest = arguments
        text, _, code = curl(path, *status, *rest, body=body).rpartition(b"\n")
        assert int(code) == expected
        assert set(json.loads(text)["error"]) >= {"message", "type", "param", "code"}
