"""Anthropic's Python client against a live server: helpers, tools, schemas, errors by class."""

import asyncio
from collections.abc import Iterator

import anthropic
import pydantic
import pytest
from e2e.clients.facts import (
    ASK_WEATHER,
    CITY,
    COUNT,
    GREETING,
    KEY,
    MODEL,
    PLACES,
    SEATS,
    num_held,
    wait_idle,
)
from live_server import LiveServer
from promptness import until, usually

# The client has no names any more for what it once called temperature and top_k.
GREEDY = {"extra_body": {"temperature": 0}}
TOOL = {"name": "get_weather", "description": "Tells the weather.", "input_schema": CITY}


@pytest.fixture
def client(server: LiveServer) -> Iterator[anthropic.Anthropic]:
    """A client; what it sends of itself must all mean something to the server."""
    ignored: list[str] = []

    def look(response):
        ignored.extend(response.headers.get_list("x-radiance-ignored"))

    http = anthropic.DefaultHttpxClient(event_hooks={"response": [look]})
    with anthropic.Anthropic(
        base_url=server.url, api_key=KEY, max_retries=0, http_client=http
    ) as made:
        yield made
    assert ignored == []


def test_helper_builds_the_whole_message(client):
    """The streaming helper ends with what a plain request gets."""
    asked = {"model": MODEL, "messages": GREETING, "max_tokens": 60, **GREEDY}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as events:
        text = "".join(events.text_stream)
        built = events.get_final_message()
    assert text == built.content[0].text == whole.content[0].text
    assert "assist you" in text
    assert built.stop_reason == whole.stop_reason == "end_turn"
    assert built.usage.output_tokens == whole.usage.output_tokens
    spent = [u.input_tokens + u.cache_read_input_tokens for u in (built.usage, whole.usage)]
    assert spent[0] == spent[1]
    counted = client.messages.count_tokens(model=MODEL, messages=GREETING)
    assert counted.input_tokens == spent[0]


def test_reasons_for_the_end(client):
    """A limit, a stop sequence and a message that is begun each do as they should."""
    asked = {"model": MODEL, "messages": COUNT, "max_tokens": 60, **GREEDY}
    short = client.messages.create(**(asked | {"max_tokens": 3}))
    assert (short.stop_reason, short.usage.output_tokens) == ("max_tokens", 3)
    full = client.messages.create(**asked).content[0].text
    stop = full[len(full) // 2 :][:4].strip()
    cut = client.messages.create(**asked, stop_sequences=[stop])
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stop)
    assert cut.content[0].text == full[: full.index(stop)]
    begun = [*GREETING, {"role": "assistant", "content": "Hello"}]
    got = client.messages.create(**(asked | {"messages": begun}))
    assert not got.content[0].text.startswith("Hello")


def test_a_tool_is_used_and_its_result_read(client):
    """A use that is due has input by its schema, streamed as whole; the result is answered."""
    messages = [{"role": "user", "content": ASK_WEATHER}]
    asked = {"model": MODEL, "tools": [TOOL], "max_tokens": 100, **GREEDY}
    once = {"type": "any", "disable_parallel_tool_use": True}
    got = client.messages.create(**asked, messages=messages, tool_choice=once)
    assert got.stop_reason == "tool_use"
    [use] = got.content
    assert use.name == "get_weather"
    assert use.input["city"] in CITY["properties"]["city"]["enum"]
    with client.messages.stream(
        **asked, messages=messages, tool_choice={"type": "tool", "name": "get_weather"}
    ) as events:
        [streamed] = events.get_final_message().content
    assert streamed.input["city"] in CITY["properties"]["city"]["enum"]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "Sunny, 21 degrees."}
    messages += [
        {"role": "assistant", "content": [block.to_dict() for block in got.content]},
        {"role": "user", "content": [result]},
    ]
    final = client.messages.create(**asked, messages=messages, tool_choice={"type": "none"})
    assert [block.type for block in final.content] == ["text"]


def test_a_format_is_enforced(client):
    """The parse helper gets an object of its class."""

    class Answer(pydantic.BaseModel):
        yes: bool
        number: int

    got = client.messages.parse(
        model=MODEL, messages=GREETING, max_tokens=200, output_format=Answer, **GREEDY
    )
    assert isinstance(got.parsed_output, Answer)


def test_errors_by_class(client):
    """Each mistake is the exception that the client has for it, with its type and an id."""
    asked = {"model": MODEL, "messages": GREETING, "max_tokens": 1}
    for extra, kind, word in [
        ({"max_tokens": 0}, anthropic.BadRequestError, "invalid_request_error"),
        ({"model": "claude"}, anthropic.NotFoundError, "not_found_error"),
        ({"extra_headers": {"Host": "evil.example"}}, anthropic.PermissionDeniedError,
         "permission_error"),
        ({"messages": [{"role": "user", "content": "word " * 20_000}]},
         anthropic.BadRequestError, "invalid_request_error"),
    ]:  # fmt: skip
        with pytest.raises(kind) as caught:
            client.messages.create(**(asked | extra))
        assert caught.value.body["error"]["type"] == word
        assert caught.value.body["request_id"] == caught.value.response.headers["x-request-id"]
    with pytest.raises(anthropic.AuthenticationError) as caught:
        client.with_options(api_key="wrong").messages.create(**asked)
    assert caught.value.body["error"]["type"] == "authentication_error"


async def test_a_full_server_is_a_rate_limit(server):
    """With its places and its queue taken the server refuses at once."""
    asked = {"model": MODEL, "messages": COUNT, "max_tokens": 6000, "stream": True,
             "extra_body": {"ignore_eos": True}}  # fmt: skip
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0) as client:

        async def hold():
            async with await client.messages.create(**asked) as stream:
                async for _ in stream:
                    pass

        held = [asyncio.create_task(hold()) for _ in range(SEATS + PLACES)]
        await until(lambda: num_held(server.url) == SEATS + PLACES)
        results = await asyncio.gather(
            *(client.messages.create(**asked) for _ in range(10)), return_exceptions=True
        )
        for each in held:
            each.cancel()
        ends = await asyncio.gather(*held, return_exceptions=True)
    assert {type(r) for r in results} == {anthropic.RateLimitError}
    assert {r.body["error"]["type"] for r in results} == {"rate_limit_error"}
    assert {type(end) for end in ends} == {asyncio.CancelledError}
    wait_idle(server.url)


def test_null_fields_are_absent(client):
    """Explicit nulls for every optional field change nothing."""
    names = ("system", "tools", "tool_choice", "thinking", "stop_sequences", "temperature",
             "top_k", "top_p", "metadata", "stream", "service_tier", "output_config")  # fmt: skip
    client.messages.create(
        model=MODEL, messages=GREETING, max_tokens=3, extra_body=dict.fromkeys(names)
    )


def test_leaving_frees_the_server(client, server):
    """A timeout and a stream that is closed end the work behind them."""
    asked = {"model": MODEL, "messages": COUNT, "max_tokens": 6000,
             "extra_body": {"ignore_eos": True}}  # fmt: skip

    def by_a_timeout():
        with pytest.raises(anthropic.APITimeoutError):
            client.with_options(timeout=0.3).messages.create(**asked)
        return wait_idle(server.url)

    def by_closing():
        with client.messages.stream(**asked) as stream:
            next(iter(stream.text_stream))
        return wait_idle(server.url)

    assert usually(by_a_timeout, 1) < 1
    assert usually(by_closing, 1) < 1
