"""/tokenize and /detokenize."""

import random
import re

import pytest

from radiance_core.text.errors import TemplateError

BOS = 256


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_a_text_is_encoded_as_completions_would(live, prefix):
    """Special tokens are added unless that is declined; count and context are told."""
    text = "".join(random.choices("abcäöü🙂 \n", k=random.randint(1, 9000)))
    for extra, head in [({}, [BOS]), ({"add_special_tokens": True}, [BOS]),
                        ({"add_special_tokens": False}, [])]:  # fmt: skip
        status, got, _ = await live.post(f"{prefix}/tokenize", {"prompt": text, **extra})
        ids = [*head, *text.encode()]
        assert (status, got["tokens"], got["count"]) == (200, ids, len(ids))
        assert (got["max_model_len"], got["token_strs"]) == (512, None)


async def test_token_strs_are_the_vocabularys_spelling(live):
    """Each id's own spelling on demand; an unused id has none."""
    body = {"prompt": "ab", "return_token_strs": True}
    _, got, _ = await live.post("/tokenize", body)
    assert got["token_strs"] == ["<s>", "b97", "b98"]


async def test_a_conversation_is_encoded_as_chat_would(live, hi):
    """The ids of /tokenize are those that the engine gets from a chat request, field by field."""
    for extra in [{}, {"add_generation_prompt": False}, {"enable_thinking": True},
                  {"chat_template_kwargs": {"persona": "x"}},
                  {"messages": [*hi["messages"], {"role": "assistant", "content": "So "}],
                   "continue_final_message": True}]:  # fmt: skip
        status, got, _ = await live.post("/tokenize", hi | extra)
        assert status == 200
        told = without_mark(live.model.rendered[-1])
        await live.post("/v1/chat/completions", hi | extra)
        assert tuple(got["tokens"]) == live.engine.requests[-1].prompt_ids
        assert told == without_mark(live.model.rendered[-1])


def without_mark(rendered):
    """Return what a template was given less the mark, new each time, of where a message ends."""
    messages, tools, kwargs = rendered
    *before, last = messages
    bare = re.sub(r"[0-9a-f]{24}\Z", "", last["content"])
    return [*before, {**last, "content": bare}], tools, kwargs


async def test_round_trip(live):
    """Detokenized, the ids of a text are that text again, with its special tokens."""
    text = "".join(random.choices("abcäöü🙂 \n", k=100))
    _, got, _ = await live.post("/tokenize", {"prompt": text, "add_special_tokens": False})
    status, back, _ = await live.post("/detokenize", {"tokens": got["tokens"]})
    assert (status, back) == (200, {"prompt": text})
    assert (await live.post("/detokenize", {"tokens": [BOS, 65]}))[1] == {"prompt": "<s>A"}
    assert (await live.post("/v1/detokenize", {"tokens": []}))[1] == {"prompt": ""}


MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("path", "body", "param", "text"),
    [
        ("tokenize", {}, "prompt", "prompt: expected either prompt or messages, got none."),
        ("tokenize", {"prompt": None}, "prompt", "either prompt or messages, got none."),
        ("tokenize", {"prompt": "a", "messages": MESSAGES}, "prompt", "got both."),
        ("tokenize", {"prompt": "a", "add_generation_prompt": True}, "add_generation_prompt",
         "add_generation_prompt: expected with messages only, got it with prompt."),
        ("tokenize", {"messages": MESSAGES, "add_special_tokens": False}, "add_special_tokens",
         "add_special_tokens: expected with prompt only, got it with messages; the chat template"),
        ("tokenize", {"prompt": 5}, "prompt", "prompt: expected str or null, got int."),
        ("tokenize", {"prompt": ["a"]}, "prompt", "prompt: expected str or null, got array."),
        ("tokenize", {"prompt": "a", "return_token_strs": 1}, "return_token_strs",
         "return_token_strs: expected bool or null, got int."),
        ("tokenize", {"promt": "a"}, "promt", "did you mean 'prompt'?"),
        ("tokenize", {"prompt": "a", "return_token_str": True}, "return_token_str",
         "did you mean 'return_token_strs'?"),
        ("tokenize", {"messages": []}, "messages", "expected at least one message, got none."),
        ("tokenize", {"messages": [{"role": "wizard", "content": ""}]}, "messages[0].role",
         "expected one of system, developer, user, assistant, tool, function, got 'wizard'."),
        ("tokenize", {"messages": MESSAGES, "tools": [{}]}, "tools[0].type",
         "expected function, got none"),
        ("tokenize", {"messages": MESSAGES, "chat_template_kwargs": {"tokenize": True}},
         "chat_template_kwargs.tokenize", "this name is not a request's to set."),
        ("tokenize", {"prompt": "a" * 200_000}, "prompt",
         "the prompt has 200000 characters and this model's context 512 tokens; it cannot fit."),
        ("tokenize", {"messages": [{"role": "user", "content": "a" * 200_000}]}, "messages",
         "the prompt has 200000 characters"),
        ("detokenize", {}, "tokens", "tokens: expected this field, got none."),
        ("detokenize", {"tokens": "abc"}, "tokens", "tokens: expected array, got str."),
        ("detokenize", {"tokens": [1, True]}, "tokens[1]",
         "tokens[1]: expected int, got bool."),
        ("detokenize", {"tokens": [1, 2.5]}, "tokens[1]", "expected int, got float."),
        ("detokenize", {"tokens": [1, -1]}, "tokens[1]",
         "tokens[1]: expected a token id from 0 to 256, got -1."),
        ("detokenize", {"tokens": [257]}, "tokens[0]", "from 0 to 256, got 257."),
        ("detokenize", {"tokens": [2**64]}, None, "expected"),
        ("detokenize", {"tokens": [1] * 513}, "tokens",
         "tokens: expected at most the 512 token ids that a context has, got 513; send them in "
         "pieces."),
        ("detokenize", {"tokens": [1], "tokns": [1]}, "tokns", "did you mean 'tokens'?"),
    ],
)  # fmt: skip
async def test_mistakes(live, path, body, param, text):
    """Each mistake is a 400 that names the field."""
    status, got, _ = await live.post(f"/{path}", body)
    assert status == 400, got
    assert text in got["error"]["message"]
    if param is not None:
        assert got["error"]["param"] == param
    assert live.engine.requests == []


async def test_fields_that_mean_nothing_here_are_named(start, live):
    """What has no effect on tokens is named as ignored, and with strict requests refused."""
    body = {"prompt": "a", "temperature": 1, "max_length": 5, "repeat_penalty": 1.1, "user": "me"}
    status, _, headers = await live.post("/tokenize", body)
    assert status == 200
    assert headers["x-radiance-ignored"] == "temperature,max_length,repeat_penalty"
    _, _, headers = await live.post("/detokenize", {"tokens": [], "temperature": 1})
    assert headers["x-radiance-ignored"] == "temperature"
    body = {"messages": [{"role": "user", "content": "a", "mood": 1}],
            "chat_template_kwargs": {"unread": 1}}  # fmt: skip
    _, _, headers = await live.post("/tokenize", body)
    assert headers["x-radiance-ignored"] == "messages[0].mood,chat_template_kwargs.unread"
    strict = await start(strict_requests=True)
    status, got, _ = await strict.post("/tokenize", {"prompt": "a", "temperature": 1})
    assert (status, got["error"]["param"]) == (400, "temperature")


async def test_models_and_states(start, hi):
    """A wrong model is a 404, no model yet a 503, a body that is no JSON 415, no template 501."""
    live = await start()
    for path, body in [("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": []})]:
        assert (await live.post(path, body | {"model": "org/tiny:q4"}))[0] == 200
        status, got, _ = await live.post(path, body | {"model": "gpt"})
        assert (status, got["error"]["code"]) == (404, "model_not_found")
        status, _, _ = await live.post(path, body, headers={"content-type": "text/plain"})
        assert status == 415
        loading = await start(attach=False)
        status, got, _ = await loading.post(path, body)
        assert (status, got["error"]["code"]) == (503, "model_loading")
    live.model.template_error = TemplateError("x", "raised", "no such mood")
    status, got, _ = await live.post("/tokenize", hi)
    assert (status, got["error"]["code"]) == (400, "chat_template_error")
    live.model.template_variables = None
    status, got, _ = await live.post("/tokenize", hi)
    assert (status, got["error"]["code"]) == (501, "no_chat_template")
