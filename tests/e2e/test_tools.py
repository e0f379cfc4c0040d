"""Tool calls of a real small model, which no luck but only enforcement can make right."""

import json
import random
from collections.abc import Iterator

import openai
import pytest
from live_server import LiveServer, running

FORMATS = ("hermes", "qwen3-coder", "mistral-list", "llama3-json")
ASK = [{"role": "user", "content": "Please book a table for two in Rome."}]
BOOK = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Rome", "Oslo", "Lima"]},
        "people": {"type": "integer", "minimum": 1, "maximum": 9},
        "outside": {"type": "boolean"},
    },
    "required": ["city", "people"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


def tool(name: str, parameters: dict) -> dict:
    return {"type": "function", "function": {"name": name, "description": name,
                                             "parameters": parameters}}  # fmt: skip


TOOLS = [tool("book", BOOK), tool("list_cities", NOTHING)]


@pytest.fixture(scope="module", params=FORMATS)
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    with running("--tool-format", request.param) as live:
        live.format = request.param  # type: ignore[attr-defined]
        yield live


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def body(client, **fields):
    """Return the fields of a request; those given as None are left out."""
    asked = {"messages": ASK, "tools": TOOLS, "temperature": 0, "max_tokens": 200, **fields}
    asked["model"] = client.models.list().data[0].id
    return {name: value for name, value in asked.items() if value is not None}


def ask(client, **fields):
    return client.chat.completions.create(**body(client, **fields))


def streamed(client, **fields):
    """Return the final choice of a stream, put together by the client's own helper."""
    with client.chat.completions.stream(**body(client, **fields)) as events:
        for _ in events:
            pass
        return events.get_final_completion().choices[0]


def check_booking(arguments: str) -> None:
    held = json.loads(arguments)
    assert held["city"] in {"Rome", "Oslo", "Lima"}
    assert 1 <= held["people"] <= 9
    assert isinstance(held["people"], int)
    assert isinstance(held.get("outside", True), bool)
    assert held.keys() <= BOOK["properties"].keys()


def parts(choice):
    calls = [(c.function.name, c.function.arguments) for c in choice.message.tool_calls or ()]
    return choice.message.content or "", calls, choice.finish_reason


def pieces(client, **fields):
    """Return content, calls and reason of a stream, added up here: the helper raises at a cut."""
    content, reason, calls = "", None, {}
    with client.chat.completions.create(**body(client, **fields), stream=True) as events:
        for chunk in events:
            [choice] = chunk.choices
            content += choice.delta.content or ""
            reason = choice.finish_reason
            for delta in choice.delta.tool_calls or ():
                if delta.id is not None:
                    assert (delta.type, delta.function.arguments) == ("function", "")
                    calls[delta.index] = [delta.function.name, ""]
                else:
                    assert delta.function.name is None
                    calls[delta.index][1] += delta.function.arguments
    return content, [tuple(call) for _, call in sorted(calls.items())], reason


def test_a_required_call_comes_whole_streamed_or_not(client, server):
    """required: calls of offered tools, arguments of their schema, and nothing else."""
    assert f"tools: {server.format} format (from --tool-format" in server.output
    seed = random.randrange(2**32)
    drawn = {"temperature": 1.2, "seed": seed, "parallel_tool_calls": False, "tools": TOOLS[:1]}
    for fields in ({}, drawn):
        choice = ask(client, tool_choice="required", **fields).choices[0]
        assert choice.finish_reason == "tool_calls", (seed, choice)
        assert choice.message.content is None
        for call in choice.message.tool_calls:
            assert call.id
            if call.function.name == "book":
                check_booking(call.function.arguments)
            else:
                assert call.function.name == "list_cities"
                assert json.loads(call.function.arguments) == {}
        ids = [call.id for call in choice.message.tool_calls]
        assert len(set(ids)) == len(ids)
        assert parts(streamed(client, tool_choice="required", **fields)) == parts(choice), seed


def test_a_named_call_is_the_only_one(client):
    """Naming a function gives exactly its call, and the reason is stop."""
    choice = ask(client, tool_choice={"type": "function", "function": {"name": "book"}}).choices[0]
    [call] = choice.message.tool_calls
    assert (call.function.name, choice.finish_reason) == ("book", "stop")
    check_booking(call.function.arguments)
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "book"}}]}
    choice = ask(
        client,
        tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
        parallel_tool_calls=False,
        temperature=1.2,
        n=2,
    )
    for one in choice.choices:
        [call] = one.message.tool_calls
        assert (call.function.name, one.finish_reason) == ("book", "tool_calls")
        check_booking(call.function.arguments)


def test_none_gives_no_call_and_no_mark(client):
    """none: tools may be seen, and cannot be called."""
    for seed in range(3):
        choice = ask(client, tool_choice="none", temperature=1.0, seed=seed, max_tokens=60)
        text = choice.choices[0].message.content
        assert choice.choices[0].message.tool_calls is None
        assert not any(mark in text for mark in ("<tool_call>", "[TOOL_CALLS]", '{"name"'))


def test_auto_agrees_streamed_and_whole(client):
    """auto: text or calls, the same in both, and never markup in the text."""
    for seed in range(3):
        fields = {"temperature": 1.0, "seed": seed, "max_tokens": 80}
        choice = ask(client, **fields).choices[0]
        content, calls, reason = pieces(client, **fields)
        assert (content, calls, reason) == parts(choice)
        assert (choice.finish_reason == "tool_calls") <= bool(choice.message.tool_calls)
        assert "tool_call" not in (choice.message.content or "")


