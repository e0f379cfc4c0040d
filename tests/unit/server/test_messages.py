"""/v1/messages: blocks, named events, Anthropic's errors, and the token counter."""

import asyncio
import json
import time

import pytest
from promptness import until
from unit.server.dialects import ANSWER, ARGUMENTS, FORMAT, answering, answering_bytes, named_events

from radiance_core.engine.interface import EngineStopped, QueueFull
from radiance_core.server.messages_request import SERVED, UNSERVED

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
ASK = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 400, "seed": 1}
TOOLS = [{"name": "weather", "description": "d", "input_schema": {"type": "object"}}]


def bare(block):
    """Return a block without what is drawn."""
    return {key: value for key, value in block.items() if key != "id"}


def check_error(got, kind):
    assert set(got) == {"type", "error", "request_id"}
    assert (got["type"], got["error"]["type"]) == ("error", kind)
    assert set(got["error"]) == {"type", "message"}
    assert got["error"]["message"]


async def test_whole_message(live):
    """Text is one block; what was found computed is counted apart from what was not."""
    status, got, headers = await live.post(PATH, ASK | {
        "system": "be kind", "metadata": {"user_id": "u"}, "top_k": 5, "temperature": 1,
        "stop_sequences": ["END"],
    }, headers={"anthropic-version": "2023-06-01"})  # fmt: skip
    assert status == 200
    assert got["id"].startswith("msg_")
    assert (got["type"], got["role"], got["model"]) == ("message", "assistant", "org/tiny:q4")
    assert got["content"] == [{"type": "text", "text": "Hello, wörld 🙂."}]
    assert (got["stop_reason"], got["stop_sequence"]) == ("end_turn", None)
    prompt = len(live.engine.requests[0].prompt_ids)
    assert got["usage"] == {
        "input_tokens": prompt - 1, "output_tokens": 5, "cache_read_input_tokens": 1,
        "cache_creation_input_tokens": 0, "output_tokens_details": {"thinking_tokens": 0},
    }  # fmt: skip
    sampling = live.engine.requests[0].sampling
    assert (sampling.top_k, sampling.temperature, sampling.stop) == (5, 1, ("END",))
    assert "x-radiance-ignored" not in headers
    assert [m["role"] for m in live.model.rendered[0][0]] == ["system", "user"]


async def test_thoughts_text_and_calls_are_blocks(live):
    """An answer of three kinds is three blocks in their order, whatever the cuts."""
    for _ in range(10):
        answering(live, ANSWER)
        _, got, _ = await live.post(PATH, ASK | {"tools": TOOLS})
        thought, text, use = got["content"]
        assert thought == {"type": "thinking", "thinking": "They ask äbout it.", "signature": ""}
        assert text == {"type": "text", "text": "I look."}
        assert bare(use) == {"type": "tool_use", "name": "weather", "input": ARGUMENTS}
        assert use["id"].startswith("toolu_")
        assert got["stop_reason"] == "tool_use"


async def test_events_build_the_same_message(live):
    """Blocks come one after the other, deltas joined are their content, counts come last."""
    keys = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
    for text in (ANSWER, "plain", "", "<think>\nonly thoughts"):
        answering(live, text)
        events = await named_events(live, PATH, ASK | {"tools": TOOLS})
        names = [name for name, _ in events]
        assert (names[0], names[-2:]) == ("message_start", ["message_delta", "message_stop"])
        start = events[0][1]["message"]
        assert (start["content"], start["stop_reason"]) == ([], None)
        assert start["usage"]["input_tokens"] == len(live.engine.requests[-1].prompt_ids)
        blocks, open_at = [], None
        for name, event in events[1:-2]:
            if name == "content_block_start":
                assert (open_at, event["index"]) == (None, len(blocks))
                open_at = event["index"]
                blocks.append((event["content_block"], []))
            elif name == "content_block_delta":
                assert event["index"] == open_at
                blocks[-1][1].append(event["delta"][keys[event["delta"]["type"]]])
            else:
                assert (name, event["index"]) == ("content_block_stop", open_at)
                open_at = None
        built = []
        for block, deltas in blocks:
            joined = "".join(deltas)
            if block["type"] == "tool_use":
                built.append(bare(block) | {"input": json.loads(joined)})
            else:
                built.append(block | {block["type"]: joined})
        _, whole, _ = await live.post(PATH, ASK | {"tools": TOOLS})
        assert [bare(block) for block in whole["content"]] == built
        end = events[-2][1]
        assert end["delta"]["stop_reason"] == whole["stop_reason"]
        assert end["usage"] == whole["usage"]


