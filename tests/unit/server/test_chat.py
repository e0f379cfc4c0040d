"""Chat answers, whole and streamed."""

import pytest

from radiance_core.server.errors import ApiError
from radiance_core.server.turn import _cut_before
from radiance_core.text.errors import TemplateError

CHAT = "/v1/chat/completions"


async def test_whole_answer_has_the_openai_form(live, hi):
    """The answer has every key that clients read, and the counts add up."""
    status, got, headers = await live.post(CHAT, hi | {"model": "org/tiny:q4"})
    assert status == 200
    assert got["object"] == "chat.completion"
    assert got["id"].startswith("chatcmpl-")
    assert got["model"] == "org/tiny:q4"
    assert isinstance(got["created"], int)
    assert got["system_fingerprint"].startswith("fp_")
    [choice] = got["choices"]
    assert choice["message"] == {
        "role": "assistant", "content": "Hello, wörld 🙂.", "refusal": None,
    }  # fmt: skip
    assert (choice["finish_reason"], choice["logprobs"], choice["index"]) == ("stop", None, 0)
    usage = got["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] == 5
    assert usage["prompt_tokens_details"] == {"cached_tokens": 1}
    assert headers["x-request-id"]
    assert int(headers["openai-processing-ms"]) >= 0


async def test_stream_is_role_text_finish_done(live, hi):
    """A stream names the role once, then adds text, then the reason, then ends; one id in all."""
    status, headers, events = await live.stream(CHAT, hi)
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    assert {(c["id"], c["created"], c["model"], c["system_fingerprint"]) for c in chunks} == {
        (chunks[0]["id"], chunks[0]["created"], chunks[0]["model"],
         chunks[0]["system_fingerprint"])
    }  # fmt: skip
    assert all(c["object"] == "chat.completion.chunk" and "usage" not in c for c in chunks)
    choices = [c["choices"][0] for c in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in c["delta"] for c in choices[1:])
    assert "".join(c["delta"].get("content", "") for c in choices) == "Hello, wörld 🙂."
    assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert choices[-1]["delta"] == {}


async def test_usage_chunk_comes_only_when_asked(live, hi):
    """With include_usage the last event has the counts and no choice; the others have null."""
    _, _, events = await live.stream(CHAT, hi | {"stream_options": {"include_usage": True}})
    *chunks, counts, done = events
    assert done == "[DONE]"
    assert counts["choices"] == []
    assert counts["usage"]["completion_tokens"] == 5
    assert all(chunk["usage"] is None for chunk in chunks)


async def test_n_choices_interleave_with_their_own_seeds(live, hi):
    """Each choice has one role event and one finish; prompt tokens are counted once."""
    body = hi | {"n": 3, "seed": -5, "stream_options": {"include_usage": True}}
    _, _, events = await live.stream(CHAT, body)
    for index in range(3):
        mine = [c["choices"][0] for c in events[:-2] if c["choices"][0]["index"] == index]
        assert [c["delta"].get("role") for c in mine].count("assistant") == 1
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == ["stop"]
    seeds = [request.sampling.seed for request in live.engine.requests]
    assert seeds[0] == 2**64 - 5
    assert len(set(seeds)) == 3
    prompt = len(live.engine.requests[0].prompt_ids)
    assert events[-2]["usage"]["prompt_tokens"] == prompt
    assert events[-2]["usage"]["completion_tokens"] == 15
    assert len({request.request_id for request in live.engine.requests}) == 3


async def test_max_completion_tokens_wins_and_is_clamped(live, hi):
    """The newer name wins; more than the room left is clamped and ends with length."""
    await live.post(CHAT, hi | {"max_tokens": 4, "max_completion_tokens": 2})
    assert live.engine.requests[-1].sampling.max_tokens == 2
    live.engine.endless = True
    _, got, _ = await live.post(CHAT, hi | {"max_tokens": 10**9})
    prompt = got["usage"]["prompt_tokens"]
    assert got["usage"]["total_tokens"] == live.model.max_context
    assert live.engine.requests[-1].sampling.max_tokens == live.model.max_context - prompt
    assert got["choices"][0]["finish_reason"] == "length"


async def test_zero_tokens_is_allowed(live, hi):
    """max_tokens 0 answers with no text and no tokens."""
    status, got, _ = await live.post(CHAT, hi | {"max_tokens": 0})
    assert status == 200
    assert got["usage"]["completion_tokens"] == 0
    assert got["choices"][0]["message"]["content"] == ""


async def test_prompt_too_long_names_both_numbers(live, hi):
    """A prompt that alone does not fit is a 400, also for a stream, and no request is made."""
    hi["messages"][0]["content"] = "x" * 600
    status, got, _ = await live.post(CHAT, hi)
    error = got["error"]
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert error["n_prompt_tokens"] > 600 > error["n_ctx"]
    assert str(error["n_prompt_tokens"]) in error["message"]
    assert str(error["n_ctx"]) in error["message"]
    assert (await live.stream(CHAT, hi))[0] == 400
    hi["messages"][0]["content"] = "x" * 1_000_000
    status, got, _ = await live.post(CHAT, hi)
    assert (status, got["error"]["code"]) == (400, "context_length_exceeded")
    assert live.engine.requests == []


async def test_parts_and_roles_reach_the_template(live):
    """Text parts are joined as they are, roles are kept, both reasoning names go in."""
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "a"},
                                          {"type": "text", "text": "b"}]},
        {"role": "user", "content": "q", "name": "ann"},
        {"role": "assistant", "content": "r", "reasoning": "why", "tool_calls": None},
        {"role": "user", "content": "s"},
    ]  # fmt: skip
    status, _, _ = await live.post(CHAT, {"messages": messages})
    assert status == 200
    [(seen, tools, kwargs)] = live.model.rendered
    assert seen == [
        {"role": "developer", "content": "ab"},
        {"role": "user", "content": "q", "name": "ann"},
        {"role": "assistant", "content": "r", "reasoning": "why", "reasoning_content": "why"},
        {"role": "user", "content": "s"},
    ]
    assert tools is None
    assert kwargs == {"add_generation_prompt": True}


