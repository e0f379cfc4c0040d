"""The official Python client against a live server: helpers, tools, schemas, errors by class."""

import asyncio
import json
from collections.abc import Iterator

import openai
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


class Answer(pydantic.BaseModel):
    """What a structured answer must look like."""

    yes: bool
    number: int


TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
FLAT = {"type": "function", "name": "get_weather", "parameters": CITY, "strict": True}


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    """A client; what it sends of itself must all mean something to the server."""
    ignored: list[str] = []

    def look(response):
        ignored.extend(response.headers.get_list("x-radiance-ignored"))

    http = openai.DefaultHttpxClient(event_hooks={"response": [look]})
    url = f"{server.url}/v1"
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, http_client=http) as made:
        yield made
    assert ignored == []


def test_chat_helper_builds_the_whole_answer(client):
    """The streaming helper ends with what a plain request gets, counts too."""
    asked = {"model": MODEL, "messages": COUNT, "temperature": 0, "max_tokens": 40}
    whole = client.chat.completions.create(**asked)
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
        kinds = {event.type for event in events}
        built = events.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert built.choices[0].message.content == whole.choices[0].message.content
    assert built.choices[0].finish_reason == whole.choices[0].finish_reason
    assert built.usage.total_tokens == whole.usage.total_tokens
    assert built.usage.completion_tokens == whole.usage.completion_tokens > 5


def test_chat_parses_into_a_model(client):
    """A schema is enforced: even this small model's answer is an object of the class."""
    got = client.chat.completions.parse(
        model=MODEL, messages=GREETING, response_format=Answer, max_tokens=200, temperature=0
    )
    assert isinstance(got.choices[0].message.parsed, Answer)
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model=MODEL, messages=GREETING, response_format=Answer, max_tokens=2, temperature=0
        )


