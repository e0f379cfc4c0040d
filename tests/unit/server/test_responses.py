"""/v1/responses: items in, items out, typed events, and what is not stored."""

import codecs
import json

import pytest
from unit.server.dialects import (
    ANSWER,
    ARGUMENTS,
    FORMAT,
    answering,
    answering_bytes,
    named_events,
    pieces,
)

from radiance_core.engine.interface import Delta
from radiance_core.engine.sampling import TokenLogprob

PATH = "/v1/responses"
TOOLS = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
ASK = {"input": "hi", "seed": 1}


def bare(item):
    """Return an item without what is drawn."""
    return {key: value for key, value in item.items() if key not in {"id", "call_id"}}


async def test_whole_answer(live):
    """Text is one completed message with its counts; the object says what was asked."""
    status, got, headers = await live.post(PATH, ASK | {
        "instructions": "be kind", "metadata": {"a": "b"}, "max_output_tokens": 50, "store": True,
        "temperature": 0.5, "user": "u", "truncation": "disabled", "include": [],
    })  # fmt: skip
    assert status == 200
    assert (got["object"], got["status"], got["error"]) == ("response", "completed", None)
    assert got["id"].startswith("resp_")
    assert got["store"] is False
    assert (got["metadata"], got["instructions"]) == ({"a": "b"}, "be kind")
    assert (got["temperature"], got["max_output_tokens"]) == (0.5, 50)
    assert got["text"] == {"format": {"type": "text"}}
    [message] = got["output"]
    assert bare(message) == {
        "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Hello, wörld 🙂.", "annotations": [],
                     "logprobs": []}],
    }  # fmt: skip
    usage = got["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens"] == 5
    assert usage["input_tokens_details"] == {"cached_tokens": 1, "cache_write_tokens": 0}
    assert usage["output_tokens_details"]["reasoning_tokens"] == 0
    assert "x-radiance-ignored" not in headers
    messages, tools, _ = live.model.rendered[0]
    assert [m["role"] for m in messages] == ["system", "user"]
    assert tools is None
    assert live.engine.requests[0].sampling.max_tokens == 50


async def test_thoughts_text_and_calls_are_items(live):
    """An answer of three kinds is three items in their order, whatever the cuts."""
    for _ in range(10):
        answering(live, ANSWER)
        _, got, _ = await live.post(PATH, ASK | {"tools": TOOLS})
        thought, message, call = got["output"]
        assert bare(thought) == {
            "type": "reasoning", "status": "completed", "summary": [],
            "content": [{"type": "reasoning_text", "text": "They ask äbout it."}],
        }  # fmt: skip
        assert message["content"][0]["text"] == "I look."
        assert (call["type"], call["name"], call["status"]) == (
            "function_call", "weather", "completed",
        )  # fmt: skip
        assert json.loads(call["arguments"]) == ARGUMENTS
        assert len({item["id"] for item in got["output"]} | {call["call_id"]}) == 4
        assert got["status"] == "completed"


async def test_events_build_the_same_response(live):
    """Deltas joined are the items, numbers count up, and the last event has the whole."""
    for text in (ANSWER, "plain", "", "<think>\nonly thoughts"):
        answering(live, text)
        events = await named_events(live, PATH, ASK | {"tools": TOOLS})
        assert [e["sequence_number"] for _, e in events] == list(range(len(events)))
        names = [name for name, _ in events]
        assert names[:2] == ["response.created", "response.in_progress"]
        assert names[-1] == "response.completed"
        assert events[0][1]["response"]["output"] == []
        assert events[0][1]["response"]["status"] == "in_progress"
        final = events[-1][1]["response"]
        built = {}
        for name, event in events[2:-1]:
            place = event["output_index"]
            if name == "response.output_item.added":
                assert place == len(built)
                assert event["item"]["status"] == "in_progress"
                built[place] = ""
            elif name.endswith(".delta"):
                assert event["item_id"] == final["output"][place]["id"]
                built[place] += event["delta"]
            elif name in {"response.output_text.done", "response.reasoning_text.done"}:
                assert event["text"] == built[place]
            elif name == "response.function_call_arguments.done":
                assert event["arguments"] == built[place]
            elif name == "response.output_item.done":
                assert event["item"] == final["output"][place]
        for place, item in enumerate(final["output"]):
            held = item["arguments"] if "arguments" in item else item["content"][0]["text"]
            assert held == built[place]
        _, whole, _ = await live.post(PATH, ASK | {"tools": TOOLS})
        assert [bare(i) for i in whole["output"]] == [bare(i) for i in final["output"]]
        assert whole["usage"] == final["usage"]


