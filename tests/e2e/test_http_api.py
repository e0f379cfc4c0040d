"""The HTTP routes over a real model, with the clients that people use."""

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator

import aiohttp
import openai
import pytest
from live_server import LiveServer, running
from promptness import usually_async

MODEL = "smol"
GREETING = [{"role": "user", "content": "hi"}]
COUNT = [{"role": "user", "content": "Count from one to fifty in words, please."}]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with running("--served-model-name", MODEL) as live:
        yield live


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as made:
        yield made


def test_chat_answers(client):
    """The model's own answer comes through its template, ends by itself, and is counted."""
    got = client.chat.completions.create(
        model=MODEL, messages=GREETING, temperature=0, max_tokens=100
    )
    assert "assist you" in got.choices[0].message.content
    assert got.choices[0].finish_reason == "stop"
    assert got.usage.total_tokens == got.usage.prompt_tokens + got.usage.completion_tokens
    assert "<|im_end|>" not in got.choices[0].message.content


def test_stream_equals_whole(client):
    """Greedy decoding gives one text, streamed or not, and the same counts."""
    asked = {"model": MODEL, "messages": COUNT, "temperature": 0, "max_tokens": 200}
    whole = client.chat.completions.create(**asked)
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
        for _ in events:
            pass
        streamed = events.get_final_completion()
    assert streamed.choices[0].message.content == whole.choices[0].message.content
    assert streamed.choices[0].finish_reason == whole.choices[0].finish_reason == "stop"
    assert streamed.usage.total_tokens == whole.usage.total_tokens
    assert whole.usage.completion_tokens > 5


def test_seed_repeats_and_choices_differ(client):
    """One seed gives one text; n choices have draws of their own, each as if asked alone."""
    asked = {"model": MODEL, "messages": COUNT, "temperature": 1.2, "max_tokens": 24, "seed": 7}
    texts = [client.chat.completions.create(**asked).choices[0].message.content for _ in range(2)]
    assert texts[0] == texts[1]
    many = client.chat.completions.create(**asked, n=3)
    assert many.choices[0].message.content == texts[0]
    assert len({choice.message.content for choice in many.choices}) == 3


def test_reported_seed_repeats_the_answer(client):
    """The seed drawn for a request without one gives the same text when asked for."""
    asked = {"model": MODEL, "messages": COUNT, "temperature": 1.2, "max_tokens": 24}
    first = client.chat.completions.create(**asked)
    again = client.chat.completions.create(**asked, seed=first.model_extra["radiance"]["seed"])
    assert again.choices[0].message.content == first.choices[0].message.content


def test_stop_strings_cut_and_are_not_shown(client):
    """The text ends right before the first stop, streamed and whole, and says which it was."""
    asked = {"model": MODEL, "prompt": "1, 2, 3, 4, 5, 6, 7, 8,", "temperature": 0,
             "max_tokens": 60}  # fmt: skip
    full = client.completions.create(**asked).choices[0].text
    stop = full[len(full) // 2 :][:3]
    expected = full[: full.index(stop)]
    whole = client.completions.create(**asked, stop=["never there", stop]).choices[0]
    assert (whole.text, whole.finish_reason) == (expected, "stop")
    assert whole.model_extra["stop_reason"] == stop
    pieces = client.completions.create(**asked, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in pieces if chunk.choices) == expected


def test_prompt_forms_agree(client, server):
    """Text and its token ids give one answer, and echo gives the prompt back before it."""
    text = "The quick brown fox"
    one = client.completions.create(model=MODEL, prompt=text, temperature=0, max_tokens=8)
    echo = client.completions.create(
        model=MODEL, prompt=[text, text], temperature=0, max_tokens=8, echo=True
    )
    assert [choice.text for choice in echo.choices] == [text + one.choices[0].text] * 2
    none = client.completions.create(model=MODEL, prompt=text, max_tokens=0, echo=True)
    assert (none.choices[0].text, none.usage.completion_tokens) == (text, 0)


def test_errors_by_class(client):
    """Each mistake is the exception that the client has for it."""
    for asked, kind, code in [
        ({"model": "gpt-4"}, openai.NotFoundError, "model_not_found"),
        ({"temperature": 3}, openai.BadRequestError, None),
        ({"messages": []}, openai.BadRequestError, None),
        ({"extra_body": {"max_token": 4}}, openai.BadRequestError, "unknown_parameter"),
        ({"audio": {"voice": "x", "format": "wav"}}, openai.BadRequestError,
         "unsupported_parameter"),
        ({"messages": [{"role": "user", "content": "word " * 20_000}]}, openai.BadRequestError,
         "context_length_exceeded"),
    ]:  # fmt: skip
        with pytest.raises(kind) as caught:
            client.chat.completions.create(**{"model": MODEL, "messages": GREETING, **asked})
        assert caught.value.code == code
    with pytest.raises(openai.InternalServerError) as caught:
        client.embeddings.create(model=MODEL, input="x")
    assert (caught.value.status_code, caught.value.code) == (501, "embeddings_not_supported")


def test_models(client):
    """The list and the single card agree."""
    [card, *_] = client.models.list().data
    assert card.id == MODEL
    assert client.models.retrieve(MODEL) == card
    assert card.created > 0


def test_curl(server):
    """The line that the server prints to try works as it stands, without a model's name."""
    body = json.dumps({"messages": GREETING, "max_tokens": 5})
    command = ["curl", "-sS", f"{server.url}/v1/chat/completions", "-d", body,
               "-H", "content-type: application/json"]  # fmt: skip
    got = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=240).stdout)
    assert got["choices"][0]["finish_reason"] == "length"
    assert got["model"] == MODEL


async def test_leaving_frees_the_engine_and_harms_nobody(server):
    """After many clients that leave in the middle, an answer is the same and comes at once."""
    asked = {"messages": COUNT, "temperature": 0, "max_tokens": 4000, "ignore_eos": True}
    kind = {"content-type": "application/json"}

    async def ask(session, **extra):
        data = json.dumps({**asked, **extra})
        async with session.post(
            f"{server.url}/v1/chat/completions", data=data, headers=kind
        ) as got:
            return (await got.json())["choices"][0]["message"]["content"]

    async with aiohttp.ClientSession() as session:
        golden = await ask(session, max_tokens=20)

        async def leave(after_s):
            data = json.dumps({**asked, "stream": True})
            url = f"{server.url}/v1/chat/completions"
            async with session.post(url, data=data, headers=kind) as got:
                await asyncio.wait_for(got.content.readany(), 240)
                await asyncio.sleep(after_s)
                got.close()

        async def ask_after_many_left():
            await asyncio.gather(*(leave(n * 0.03) for n in range(4)))
            started = time.monotonic()
            assert await ask(session, max_tokens=20) == golden
            return time.monotonic() - started

        assert await usually_async(ask_after_many_left, 5) < 5