def test_every_limit_cuts_a_call_the_same(client, server):
    """At each max_tokens stream and whole agree; arguments parse exactly when it was enough.

    Stop strings that stand in the call change nothing. For three of the formats at
    every third.
    """
    stops = ["city", "Rome", '"', "{", "}", ":", "book", "TOOL", "call"]
    full = ask(client, tool_choice="required", parallel_tool_calls=False)
    total = full.usage.completion_tokens
    step = 1 if server.format == "hermes" else 3
    for limit in (*range(1, total, step), total):
        fields = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": limit}
        choice = ask(client, **fields).choices[0]
        content, calls, reason = parts(choice)
        assert pieces(client, **fields) == (content, calls, reason)
        assert parts(ask(client, stop=random.sample(stops, 4), **fields).choices[0]) == (
            content, calls, reason,
        )  # fmt: skip
        assert content == ""
        assert len(calls) <= 1
        assert reason == ("length" if limit < total else "tool_calls")
        if reason == "tool_calls":
            json.loads(calls[0][1])


def test_stop_strings_end_the_content_only(client):
    """With words of the answer as stop strings: content ends before the first, calls are whole."""
    for seed in range(4):
        fields = {"temperature": 1.0, "seed": seed, "max_tokens": 80}
        content, calls, reason = parts(ask(client, **fields).choices[0])
        at = random.randrange(len(content)) if content else 0
        stops = [stop for stop in (content[at : at + 2], "city") if stop]
        got = parts(ask(client, stop=stops, **fields).choices[0])
        assert pieces(client, stop=stops, **fields) == got
        first = min((place for stop in stops if (place := content.find(stop)) >= 0), default=None)
        if first is None:
            assert got == (content, calls, reason), (seed, stops)
        else:
            assert got == (content[:first], [], "stop"), (seed, stops)


def test_a_required_call_is_whole_under_stop_strings(client):
    """What stands in its marks, name and arguments cuts no call short."""
    for stop in ["city", "{", '"', "o"]:
        choice = ask(client, tool_choice="required", stop=[stop], parallel_tool_calls=False)
        [call] = choice.choices[0].message.tool_calls
        assert choice.choices[0].finish_reason == "tool_calls"
        assert isinstance(json.loads(call.function.arguments), dict)


def test_a_conversation_goes_on_after_a_result(client):
    """A call and its result can be sent back, and are answered."""
    choice = ask(client, tool_choice="required", parallel_tool_calls=False).choices[0]
    call = choice.message.tool_calls[0]
    messages = [
        *ASK,
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": [{"type": "text", "text": "Done."}]},
    ]
    got = ask(client, messages=messages, tool_choice="none", max_tokens=30).choices[0]
    assert got.message.content
    assert not got.message.tool_calls


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type",
         "tools of type 'web_search' are not served; functions are"),
        ({"tools": [tool("f", {"type": "object", "properties": {"x": {"uniqueItems": True}}})]},
         "tools[0].function.parameters.properties.x.uniqueItems", "items are not compared"),
        ({"tool_choice": {"type": "function", "function": {"name": "fly"}}},
         "tool_choice.function.name", "expected one of the tools (book, list_cities), got 'fly'"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice", "expected tools with it"),
        ({"functions": [{"name": "f"}], "tools": None}, "functions", "superseded by tools"),
    ],
)  # fmt: skip
def test_what_cannot_be_enforced_is_refused(client, fields, param, words):
    """A tool or choice that is not served is a 400 that names it."""
    extra = {key: value for key, value in fields.items() if key == "functions"}
    rest = {key: value for key, value in fields.items() if key not in extra}
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, extra_body=extra, **rest)
    assert caught.value.param == param
    assert words in caught.value.message


def test_log_probabilities_are_told_with_the_text(client):
    """One object a token, best alternatives first, the same streamed."""
    fields = {"tools": None, "logprobs": True, "top_logprobs": 3, "max_tokens": 8}
    whole = ask(client, **fields)
    told = whole.choices[0].logprobs.content
    assert len(told) == whole.usage.completion_tokens
    text = b"".join(bytes(one.bytes) for one in told).decode()
    assert text.startswith(whole.choices[0].message.content)
    for one in told:
        assert len(one.top_logprobs) == 3
        assert one.logprob == max(top.logprob for top in one.top_logprobs)  # greedy
        assert one.token == one.top_logprobs[0].token
    with client.chat.completions.create(**body(client, **fields), stream=True) as events:
        parts_told = [chunk.choices[0].logprobs for chunk in events]
    assert [one for part in parts_told if part for one in part.content] == told


def test_a_template_without_tools_refuses_them():
    """Without a setting a model whose template knows no tools says so, and still chats."""
    with (
        running() as live,
        openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client,
    ):
        assert "tools: none: its chat template does not mention tools" in live.output
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client)
        assert (
            caught.value.message.endswith(
                "tools: this model cannot be given tools: its chat template does not mention tools."
            )
            or "its chat template does not mention tools" in caught.value.message
        )
        assert caught.value.param == "tools"
        assert ask(client, tools=None, max_tokens=4).choices[0].message.content