async def test_an_answer_that_is_cut_is_incomplete(live):
    """At the limit the response and its last item say so, with the reason."""
    whole = len(ANSWER)
    answering(live, ANSWER)
    live.engine.words = list(ANSWER)
    for limit in (3, whole // 2, whole - 20):
        asked = ASK | {"tools": TOOLS, "max_output_tokens": limit}
        _, got, _ = await live.post(PATH, asked)
        assert got["status"] == "incomplete"
        assert got["incomplete_details"] == {"reason": "max_output_tokens"}
        assert got["output"][-1]["status"] == "incomplete"
        events = await named_events(live, PATH, asked)
        assert events[-1][0] == "response.incomplete"
        final = events[-1][1]["response"]
        assert [bare(i) for i in got["output"]] == [bare(i) for i in final["output"]]
        assert final["incomplete_details"] == got["incomplete_details"]


async def test_tokens_of_thoughts_are_counted(live):
    """The counts tell thoughts, with the mark that closes them, from all that was generated."""
    answering_bytes(live, ANSWER)
    for _ in range(5):
        _, got, _ = await live.post(PATH, ASK | {"tools": TOOLS})
        thought = len(ANSWER[: ANSWER.index("</think>\n\n") + 10].encode())
        assert got["usage"]["output_tokens_details"] == {"reasoning_tokens": thought}
        assert got["usage"]["output_tokens"] == len(ANSWER.encode())


async def test_a_call_that_is_not_whole_is_incomplete(live):
    """What was written of it is kept, and its item says that it is not whole."""
    answering_bytes(live, ANSWER[:-20])
    _, got, _ = await live.post(PATH, ASK | {"tools": TOOLS})
    call = got["output"][-1]
    assert (got["status"], call["type"], call["status"]) == (
        "completed", "function_call", "incomplete",
    )  # fmt: skip
    assert call["arguments"].startswith('{"city": "Zürich')


def answering_told(live, text):
    """Let a fake engine answer with tokens of random lengths, each with a number of its own."""
    live.model.chat_format = FORMAT
    tokens, cut = pieces(text.encode()), {}
    spelt = live.model.tokenizer.token_bytes
    for number, token in enumerate(tokens):
        cut[1000 + number] = token
    live.model.tokenizer.token_bytes = lambda id_: cut[id_] if id_ in cut else spelt(id_)

    async def generate(request):
        decoder = codecs.getincrementaldecoder("utf-8")()
        for id_, token in cut.items():
            one = TokenLogprob(id_, -0.001 * id_, 1, ((id_, -0.001 * id_),))
            yield Delta(decoder.decode(token), 1, token_ids=(id_,), logprobs=(one,))
        yield Delta("", 0, "stop", None, None, len(request.prompt_ids), len(cut), 0)

    live.engine.generate = generate


@pytest.mark.parametrize("text", [ANSWER, "plain äé🙂 words, no more.", "", "<think>\nonly"])
async def test_log_probabilities_are_those_of_the_messages_tokens(live, text):
    """Tokens that begin in the text are told with it, those of thoughts and calls are not."""
    ask = ASK | {"tools": TOOLS, "top_logprobs": 1, "include": ["message.output_text.logprobs"]}
    for _ in range(20):
        answering_told(live, text)
        _, whole, _ = await live.post(PATH, ask)
        assert whole["top_logprobs"] == 1
        events = await named_events(live, PATH, ask)
        parts = [event for name, event in events if name == "response.output_text.delta"]
        ended = [event for name, event in events if name == "response.output_text.done"]
        assert [i["content"][0]["logprobs"] for i in whole["output"] if i["type"] == "message"] == [
            event["logprobs"] for event in ended
        ]
        told = [one for event in parts for one in event["logprobs"]]
        assert told == [one for event in ended for one in event["logprobs"]]
        message = "".join(event["text"] for event in ended)
        raw = b"".join(bytes(one["bytes"]) for one in told)
        assert message.encode() in raw
        if told:  # its first and last token reach into it
            edges = len(told[0]["bytes"]) + len(told[-1]["bytes"])
            assert len(raw) <= len(message.encode()) + edges - 2
        assert all(one["top_logprobs"][0]["logprob"] == one["logprob"] for one in told)
    answering_told(live, text)
    _, plain, _ = await live.post(PATH, ASK | {"tools": TOOLS})
    assert not any(i["content"][0].get("logprobs") for i in plain["output"] if "content" in i)


async def test_a_failure_in_the_middle_is_told_twice_and_ends(live):
    """The failed response and an error object that clients raise on are the last events."""
    live.engine.fail_after, live.engine.gap_s = 2, 0.01
    events = await named_events(live, PATH, ASK)
    (failed, response), (name, error) = events[-2:]
    assert (failed, name) == ("response.failed", "error")
    assert response["response"]["status"] == "failed"
    [item] = response["response"]["output"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", "Hello, ")
    assert response["response"]["error"]["code"] == "server_error"
    assert error["error"]["type"] == "server_error"
    assert error["message"] == error["error"]["message"]
    assert "/usr" not in str(events)


async def test_tools_reach_the_template_and_choices_are_nested(live):
    """Flat tools and choices become those of a chat request; other kinds are named."""
    answering(live, "x")
    tool = TOOLS[0] | {"description": "d", "strict": True}
    choices = ["auto", "none", {"type": "function", "name": "weather"},
               {"type": "allowed_tools", "mode": "auto",
                "tools": [{"type": "function", "name": "weather"}]}]  # fmt: skip
    for choice in choices:
        status, got, _ = await live.post(PATH, ASK | {"tools": [tool], "tool_choice": choice})
        assert (status, got["tool_choice"]) == (200, choice), got
        shown = live.model.rendered[-1][1][0]["function"]
        assert (shown["name"], shown["description"], shown["strict"]) == ("weather", "d", True)


@pytest.mark.parametrize(
    ("fields", "param", "words", "code"),
    [
        ({"input": []}, "input", "at least one item", None),
        ({"input": None}, "input", "expected this field", None),
        ({"input": 5}, "input", "expected str or array", None),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "nothing is stored", "u"),
        ({"conversation": "c"}, "conversation", "nothing is stored here", "u"),
        ({"prompt": {"id": "p"}}, "prompt", "prompts are not stored", "u"),
        ({"background": True}, "background", "answers are not stored", "u"),
        ({"truncation": "auto"}, "truncation", "say disabled", "u"),
        ({"include": ["file_search_call.results"]}, "include[0]", "could include", "u"),
        ({"top_logprobs": 3}, "top_logprobs", "only with include message.output_text", None),
        ({"top_logprobs": 21, "include": ["message.output_text.logprobs"]}, "top_logprobs",
         "a number from 0 to 20", None),
        ({"max_tokens": 3}, "max_tokens", "it is called max_output_tokens", "u"),
        ({"response_format": {"type": "json_object"}}, "response_format", "text.format", "u"),
        ({"n": 2}, "n", "a response is one answer", "u"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "'web_search' is none", "u"),
        ({"tools": [{"type": "mcp"}]}, "tools[0].type", "'mcp' is none", "u"),
        ({"tools": [TOOLS[0] | {"name": ""}]}, "tools[0].name", "expected 1 to 128 letters", None),
        ({"tools": [TOOLS[0] | {"parameters": {"type": "array"}}]}, "tools[0].parameters",
         "the JSON schema of an object", None),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name", "none", None),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "tools": TOOLS}},
         "tool_choice.mode", "expected auto or required", None),
        ({"text": {"format": {"type": [1]}}}, "text.format.type", "a string, got '[1]'", None),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice", "'mcp' is not served", "u"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [{"type": "mcp"}]}},
         "tool_choice.tools[0]", "only functions", "u"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", "json_schema, got 'xml'", None),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "JSON schema", None),
        ({"text": {"verbosity": "high"}}, "text.verbosity", "verbosity", "u"),
        ({"text": {"formt": {}}}, "text.formt", "did you mean 'format'", "unknown_parameter"),
        ({"temprature": 1}, "temprature", "did you mean 'temperature'", "unknown_parameter"),
        ({"max_output_tokens": -1}, "max_output_tokens", "expected a number from 0", None),
        ({"temperature": 3}, "temperature", "expected a number from 0 to 2", None),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "expected one of none", None),
        ({"metadata": {"a": 1}}, "metadata[...]", "expected str", None),
    ],
)  # fmt: skip
async def test_what_is_not_served_is_named(live, fields, param, words, code):
    """Each refusal is a 400 that names the field as this route calls it."""
    live.model.chat_format = FORMAT
    status, got, _ = await live.post(PATH, ASK | fields)
    error = got["error"]
    assert (status, error["param"]) == (400, param), got
    assert words in error["message"]
    assert error["message"].startswith(f"{param}: ") or code == "unknown_parameter"
    assert error["code"] == ("unsupported_parameter" if code == "u" else code)
    assert live.engine.requests == []