async def test_reasons_for_the_end(live):
    """A limit is max_tokens, also within a call, whose text is not lost; a stop is named."""
    answering(live, ANSWER)
    live.engine.words = list(ANSWER)
    _, got, _ = await live.post(PATH, ASK | {"tools": TOOLS, "max_tokens": len(ANSWER) - 20})
    assert got["stop_reason"] == "max_tokens"
    use = got["content"][-1]
    assert use["input"] == {}
    assert use["partial_json"].startswith('{"city": "Zürich')
    plain = live.engine.generate

    async def stopped(request):
        async for delta in plain(request):
            if delta.finish_reason is None:
                yield delta
            else:
                from dataclasses import replace

                yield replace(delta, stop_reason="END")

    answering(live, "x")
    live.engine.generate = stopped
    _, got, _ = await live.post(PATH, ASK | {"stop_sequences": ["END"]})
    assert (got["stop_reason"], got["stop_sequence"]) == ("stop_sequence", "END")
    _, got, _ = await live.post(PATH, ASK)
    assert (got["stop_reason"], got["stop_sequence"]) == ("end_turn", None)


async def test_a_call_that_is_not_whole_is_no_use(live):
    """The end is no call that could be made; thoughts are counted."""
    answering_bytes(live, ANSWER[:-20])
    asked = ASK | {"tools": TOOLS}
    _, got, _ = await live.post(PATH, asked)
    assert got["stop_reason"] == "end_turn"
    assert got["content"][-1]["input"] == {}
    answering_bytes(live, ANSWER)
    _, got, _ = await live.post(PATH, asked)
    assert got["stop_reason"] == "tool_use"
    thought = len(ANSWER[: ANSWER.index("</think>\n\n") + 10].encode())
    assert got["usage"]["output_tokens_details"] == {"thinking_tokens": thought}


async def test_the_last_message_may_be_the_answers_beginning(live):
    """A message of the assistant at the end is continued, not answered."""
    said = [*ASK["messages"], {"role": "assistant", "content": "Hel"}]
    assert (await live.post(PATH, ASK | {"messages": said}))[0] == 200
    assert bytes(live.engine.requests[-1].prompt_ids[1:]).endswith(b"<assistant>Hel")
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    said[-1] = {"role": "assistant", "content": [use]}
    status, got, _ = await live.post(PATH, ASK | {"messages": said})
    assert status == 400
    assert "a tool_result for every tool_use" in got["error"]["message"]


