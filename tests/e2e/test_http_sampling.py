"""Sampling over HTTP with a real model: what is asked reaches the draw, and defaults are known."""

import json
import math
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from live_server import LiveServer, running

MODEL = "smol"
COUNT = [{"role": "user", "content": "Count from one to fifty in words, please."}]
DEFAULTS = {"top_p": 0.75, "max_new_tokens": 30, "repetition_penalty": 1.05}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    file = Path(tmp_path_factory.mktemp("defaults")) / "mine.json"
    file.write_text(json.dumps(DEFAULTS))
    flags = ["--generation-config", str(file), "--temp", "0.5", "--max-tokens-cap", "40"]
    with running("--served-model-name", MODEL, "--max-num-seqs", "8", *flags) as live:
        yield live


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as made:
        yield made


def test_defaults_say_where_they_come_from(server: LiveServer, client: openai.OpenAI) -> None:
    """/server_info names the effective values and their sources; a request gets just these."""
    with urllib.request.urlopen(f"{server.url}/server_info") as answer:
        got = json.loads(answer.read())
    values, sources = got["default_sampling"], got["default_sampling_from"]
    assert (values["temperature"], sources["temperature"]) == (0.5, "command line")
    assert values["top_p"] == 0.75
    assert sources["top_p"].startswith("--generation-config ")
    assert (values["min_p"], sources["min_p"]) == (0.0, "built-in")
    assert got["max_tokens_cap"] == 40
    asked = {"model": MODEL, "messages": COUNT, "extra_body": {"ignore_eos": True}}
    assert client.chat.completions.create(**asked).usage.completion_tokens == 30
    longer = client.chat.completions.create(**asked, max_tokens=100)
    assert (longer.usage.completion_tokens, longer.choices[0].finish_reason) == (40, "length")


def test_a_bias_forces_a_token(client: openai.OpenAI) -> None:
    """Nothing else is drawn at any temperature; it is told as the model thought of it before."""
    asked = {"model": MODEL, "prompt": "One, two, three, four,", "max_tokens": 6, "logprobs": 1}
    for temperature in (0, 1.5):
        forced = client.completions.create(**asked, temperature=temperature, logit_bias={"28": 100})
        assert len(set(forced.choices[0].logprobs.tokens)) == 1
        assert min(forced.choices[0].logprobs.token_logprobs) < -1


def text_of(events: Any) -> str:
    return "".join(e.choices[0].text for e in events if e.choices)


def test_one_seed_is_one_text_whatever_the_way(client: openai.OpenAI) -> None:
    """Streamed or whole, alone or as one of several, with log probabilities or without."""
    chain = {"top_k": 40, "min_p": 0.02, "dry_multiplier": 0.8, "xtc_probability": 0.5}
    asked = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 1.1,
             "seed": 12, "frequency_penalty": 0.3, "extra_body": chain}  # fmt: skip
    whole = client.completions.create(**asked).choices[0].text
    assert client.completions.create(**asked, logprobs=5).choices[0].text == whole
    assert text_of(client.completions.create(**asked, stream=True)) == whole
    several = client.completions.create(**asked, n=4)
    assert several.choices[0].text == whole
    assert len({c.text for c in several.choices}) == 4
    mixed = client.completions.create(**(asked | {"prompt": ["Two ships", "Once upon a time"]}))
    assert [c.text for c in mixed.choices if c.index == 1] == [whole]


def test_min_tokens_and_stop_ids(client: openai.OpenAI) -> None:
    """What would end the text does not come before, so that nothing is cut out of it."""
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Say hi."}], "temperature": 0}
    short = client.chat.completions.create(**asked, max_tokens=38)
    assert short.choices[0].finish_reason == "stop"
    least = short.usage.completion_tokens + 4
    longer = client.chat.completions.create(
        **asked, max_tokens=38, extra_body={"min_tokens": least}
    )
    assert longer.usage.completion_tokens >= least
    assert longer.choices[0].message.content.startswith(short.choices[0].message.content)


def test_a_conversation_is_told_log_probabilities(client: openai.OpenAI) -> None:
    """Tokens join to the text, alternatives come best first, and masses are at most one."""
    got = client.chat.completions.create(
        model=MODEL, messages=COUNT, max_tokens=12, temperature=0, logprobs=True, top_logprobs=20
    )
    told = got.choices[0].logprobs.content
    assert "".join(t.token for t in told) == got.choices[0].message.content
    for token in told:
        values = [t.logprob for t in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert len(values) == 20
        assert sum(math.exp(v) for v in values) <= 1.0001
        assert token.logprob <= values[0]


def test_a_prompt_alone_is_told(client: openai.OpenAI) -> None:
    """Scoring: echo, logprobs and max_tokens 0 give the prompt's own tokens and no more."""
    text = "The capital of France is Paris, and the capital of Italy is Rome."
    got = client.completions.create(model=MODEL, prompt=text, max_tokens=0, echo=True, logprobs=1)
    told = got.choices[0].logprobs
    assert "".join(told.tokens) == text == got.choices[0].text
    assert told.token_logprobs[0] is None
    assert all(v <= 0 for v in told.token_logprobs[1:])
    assert got.usage.completion_tokens == 0
    worse = (
        client.completions.create(
            model=MODEL, prompt=text.replace("Rome", "Tyre"), max_tokens=0, echo=True, logprobs=1
        )
        .choices[0]
        .logprobs
    )
    assert sum(told.token_logprobs[1:]) > sum(worse.token_logprobs[1:])


def test_keys_of_the_cache(client: openai.OpenAI) -> None:
    """A salt keeps a prompt to those who know it; without leave the cache is not used."""
    prompt = "Tell me about the sea and about the ships upon it. " * 6
    asked = {"model": MODEL, "prompt": prompt, "max_tokens": 1, "temperature": 0}

    def cached(**more: Any) -> int:
        usage = client.completions.create(**asked, extra_body=more).usage
        return usage.prompt_tokens_details.cached_tokens

    cached()
    assert cached() > 0
    assert cached(cache_prompt=False) == 0
    assert cached(cache_salt="mine") == 0
    assert cached(cache_salt="mine") > 0
    assert cached(cache_salt="other") == 0
    assert cached() > 0