async def test_a_format_is_a_constraint(live):
    """A schema is compiled, and what is wrong in it is named as this route calls it."""
    form = {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": True}
    status, got, _ = await live.post(PATH, ASK | {"text": {"format": form}})
    assert (status, got["text"]["format"]) == (200, form)
    assert live.engine.requests[-1].constraint is not None
    form["schema"] = {"type": "array", "items": {"type": "integer"}, "contains": {"const": 1}}
    status, got, _ = await live.post(PATH, ASK | {"text": {"format": form}})
    assert (status, got["error"]["param"]) == (400, "text.format.schema.contains")
    assert got["error"]["message"].startswith("text.format.schema: ")
    for kind in ("json_object", "text"):
        assert (await live.post(PATH, ASK | {"text": {"format": {"type": kind}}}))[0] == 200
        constraint = live.engine.requests[-1].constraint
        assert (constraint is None) == (kind == "text")


async def test_what_is_ignored_is_named(live):
    """Unknown fields, at the top and inside, and what need not be included, are told."""
    status, got, headers = await live.post(PATH, {
        "input": [{"role": "user", "content": "x", "flavour": 1}], "zest": 1, "seed": 1,
        "include": ["reasoning.encrypted_content"], "prompt_cache_retention": "24h",
        "reasoning": {"summary": "auto", "zeal": 2},
    })  # fmt: skip
    assert status == 200
    named = ["zest", "input[0].flavour", "reasoning.zeal", "include[0]"]
    assert sorted(got["radiance"]["ignored"]) == sorted(named)
    assert sorted(headers["x-radiance-ignored"].split(",")) == sorted(named)


async def test_null_is_absent_and_no_value_is_the_servers_fault(live):
    """Explicit nulls change nothing, and whatever stands in a field is a 200 or a 400."""
    from radiance_core.server.responses_request import SERVED, UNSERVED

    names = SERVED | UNSERVED.keys()
    assert (await live.post(PATH, dict.fromkeys(names) | ASK))[0] == 200
    for name in sorted(names - {"stream"}):
        for odd in ([], ["text"], {}, {"a": 1}, [[]], "", "x", 0, -1, 0.5, True, [None], [{}]):
            asked = ASK | {"max_output_tokens": 1, name: odd}
            status, got, _ = await live.post(PATH, asked)
            assert status in {200, 400, 404}, (name, odd, got)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "resp_1"), ("DELETE", "resp_1"), ("POST", "resp_1/cancel"),
     ("GET", "resp_1/input_items")],
)  # fmt: skip
async def test_stored_responses_do_not_exist(live, method, path):
    """Whatever asks for a stored response hears that none is."""
    status, got, _ = await live.get(f"{PATH}/{path}", method)
    assert (status, got["error"]["code"]) == (404, "response_not_found")
    assert "nothing is stored here" in got["error"]["message"]
    assert (await live.get(f"{PATH}/{path}", "PUT"))[0] == 405