async def test_choices_of_tools(live):
    """The four choices reach the model as those of a chat request."""
    answering(live, "x")
    for choice in ({"type": "auto"}, {"type": "none"},
                   {"type": "auto", "disable_parallel_tool_use": True}):  # fmt: skip
        status, got, _ = await live.post(PATH, ASK | {"tools": TOOLS, "tool_choice": choice})
        assert status == 200, got
        shown = live.model.rendered[-1][1][0]["function"]
        assert shown["parameters"] == {"type": "object", "properties": {}}
    status, got, _ = await live.post(
        PATH, ASK | {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "other"}}
    )
    assert status == 400
    assert "expected one of the tools (weather), got 'other'" in got["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_tokens": None}, "max_tokens: expected this field, got none"),
        ({"max_tokens": 0}, "max_tokens: expected 1 or more, got 0"),
        ({"max_tokens": "5"}, "max_tokens: expected int, got str"),
        ({"messages": []}, "messages: expected at least one message"),
        ({"messages": None}, "messages: expected this field"),
        ({"temperature": 1.5}, "temperature: expected a number from 0 to 1, got 1.5"),
        ({"top_p": 7}, "top_p: expected a number above 0 to 1"),
        ({"stop_sequences": "x"}, "stop_sequences: expected array"),
        ({"stop_sequences": ["x" * 5000]}, "stop_sequences[0]: expected 1 to 256"),
        ({"stop": ["x"]}, "stop: it is called stop_sequences here"),
        ({"n": 2}, "n: a message is one answer"),
        ({"max_token": 3}, "did you mean 'max_tokens'"),
        ({"container": "x"}, "container: no code is run here"),
        ({"mcp_servers": [{}]}, "mcp_servers: the server reaches no network"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]},
         "tools[0].type: tools that a server runs ('bash_20250124') are not here"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema: expected a JSON schema"),
        ({"tools": [TOOLS[0] | {"name": "a b"}]}, "tools[0].name: expected 1 to 128 letters"),
        ({"tools": [TOOLS[0] | {"input_schema": {"type": "string"}}]},
         "tools[0].input_schema: expected the JSON schema of an object"),
        ({"tools": TOOLS * 2}, "tools[1].name: expected each name once"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name: expected one of the"),
        ({"tool_choice": {"type": []}}, "tool_choice.type: expected a string, got '[]'"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type: expected auto, any, tool or none"),
        ({"thinking": {"type": "x"}}, "thinking.type: expected enabled, disabled or adaptive"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens: expected 1024 or more"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "max_tokens (400), got '2000'"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort: expected one of none"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format: expected one of"),
        ({"system": 5}, "system: expected str"),
        ({"system": ["x"]}, "system[0]: expected a block of type text"),
    ],
)  # fmt: skip
async def test_what_is_not_served_is_named(live, fields, words):
    """Each refusal is an invalid_request_error that names the field as this route calls it."""
    live.model.chat_format = FORMAT
    status, got, _ = await live.post(PATH, ASK | fields)
    assert status == 400, got
    check_error(got, "invalid_request_error")
    assert words in got["error"]["message"]
    assert live.engine.requests == []


async def test_thinking_is_asked_of_the_template(live):
    """Enabled and disabled are the template's variable; the budget is told to be ignored."""
    for asked, expected in (
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "disabled"}, False),
        ({"type": "adaptive"}, None),
    ):
        status, got, _ = await live.post(PATH, ASK | {"max_tokens": 2000, "thinking": asked})
        assert status == 200, got
        assert live.model.rendered[-1][2].get("enable_thinking") == expected
        ignored = got.get("radiance", {}).get("ignored", [])
        assert ignored == ["thinking.budget_tokens"] * bool(expected)
    live.model.template_variables = frozenset()
    asked = {"type": "enabled", "budget_tokens": 1024}
    status, got, _ = await live.post(PATH, ASK | {"max_tokens": 2000, "thinking": asked})
    assert status == 400
    assert got["error"]["message"].startswith("thinking: this model's chat template does not")


@pytest.mark.parametrize("path", [PATH, "/messages", COUNT])
async def test_errors_of_the_shared_path_have_this_form(start, path):
    """What goes wrong before the route, or in place of it, is told in the same form."""
    live = await start(api_keys=("k",), max_body_bytes=1000)
    key = {"x-api-key": "k"}
    status, got, _ = await live.post(path, ASK)
    assert status == 401
    check_error(got, "authentication_error")
    for asked, expected, kind in [
        ({"body": ASK | {"model": "none"}}, 404, "not_found_error"),
        ({"raw": "{"}, 400, "invalid_request_error"),
        ({"raw": json.dumps(ASK | {"pad": "x" * 2000})}, 413, "request_too_large"),
    ]:
        status, got, headers = await live.post(path, headers=key, **asked)
        assert status == expected
        check_error(got, kind)
        assert got["request_id"] == headers["x-request-id"]
    status, got, _ = await live.post(path, ASK, headers=key | {"content-type": "text/plain"})
    assert status == 415
    check_error(got, "invalid_request_error")
    status, got, headers = await live.get(path, headers=key)
    assert (status, headers["allow"]) == (405, "POST")
    check_error(got, "invalid_request_error")
    status, got, _ = await live.get(path, headers=key | {"Host": "evil.example"})
    assert status == 403
    check_error(got, "permission_error")


@pytest.mark.parametrize(
    ("refusal", "status", "kind"),
    [
        (QueueFull("engine: 8 requests wait", 2.0), 429, "rate_limit_error"),
        (EngineStopped("engine: it is draining"), 529, "overloaded_error"),
        (ValueError("x"), 500, "api_error"),
    ],
)
async def test_refusals_of_the_engine(live, refusal, status, kind):
    """A full queue, a server that cannot serve now, and a fault, streamed or not."""
    live.engine.refusal = refusal
    for stream in (False, True):
        got_status, got, headers = await live.post(PATH, ASK | {"stream": stream})
        assert got_status == status
        check_error(got, kind)
        assert ("retry-after" in headers) == (status != 500)


async def test_a_failure_in_the_middle_is_an_error_event(live):
    """After the headers an error is the last event, in the same form."""
    live.engine.fail_after, live.engine.gap_s = 2, 0.01
    events = await named_events(live, PATH, ASK)
    name, got = events[-1]
    assert name == "error"
    check_error(got, "api_error")
    assert "message_stop" not in dict(events)


