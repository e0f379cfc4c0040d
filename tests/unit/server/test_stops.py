"""Stop strings and stop tokens of every route, decided by the engine's own sequence."""

import json
import random

import pytest
from unit.server.dialects import ANSWER, ARGUMENTS, FORMAT, answering_drawn, named_events

from radiance_core.chat_format.format import ChatFormat

CHAT = "/v1/chat/completions"
PARAMETERS = {"type": "object", "properties": {}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
MESSAGE_TOOL = {"name": "weather", "input_schema": PARAMETERS}
RESPONSE_TOOL = {"type": "function", "name": "weather", "parameters": PARAMETERS}
INSIDE = ["city", "{", '"', "tool_call", "ask", "think", "Zür", "}"]
HI = [{"role": "user", "content": "hi"}]


async def whole_and_streamed(live, body):
    """Return message, finish reason, stop reason and usage, the same whole and in a stream."""
    _, got, _ = await live.post(CHAT, body)
    [choice] = got["choices"]
    message = {key: choice["message"].get(key) for key in ("content", "reasoning")}
    calls = [call["function"] for call in choice["message"].get("tool_calls", ())]
    found = message, calls, choice["finish_reason"], choice["stop_reason"], got["usage"]
    _, _, events = await live.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
    texts, streamed, end = {"content": "", "reasoning": ""}, [], None
    for event in events[:-2]:
        [choice] = event["choices"]
        for key in texts:
            texts[key] += choice["delta"].get(key, "")
        for call in choice["delta"].get("tool_calls", ()):
            if "id" in call:
                streamed.append(call["function"])
            else:
                streamed[-1]["arguments"] += call["function"]["arguments"]
        end = choice if choice["finish_reason"] else end
    assert {key: text or None for key, text in texts.items()} == {
        key: text or None for key, text in message.items()
    }
    told = streamed, end["finish_reason"], end.get("stop_reason"), events[-2]["usage"]
    assert told == found[1:]
    return found


async def test_calls_and_thoughts_are_never_stopped(live):
    """Stop strings that stand in thoughts, marks and arguments only change nothing."""
    answering_drawn(live, ANSWER)
    body = {"messages": HI, "tools": [TOOL], "max_tokens": 400}
    plain = await whole_and_streamed(live, body)
    assert plain[2] == "tool_calls"
    for stop in [[one] for one in INSIDE] + [INSIDE]:
        assert await whole_and_streamed(live, {**body, "stop": stop}) == plain
    ids = list(b"T{y")  # in thoughts and arguments, not in content or the mark of a call
    assert await whole_and_streamed(live, {**body, "stop_token_ids": ids}) == plain


async def test_content_stops_and_tokens_are_counted(live):
    """The text ends before the stop string, and usage counts all tokens up to its last."""
    answering_drawn(live, ANSWER)
    body = {"messages": HI, "tools": [TOOL], "max_tokens": 400, "stop": ["look", "city"]}
    message, calls, reason, stop, usage = await whole_and_streamed(live, body)
    assert (message["content"], calls, reason, stop) == ("I ", [], "stop", "look")
    assert message["reasoning"] == "They ask äbout it."
    assert usage["completion_tokens"] == len(ANSWER[: ANSWER.index("look") + 4].encode())
    token = ord(".")  # the thoughts have one too
    body = {"messages": HI, "tools": [TOOL], "max_tokens": 400, "stop_token_ids": [token]}
    message, calls, reason, stop, _ = await whole_and_streamed(live, body)
    assert (message["content"], calls, reason, stop) == ("I look", [], "stop", token)


async def test_every_limit_with_stop_strings(live):
    """At each max_tokens whole and stream agree, and what is cut is as without stop strings."""
    answering_drawn(live, ANSWER)
    total = len(ANSWER.encode())
    for limit in range(1, total + 2, random.choice([1, 2, 3])):
        body = {"messages": HI, "tools": [TOOL], "max_tokens": limit}
        plain = await whole_and_streamed(live, body)
        assert await whole_and_streamed(live, {**body, "stop": INSIDE}) == plain, limit
        assert (plain[2] == "length") == (limit < total + 1)
        if plain[2] == "tool_calls":
            assert json.loads(plain[1][0]["arguments"]) == ARGUMENTS


async def test_the_least_tokens_come_before_any_stop(live):
    """min_tokens lets stop strings pass until so many have come, in content too."""
    answering_drawn(live, "one END two END three", FORMAT)
    body = {"messages": HI, "tools": [TOOL], "max_tokens": 400, "stop": "END", "min_tokens": 9}
    message, _, reason, stop, usage = await whole_and_streamed(live, body)
    assert (message["content"], reason, stop) == ("one END two ", "stop", "END")
    assert usage["completion_tokens"] == len("one END two END")


@pytest.mark.parametrize("form", [FORMAT, ChatFormat()])
async def test_text_alone_stops_as_ever(live, form):
    """Without tools and thoughts the whole text is content, and the engine reads it itself."""
    text = 'say {"city": "x"} END'
    answering_drawn(live, text, form)
    body = {"messages": HI, "max_tokens": 400, "stop": ["city", "END"]}
    message, _, reason, stop, _ = await whole_and_streamed(live, body)
    assert (message["content"], reason, stop) == ('say {"', "stop", "city")
    assert (live.engine.requests[-1].reader is None) == (form.reasoning is None)
    completion = {"prompt": "x", "max_tokens": 400, "stop": ["city"]}
    _, got, _ = await live.post("/v1/completions", completion)
    assert (got["choices"][0]["text"], got["choices"][0]["stop_reason"]) == ('say {"', "city")
    assert live.engine.requests[-1].reader is None


async def test_stop_sequences_of_messages(live):
    """Whole calls are tool_use whatever stands in them; content ends at the sequence, named."""
    answering_drawn(live, ANSWER)
    body = {"messages": HI, "tools": [MESSAGE_TOOL], "max_tokens": 400, "stop_sequences": INSIDE}
    _, got, _ = await live.post("/v1/messages", body)
    assert (got["stop_reason"], got["stop_sequence"]) == ("tool_use", None)
    assert got["content"][-1]["input"] == ARGUMENTS
    stopped = {**body, "stop_sequences": ["city", "look"]}
    _, got, _ = await live.post("/v1/messages", stopped)
    assert (got["stop_reason"], got["stop_sequence"]) == ("stop_sequence", "look")
    assert got["content"][-1] == {"type": "text", "text": "I "}
    events = await named_events(live, "/v1/messages", stopped)
    text = [e["delta"]["text"] for _, e in events if e.get("delta", {}).get("type") == "text_delta"]
    assert "".join(text) == "I "
    assert events[-2][1]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "look"}


async def test_stops_of_responses(live):
    """The same for /v1/responses, which has no name of its own for them."""
    answering_drawn(live, ANSWER)
    body = {"input": "hi", "tools": [RESPONSE_TOOL], "stop": INSIDE}
    _, got, _ = await live.post("/v1/responses", body)
    assert got["output"][-1]["status"] == "completed"
    assert json.loads(got["output"][-1]["arguments"]) == ARGUMENTS
    _, got, _ = await live.post("/v1/responses", {**body, "stop": "look"})
    assert got["status"] == "completed"
    assert got["output"][-1]["content"][0]["text"] == "I "
    assert got["output"][-1]["status"] == "completed"