async def test_refusals_before_the_first_token_are_statuses(live):
    """A full queue is a 429 also when a stream was asked for."""
    from radiance_core.engine.interface import QueueFull

    live.engine.refusal = QueueFull("engine: 8 requests wait", 2.0)
    for stream in (False, True):
        status, got, headers = await live.post(PATH, ASK | {"stream": stream})
        assert (status, got["error"]["code"], headers["retry-after"]) == (429, "queue_full", "2")


async def test_tokens_are_counted_as_they_would_be_asked(live):
    """The count is that of the prompt, and nothing is generated for it."""
    answering(live, "x")
    asked = ASK | {"instructions": "s", "tools": TOOLS}
    status, got, headers = await live.post(f"{PATH}/input_tokens", asked | {"zest": 1})
    assert (status, headers["x-radiance-ignored"]) == (200, "zest")
    await live.post(PATH, asked)
    [request] = live.engine.requests
    expected = {"object": "response.input_tokens", "input_tokens": len(request.prompt_ids)}
    assert got == expected
    status, got, _ = await live.post(f"{PATH}/input_tokens", asked | {"tool_choice": "maybe"})
    assert (status, got["error"]["param"]) == (400, "tool_choice")


async def test_more_items_than_tokens_are_refused_at_once(live):
    """A conversation that cannot fit is refused by its number of items."""
    many = [{"role": "user", "content": ""}] * (live.model.max_context + 1)
    status, got, _ = await live.post(PATH, ASK | {"input": many})
    assert (status, got["error"]["code"]) == (400, "context_length_exceeded")
    assert got["error"]["message"].startswith("input: 513 messages cannot fit")