async def test_silence_is_kept_alive_by_pings(start):
    """While nothing comes, events named ping do."""
    live = await start(first_byte_s=0.02, keepalive_s=0.05)
    live.engine.gate, text, began = asyncio.Event(), "", time.monotonic()
    async with live.http.post(live.url + PATH, json={**ASK, "stream": True}) as got:
        while text.count("event: ping\n") < 4:
            text += (await got.content.readany()).decode()
        live.engine.gate.set()
        text += (await got.read()).decode()
    names = [line.removeprefix("event: ") for line in text.split("\n") if line[:6] == "event:"]
    assert 4 <= names.count("ping") <= (time.monotonic() - began) / 0.05 + 1
    assert names[0] == "message_start"
    assert names[-1] == "message_stop"


async def test_tokens_are_counted_as_they_would_be_asked(live):
    """The count is that of the prompt, needs no max_tokens, and generates nothing."""
    answering(live, "x")
    asked = {"messages": ASK["messages"], "system": "s", "tools": TOOLS}
    status, got, _ = await live.post(COUNT, asked)
    assert status == 200
    await live.post(PATH, asked | {"max_tokens": 5})
    [request] = live.engine.requests
    assert got == {"input_tokens": len(request.prompt_ids)}
    status, got, headers = await live.post(COUNT, asked | {"zest": 1})
    assert (status, headers["x-radiance-ignored"]) == (200, "zest")


async def test_null_is_absent_and_no_value_is_the_servers_fault(live):
    """Explicit nulls change nothing, and whatever stands in a field is a 200 or a 400."""
    names = SERVED | UNSERVED.keys()
    assert (await live.post(PATH, dict.fromkeys(names) | ASK))[0] == 200
    for name in sorted(names - {"stream"}):
        for odd in ([], ["text"], {}, {"a": 1}, [[]], "", "x", 0, -1, 0.5, True, [None], [{}]):
            status, got, _ = await live.post(PATH, ASK | {"max_tokens": 1, name: odd})
            assert status in {200, 400, 404}, (name, odd, got)


async def test_a_client_that_leaves_frees_its_request(live):
    """A closed connection cancels the generation here as well."""
    live.engine.endless, live.engine.gap_s = True, 0.01
    live.model.max_context = 100_000
    asking = asyncio.create_task(live.post(PATH, ASK | {"max_tokens": 50_000}))
    while not live.engine.open:
        await asyncio.sleep(0.01)
    asking.cancel()
    await until(lambda: not live.engine.open)


async def test_more_messages_than_tokens_are_refused_at_once(live):
    """A conversation that cannot fit is refused by its number of messages; a large body is read."""
    many = [{"role": "user", "content": ""}] * (live.model.max_context + 1)
    status, got, _ = await live.post(PATH, ASK | {"messages": many})
    assert status == 400
    assert "messages: 513 messages cannot fit this model's context of 512" in str(got)
    blocks = [{"type": "text", "text": ""}] * 3000
    said = [{"role": "user", "content": [*blocks, {"type": "text", "text": "x"}]}]
    status, got, _ = await live.post(PATH, ASK | {"messages": said})
    assert status == 200
    assert live.model.rendered[-1][0] == [{"role": "user", "content": "x"}]


async def test_an_agents_request_is_served(live):
    """What coding agents send beside the conversation is served, or named where it cannot be."""
    answering(live, ANSWER)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
              "properties": {"path": {"type": "string"}}}  # fmt: skip
    mark = {"cache_control": {"type": "ephemeral"}}
    status, got, headers = await live.post(f"{PATH}?beta=true", ASK | {
        "system": [{"type": "text", "text": "You are an agent.", **mark}],
        "tools": [{"name": "weather", "description": "d", "input_schema": schema, **mark}],
        "max_tokens": 32_000, "temperature": 1, "metadata": {"user_id": "u"},
        "context_management": {"edits": []},
    }, headers={"anthropic-version": "2023-06-01", "anthropic-beta": "a,b"})  # fmt: skip
    assert (status, got["stop_reason"]) == (200, "tool_use"), got
    assert headers["x-radiance-ignored"] == "context_management"
    status, got, _ = await live.post(f"{PATH}?beta=true", {})
    assert status == 400
    check_error(got, "invalid_request_error")