@pytest.mark.parametrize(
    ("messages", "param", "words"),
    [
        ([], "messages", "at least one message"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role", "'wizard'"),
        ([{"role": "user"}], "messages[0].content", "got none"),
        ([{"role": "user", "content": 5}], "messages[0].content", "got int"),
        ([{"content": "x"}], "messages[0].role", "expected this field"),
        ("hi", "messages", "got str"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
         "messages[0].content[0]", "'image_url' is not text"),
        ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0]", "no type"),
        ([{"role": "user", "content": [{"type": ["text"], "text": "x"}]}],
         "messages[0].content[0]", "its type is not a string"),
        ([{"role": "user", "content": [{"type": {"a": 1}}]}],
         "messages[0].content[0]", "its type is not a string"),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}],
         "messages[0].content[0].text", "expected a string"),
        ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id",
         "expected the call that this answers, got none"),
        ([{"role": "tool", "content": "x", "tool_call_id": "c"}], "messages[0].tool_call_id",
         "expected the id of a call in an earlier message, got 'c'"),
        ([{"role": "function", "content": "x", "name": "f"}], "messages[0].name",
         "expected the call that this answers, got 'f'"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].id",
         "expected a text, got none"),
        ([{"role": "assistant", "tool_calls": [{"id": "c", "function": 5}]}],
         "messages[0].tool_calls[0].function", "expected an object, got '5'"),
        ([{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}],
         "messages[0].tool_calls[0].type", "calls of type 'custom' are not served"),
        ([{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "a b"}}]}],
         "messages[0].tool_calls[0].function.name", "expected 1 to 128 letters"),
        ([{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "a",
                                                                        "arguments": 5}}]}],
         "messages[0].tool_calls[0].function.arguments", "expected JSON in a string, got '5'"),
        ([{"role": "assistant"}], "messages[0].content", "expected text, got none"),
        ([{"role": "user", "content": "x", "audio": {"id": "a"}}], "messages[0].audio",
         "this server reads text only"),
        ([{"role": "user", "content": "x", "contnet": "y"}], "messages[0].contnet",
         "did you mean 'content'"),
        ([{"role": "user", "content": "x", "reasoning": "y"}], "messages[0].reasoning",
         "expected in messages of the assistant only, got it in one of the user"),
    ],
)  # fmt: skip
async def test_bad_messages_are_named(live, messages, param, words):
    """A wrong message is a 400 that names the path of what is wrong in it."""
    status, got, _ = await live.post(CHAT, {"messages": messages})
    assert status == 400
    assert got["error"]["param"] == param
    assert words in got["error"]["message"]


async def test_missing_messages_is_named(live):
    """A body without messages names the field."""
    status, got, _ = await live.post(CHAT, {})
    assert (status, got["error"]["param"]) == (400, "messages")


async def test_continuing_the_last_message(live, hi):
    """continue_final_message cuts the prompt right after the assistant's words, as they were."""
    messages = [*hi["messages"], {"role": "assistant", "content": "It is "}]
    body = {"messages": messages, "continue_final_message": True}
    assert (await live.post(CHAT, body))[0] == 200
    prompt = bytes(live.engine.requests[0].prompt_ids[1:]).decode()
    assert prompt == "<user>hi</><assistant>It is "
    status, got, _ = await live.post(CHAT, body | {"add_generation_prompt": True})
    assert (status, got["error"]["param"]) == (400, "continue_final_message")
    assert "expected add_generation_prompt false with it" in got["error"]["message"]
    status, got, _ = await live.post(CHAT, hi | {"continue_final_message": True})
    assert status == 400
    assert "got user" in got["error"]["message"]


