"""A server that stops while clients read: each client hears of it as an exception of its own."""

import signal

import anthropic
import openai
import pytest
from e2e.clients.facts import COUNT, MODEL
from live_server import running

ENDLESS = {"ignore_eos": True}


def read_all(stream, kept):
    """Read a stream to its end; ``kept`` gets its events."""
    for event in stream:
        kept.append(event)


def test_every_client_hears_of_the_drains_end():
    """At the drain limit each stream ends with an error that its client raises, not with a cut."""
    with running("--served-model-name", MODEL, "--drain-timeout", "0.5") as server:
        of_openai = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        of_anthropic = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        with of_openai as one, of_anthropic as other:
            asked = {"model": MODEL, "stream": True, "extra_body": ENDLESS}
            chat = one.chat.completions.create(messages=COUNT, max_tokens=4000, **asked)
            items = one.responses.create(input=COUNT, max_output_tokens=4000, **asked)
            blocks = other.messages.create(messages=COUNT, max_tokens=4000, **asked)
            for stream in (chat, items, blocks):
                next(stream)
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(openai.APIError) as caught:
                read_all(chat, [])
            assert caught.value.code == "draining"
            events = []
            with pytest.raises(openai.APIError):
                read_all(items, events)
            assert events[-1].type == "response.failed"
            assert events[-1].response.status == "failed"
            with pytest.raises(anthropic.APIStatusError) as failed:
                read_all(blocks, [])
            assert failed.value.body["error"]["type"] == "overloaded_error"
        assert server.end() == 0, server.output