def test_chat_calls_a_tool_and_goes_on(client):
    """A required call has arguments by its schema, streamed as whole, and its result is read."""
    messages = [{"role": "user", "content": ASK_WEATHER}]
    asked = {"model": MODEL, "tools": [TOOL], "temperature": 0, "max_tokens": 100,
             "parallel_tool_calls": False}  # fmt: skip
    got = client.chat.completions.create(**asked, messages=messages, tool_choice="required")
    [call] = got.choices[0].message.tool_calls
    assert got.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] in CITY["properties"]["city"]["enum"]
    with client.chat.completions.stream(
        **asked, messages=messages, tool_choice="required"
    ) as events:
        for _ in events:
            pass
        [streamed] = events.get_final_completion().choices[0].message.tool_calls
    assert streamed.function.arguments == call.function.arguments
    messages += [
        got.choices[0].message.to_dict(),
        {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 21 degrees."},
    ]
    final = client.chat.completions.create(**asked, messages=messages, tool_choice="none")
    assert final.choices[0].message.content
    assert not final.choices[0].message.tool_calls


def test_responses_helper_builds_the_whole_answer(client):
    """Created, streamed and final response have the same text and counts."""
    asked = {"model": MODEL, "input": "hi", "temperature": 0, "max_output_tokens": 60}
    whole = client.responses.create(**asked)
    with client.responses.stream(**asked) as events:
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        built = events.get_final_response()
    assert text == built.output_text == whole.output_text
    assert "assist you" in text
    assert built.usage.total_tokens == whole.usage.total_tokens
    assert whole.status == "completed"
    again = [{"role": "user", "content": "hi"}, *(i.to_dict() for i in whole.output),
             {"role": "user", "content": "and?"}]  # fmt: skip
    assert client.responses.create(**(asked | {"input": again})).usage.input_tokens > 31
    counted = client.responses.input_tokens.count(model=MODEL, input="hi")
    assert counted.input_tokens == whole.usage.input_tokens
    short = client.responses.create(**(asked | {"max_output_tokens": 3}))
    assert (short.status, short.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_responses_parse_into_a_model(client):
    """A text format is enforced, streamed or not."""
    asked = {"model": MODEL, "input": "hi", "max_output_tokens": 200, "temperature": 0}
    assert isinstance(client.responses.parse(**asked, text_format=Answer).output_parsed, Answer)
    with client.responses.stream(**asked, text_format=Answer) as events:
        assert isinstance(events.get_final_response().output_parsed, Answer)


def test_responses_call_a_tool_and_go_on(client):
    """A call is an item, its output another, and the answer follows."""
    asked = {"model": MODEL, "tools": [FLAT], "temperature": 0, "max_output_tokens": 100,
             "parallel_tool_calls": False}  # fmt: skip
    first = [{"role": "user", "content": ASK_WEATHER}]
    with client.responses.stream(**asked, input=first, tool_choice="required") as events:
        kinds = {event.type for event in events}
        got = events.get_final_response()
    assert {"response.function_call_arguments.delta",
            "response.function_call_arguments.done"} <= kinds  # fmt: skip
    [call] = got.output
    assert call.parsed_arguments["city"] in CITY["properties"]["city"]["enum"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
    items = [*first, {"type": "function_call", "call_id": call.call_id, "name": call.name,
                      "arguments": call.arguments}, output]  # fmt: skip
    final = client.responses.create(**asked, input=items, tool_choice="none")
    assert final.output_text
    assert [item.type for item in final.output] == ["message"]


def test_completions_tell_log_probabilities(client):
    """The lists of an echoed prompt and its continuation fit the text."""
    got = client.completions.create(
        model=MODEL, prompt="The capital of France is", max_tokens=4, temperature=0, logprobs=3,
        echo=True,
    ).choices[0]  # fmt: skip
    lists = got.logprobs
    assert lists.token_logprobs[0] is None
    assert "".join(lists.tokens) == got.text
    assert all(logprob <= 0 for logprob in lists.token_logprobs[1:])
    for token, logprob, top in list(
        zip(lists.tokens, lists.token_logprobs, lists.top_logprobs, strict=True)
    )[-4:]:
        assert top[token] == logprob == max(top.values())
        assert len(top) == 3
    assert [got.text[offset] for offset in lists.text_offset] == [t[0] for t in lists.tokens]


def test_errors_by_class(client, server):
    """Each mistake is the exception that the client has for it, with the code of its cause."""
    asked = {"model": MODEL, "messages": GREETING, "max_tokens": 1}
    chat = client.chat.completions
    with pytest.raises(openai.BadRequestError) as caught:
        chat.create(**asked, temperature=3)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as caught:
        chat.create(**(asked | {"model": "gpt-4"}))
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.retrieve("resp_1")
    assert caught.value.code == "response_not_found"
    with pytest.raises(openai.AuthenticationError) as caught:
        client.with_options(api_key="wrong").chat.completions.create(**asked)
    assert caught.value.code == "invalid_api_key"
    with pytest.raises(openai.PermissionDeniedError):
        chat.create(**asked, extra_headers={"Host": "evil.example"})
    with pytest.raises(openai.InternalServerError) as caught:
        client.with_options(max_retries=2).embeddings.create(model=MODEL, input="x")
    assert (caught.value.status_code, caught.value.code) == (501, "embeddings_not_supported")
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.request_id


async def test_a_full_server_is_a_rate_limit(server):
    """With its places and its queue taken the server refuses at once and says when to come back."""
    asked = {"model": MODEL, "messages": COUNT, "max_tokens": 6000, "stream": True,
             "extra_body": {"ignore_eos": True}}  # fmt: skip
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key=KEY, max_retries=0
    ) as client:

        async def hold():
            async with await client.chat.completions.create(**asked) as stream:
                async for _ in stream:
                    pass

        held = [asyncio.create_task(hold()) for _ in range(SEATS + PLACES)]
        await until(lambda: num_held(server.url) == SEATS + PLACES)
        results = await asyncio.gather(
            *(client.chat.completions.create(**asked) for _ in range(10)), return_exceptions=True
        )
        for each in held:
            each.cancel()
        ends = await asyncio.gather(*held, return_exceptions=True)
    assert {type(r) for r in results} == {openai.RateLimitError}
    assert {r.code for r in results} == {"queue_full"}
    assert all(int(r.response.headers["retry-after"]) >= 1 for r in results)
    assert {type(end) for end in ends} == {asyncio.CancelledError}
    wait_idle(server.url)


def test_null_fields_are_absent(client):
    """Explicit nulls for every optional field change nothing."""
    asked = {"model": MODEL, "temperature": 0, "max_tokens": 5}
    names = ("stop", "seed", "n", "tools", "tool_choice", "response_format", "logit_bias",
             "logprobs", "top_logprobs", "stream", "stream_options", "user", "metadata",
             "presence_penalty", "frequency_penalty", "top_p", "reasoning_effort",
             "parallel_tool_calls", "max_completion_tokens", "modalities", "audio")  # fmt: skip
    nulls = {"extra_body": dict.fromkeys(names)}
    plain = client.chat.completions.create(**asked, messages=GREETING)
    got = client.chat.completions.create(**asked, messages=GREETING, **nulls)
    assert got.choices[0].message.content == plain.choices[0].message.content
    text = ("suffix", "best_of", "echo", "logprobs", "stop", "n", "stream", "seed")
    client.completions.create(**asked, prompt="x", extra_body=dict.fromkeys(text))
    items = ("instructions", "previous_response_id", "conversation", "tools", "tool_choice", "text",
             "reasoning", "include", "truncation", "metadata", "stream", "top_p", "background",
             "parallel_tool_calls", "prompt", "store", "user")  # fmt: skip
    client.responses.create(
        model=MODEL, input="hi", max_output_tokens=5, extra_body=dict.fromkeys(items)
    )


def test_leaving_frees_the_server(client, server):
    """A timeout and a stream that is closed end the work behind them."""
    asked = {"model": MODEL, "messages": COUNT, "max_tokens": 6000, "temperature": 0,
             "extra_body": {"ignore_eos": True}}  # fmt: skip

    def by_a_timeout():
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.3).chat.completions.create(**asked)
        return wait_idle(server.url)

    def by_closing():
        stream = client.chat.completions.create(**asked, stream=True)
        for _ in range(3):
            next(stream)
        stream.close()
        return wait_idle(server.url)

    assert usually(by_a_timeout, 1) < 1
    assert usually(by_closing, 1) < 1