@pytest.mark.parametrize("text", ["<", ">", "</", "user", "hi", "It\n<", "", "a</>"])
async def test_a_short_beginning_is_continued_where_it_stands(live, hi, text):
    """Words that the template writes too are not taken for the message's end."""
    messages = [*hi["messages"], {"role": "assistant", "content": text}]
    status, _, _ = await live.post(CHAT, {"messages": messages, "continue_final_message": True})
    assert status == 200
    prompt = bytes(live.engine.requests[0].prompt_ids[1:]).decode()
    assert prompt == f"<user>hi</><assistant>{text}"


@pytest.mark.parametrize("rendered", ["<user>hi</>", "<assistant>END</><assistant>END"])
def test_a_message_that_is_not_written_once_cannot_be_continued(rendered):
    """A template that drops the last message, or repeats it, leaves no place to go on from."""
    with pytest.raises(ApiError, match="does not write the last message as it is, so it cannot be"):
        _cut_before(rendered, "END")


async def test_template_kwargs(live, hi):
    """What the template reads gets through, what it does not is named, reserved names are 400."""
    body = hi | {"chat_template_kwargs": {"persona": "cat", "colour": 1}, "enable_thinking": True}
    status, got, headers = await live.post(CHAT, body)
    assert status == 200
    assert live.model.rendered[0][2] == {
        "persona": "cat", "enable_thinking": True, "add_generation_prompt": True,
    }  # fmt: skip
    assert got["radiance"]["ignored"] == ["chat_template_kwargs.colour"]
    assert headers["x-radiance-ignored"] == "chat_template_kwargs.colour"
    for name in ("tokenize", "messages", "chat_template", "_x", "add_generation_prompt", "a b"):
        status, got, _ = await live.post(CHAT, hi | {"chat_template_kwargs": {name: 1}})
        assert status == 400, name
        assert "not a request's to set" in got["error"]["message"]


async def test_thinking_a_model_has_not_is_refused_and_not_thinking_is_fine(live, hi):
    """Asking for effort from a template that reads none is 400; asking for none is honoured."""
    status, got, _ = await live.post(CHAT, hi | {"reasoning_effort": "high"})
    assert (status, got["error"]["code"]) == (400, "unsupported_parameter")
    assert (await live.post(CHAT, hi | {"reasoning_effort": "none"}))[0] == 200
    assert live.model.rendered[-1][2]["enable_thinking"] is False
    assert (await live.post(CHAT, hi | {"preserve_thinking": False}))[0] == 200
    status, got, _ = await live.post(CHAT, hi | {"reasoning_effort": "heroic"})
    assert (status, got["error"]["param"]) == (400, "reasoning_effort")


async def test_template_errors(live, hi):
    """A template's own words are a 400; a template that is broken is a 500 not to be repeated."""
    live.model.template_error = TemplateError("x", "raised", "roles must alternate")
    status, got, _ = await live.post(CHAT, hi)
    assert (status, got["error"]["code"]) == (400, "chat_template_error")
    assert "roles must alternate" in got["error"]["message"]
    live.model.template_error = TemplateError("took too long", "timeout")
    status, got, _ = await live.post(CHAT, hi)
    assert status == 400
    live.model.template_error = TemplateError("line 3: no endif", "syntax")
    status, got, headers = await live.post(CHAT, hi)
    assert (status, headers["x-should-retry"]) == (500, "false")


async def test_model_without_template_is_501(live, hi):
    """A model that cannot chat says so, and says what it can."""
    live.model.template_variables = None
    status, got, headers = await live.post(CHAT, hi)
    assert status == 501
    assert got["error"]["message"] == (
        "chat: this model has no chat template; use /v1/completions, or serve a model that has one."
    )
    assert headers["x-should-retry"] == "false"


async def test_drawn_seed_is_reported_and_a_given_one_is_not(live, hi):
    """A sampled answer can be repeated: its seed is in the answer unless the client chose it."""
    _, got, _ = await live.post(CHAT, hi)
    assert got["radiance"]["seed"] == live.engine.requests[0].sampling.seed < 2**53
    _, got, _ = await live.post(CHAT, hi | {"seed": 7})
    assert "radiance" not in got
    _, got, _ = await live.post(CHAT, hi | {"temperature": 0})
    assert "radiance" not in got


async def test_more_text_than_any_context_holds(live):
    """A conversation that cannot fit is refused by its size, before a template is given it."""
    words = "word " * 20_000
    talk = [{"role": "user", "content": words}, {"role": "user", "content": words}]
    status, got, _ = await live.post(CHAT, {"messages": talk})
    assert (status, got["error"]["code"]) == (400, "context_length_exceeded")
    assert "messages: the prompt has 200000 characters" in got["error"]["message"]
    assert live.model.rendered == []
