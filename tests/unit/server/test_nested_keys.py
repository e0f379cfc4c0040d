"""Unknown keys inside the objects of a request: a slip is refused, anything else is named."""

import copy

import pytest

from .dialects import FORMAT

TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "x"},
    ],
    "tools": [TOOL, {"type": "function", "function": {"name": "g"}}],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}],
        },
    },
    "stream": True,
    "stream_options": {"include_usage": True},
}  # fmt: skip
FORMED = {
    "messages": [{"role": "user", "content": "hi"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}},
}
TEXT = {"prompt": "hi", "stream": True, "stream_options": {"include_usage": True}}
MESSAGES = {
    "max_tokens": 9,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "tool", "name": "f"},
    "output_config": {"effort": "none"},
}
RESPONSES = {
    "input": [
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
        {"role": "user", "content": "go on"},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    "tool_choice": {
        "type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}],
    },
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "none"},
}  # fmt: skip
# Route, body, path of an object in it, and a slip of a key that it may have.
PLACES = [
    ("chat/completions", CHAT, path, slip)
    for path, slip in [
        ("messages[0]", "contents"),
        ("messages[0].content[0]", "texts"),
        ("messages[1].tool_calls[0]", "functions"),
        ("messages[1].tool_calls[0].function", "argument"),
        ("tools[0]", "funktion"),
        ("tools[0].function", "paramters"),
        ("tools[1].function", "desciption"),
        ("tool_choice", "allowed_tool"),
        ("tool_choice.allowed_tools", "modes"),
        ("tool_choice.allowed_tools.tools[0]", "functions"),
        ("tool_choice.allowed_tools.tools[0].function", "names"),
        ("stream_options", "include_usge"),
    ]
]
PLACES += [
    ("chat/completions", FORMED, "response_format", "json_shema"),
    ("chat/completions", FORMED, "response_format.json_schema", "shema"),
    ("completions", TEXT, "stream_options", "include_usge"),
    ("messages", MESSAGES, "messages[0]", "contents"),
    ("messages", MESSAGES, "messages[0].content[0]", "texts"),
    ("messages", MESSAGES, "tools[0]", "input_shema"),
    ("messages", MESSAGES, "tool_choice", "names"),
    ("messages", MESSAGES, "output_config", "efort"),
    ("responses", RESPONSES, "input[0]", "contents"),
    ("responses", RESPONSES, "input[0].content[0]", "texts"),
    ("responses", RESPONSES, "input[1].content[0]", "texts"),
    ("responses", RESPONSES, "tools[0]", "paramters"),
    ("responses", RESPONSES, "tool_choice", "modes"),
    ("responses", RESPONSES, "tool_choice.tools[0]", "names"),
    ("responses", RESPONSES, "text.format", "shema"),
    ("responses", RESPONSES, "reasoning", "efort"),
]


async def ask(live, url, body):
    """Return status, headers and the text of an answer, whole or in events."""
    async with live.http.post(live.url + url, json=body) as got:
        return got.status, got.headers, await got.text()


def with_key(body, path, key, value=1):
    """Return a body with one more key in the object at a path."""
    body = copy.deepcopy(body)
    at = body
    for part in path.replace("[", ".[").split("."):
        at = at[int(part[1:-1])] if part.startswith("[") else at[part]
    at[key] = value
    return body


@pytest.mark.parametrize(("route", "body", "path", "slip"), PLACES)
async def test_a_key_inside_is_never_dropped_in_silence(start, route, body, path, slip):
    """A slip is a 400 that offers the key; another is named, with strict requests refused."""
    live, strict = await start(), await start(strict_requests=True)
    live.model.chat_format = strict.model.chat_format = FORMAT
    url = f"/v1/{route}"
    for asked in (live, strict):
        status, headers, text = await ask(asked, url, body)
        assert status == 200, text
        assert "x-radiance-ignored" not in headers
    status, _, text = await ask(live, url, with_key(body, path, slip))
    assert (status, f"{path}.{slip}" in text) == (400, True), text
    assert "is not a known field; did you mean" in text
    status, headers, text = await ask(live, url, with_key(body, path, "zebra"))
    assert (status, headers["x-radiance-ignored"]) == (200, f"{path}.zebra"), text
    assert f'"ignored":["{path}.zebra"]' in text
    status, headers, _ = await ask(live, url, with_key(body, path, "zebra", None))
    assert (status, "x-radiance-ignored" in headers) == (200, False)
    status, _, text = await ask(strict, url, with_key(body, path, "zebra"))
    assert (status, f"{path}.zebra" in text) == (400, True), text
    assert "--strict-requests" in text


async def test_what_is_ignored_is_not_told_to_the_model(live):
    """A template is given the keys of a tool that are known, and none of the others."""
    live.model.chat_format = FORMAT
    body = with_key(CHAT, "tools[0].function", "zebra")
    assert (await live.stream("/v1/chat/completions", body))[0] == 200
    (_, tools, _) = live.model.rendered[-1]
    assert [set(tool) for tool in tools] == [{"type", "function"}] * 2
    assert set(tools[0]["function"]) == {"name", "parameters", "description"}


async def test_one_key_in_many_objects_is_named_once(live):
    """Where it comes first; thirty-three different ones are too many to name."""
    parts = [{"type": "text", "text": "x", "zebra": n} for n in range(50)]
    body = {"messages": [{"role": "user", "content": parts}]}
    status, _, headers = await live.post("/v1/chat/completions", body)
    assert (status, headers["x-radiance-ignored"]) == (200, "messages[0].content[0].zebra")
    parts = [{"type": "text", "text": "x", f"zq{n * 7919}": 1} for n in range(33)]
    body = {"messages": [{"role": "user", "content": parts}]}
    status, got, _ = await live.post("/v1/chat/completions", body)
    assert (status, got["error"]["code"]) == (400, "unknown_parameter")


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"temp": 0}, "did you mean 'temperature'?"),
        ({"options": {"temperature": 0}}, "fields of the request itself here, such as temperature"),
        ({"think": False}, "did you mean 'enable_thinking'?"),
        ({"format": "json"}, "format: it is response_format here."),
        ({"num_predict": 3}, "did you mean 'max_tokens'?"),
    ],
)
async def test_words_of_other_servers_lead_to_those_here(live, hi, sent, says):
    """What Ollama and others call differently is refused by its name here."""
    status, got, _ = await live.post("/v1/chat/completions", hi | sent)
    assert status == 400
    assert says in got["error"]["message"]
