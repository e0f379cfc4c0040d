"""Chat answers with calls and thoughts, whole and streamed, from a scripted engine."""

import json

import pytest

from radiance_core.chat_format.format import ChatFormat, ReasoningFormat
from radiance_core.chat_format.named import FORMATS
from radiance_core.chat_format.tools import ToolChoice
from radiance_core.engine.interface import Delta
from radiance_core.server.taken_apart import AnswerParts
from radiance_core.server.turn import Turn
from radiance_core.text.errors import TemplateError

CHAT = "/v1/chat/completions"
F = {"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"n": {"type": "integer"}}}}}  # fmt: skip
THOUGHT = ["<thi", "nk>\nwell", ", so\n</think>", "\n\n"]
CALL = ["<tool_", 'call>\n{"name": "f", ', '"arguments": {"n"', ": 12", "}}\n</tool_call>"]


@pytest.fixture
async def talking(live):
    """A server whose model thinks and calls, and says the given words."""
    live.model.chat_format = ChatFormat(ReasoningFormat("<think>", "</think>"), FORMATS["hermes"])

    async def ask(words, **fields):
        live.engine.words = words
        body = {"messages": [{"role": "user", "content": "hi"}], **fields}
        status, whole, _ = await live.post(CHAT, body)
        assert status == 200, whole
        _, _, events = await live.stream(CHAT, body)
        return whole["choices"][0], [event["choices"][0] for event in events[:-1]], whole

    ask.live = live
    return ask


async def test_thoughts_go_by_both_names_and_can_be_left_out(talking):
    """Reasoning and reasoning_content are equal, in the message and in each delta, or both gone."""
    whole, chunks, _ = await talking([*THOUGHT, "Hello."])
    message = whole["message"]
    assert message["content"] == "Hello."
    assert message["reasoning"] == message["reasoning_content"] == "well, so"
    for key in ("reasoning", "reasoning_content"):
        assert "".join(c["delta"].get(key, "") for c in chunks) == "well, so"
    assert "".join(c["delta"].get("content", "") for c in chunks) == "Hello."
    whole, chunks, _ = await talking([*THOUGHT, "Hello."], include_reasoning=False)
    assert whole["message"] == {"role": "assistant", "content": "Hello.", "refusal": None}
    assert not any("reasoning" in c["delta"] for c in chunks)


async def test_calls_come_in_the_documented_pieces(talking):
    """Id, type and name once with empty arguments, then index and arguments alone."""
    whole, chunks, _ = await talking([*THOUGHT, *CALL], tools=[F])
    [call] = whole["message"]["tool_calls"]
    assert whole["message"]["content"] is None
    assert whole["finish_reason"] == "tool_calls"
    assert call["function"] == {"name": "f", "arguments": '{"n": 12}'}
    assert call["type"] == "function"
    first, *rest = [c["delta"]["tool_calls"][0] for c in chunks if "tool_calls" in c["delta"]]
    assert first == {"index": 0, "id": first["id"], "type": "function",
                     "function": {"name": "f", "arguments": ""}}  # fmt: skip
    assert first["id"] != call["id"]
    assert all(delta.keys() == {"index", "function"} for delta in rest)
    assert all(delta["function"].keys() == {"arguments"} for delta in rest)
    assert "".join(delta["function"]["arguments"] for delta in rest) == '{"n": 12}'
    assert chunks[-1]["delta"] == {}
    assert chunks[-1]["finish_reason"] == "tool_calls"
    assert not any(c["delta"].get("content") for c in chunks)


@pytest.mark.parametrize("limit", range(len(THOUGHT + CALL) + 1))
async def test_the_limit_wins_over_calls(talking, limit):
    """At every limit both forms agree; only a whole call gives tool_calls."""
    whole, chunks, _ = await talking([*THOUGHT, *CALL], tools=[F], max_tokens=limit)
    enough = limit == len(THOUGHT + CALL)
    assert whole["finish_reason"] == chunks[-1]["finish_reason"]
    assert whole["finish_reason"] == ("tool_calls" if enough else "length")
    message = whole["message"]
    assert not message["content"]
    arguments = "".join(
        d["function"]["arguments"] for c in chunks for d in c["delta"].get("tool_calls", ())
    )
    calls = message.get("tool_calls", [])
    assert "".join(call["function"]["arguments"] for call in calls) == arguments
    assert '{"n": 12}'.startswith(arguments)


async def test_a_named_call_ends_with_stop(talking):
    """As OpenAI answers: the reason for a call that was asked for by name is stop."""
    choice = {"type": "function", "function": {"name": "f"}}
    whole, _, _ = await talking(CALL, tools=[F], tool_choice=choice)
    assert whole["finish_reason"] == "stop"
    assert whole["message"]["tool_calls"]


async def test_constraints_reach_the_engine(talking):
    """With tools each choice has a constraint of its own; without, none."""
    await talking(["Hi"], tools=[F], n=2)
    constraints = [request.constraint for request in talking.live.engine.requests]
    assert len(constraints) == 4
    assert None not in constraints
    assert len({id(one) for one in constraints}) == 4
    await talking(["Hi"])
    assert talking.live.engine.requests[-1].constraint is None


async def test_what_a_schema_cannot_keep_is_named(talking):
    """A schema that no mask enforces, or not in these marks, is a 400 with its path."""
    live = talking.live
    bad = json.loads(json.dumps(F))
    bad["function"]["parameters"]["properties"]["n"] = {"not": {"type": "null"}}
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [F | {}, bad]}
    bad["function"]["name"] = "g"
    status, got, _ = await live.post(CHAT, body)
    assert (status, got["error"]["param"], got["error"]["code"]) == (
        400, "tools[1].function.parameters.properties.n.not", "unsupported_constraint",
    )  # fmt: skip
    live.model.chat_format = ChatFormat(tools=FORMATS["qwen3-coder"])
    bad["function"]["parameters"] = {"minProperties": 1}
    status, got, _ = await live.post(CHAT, body)
    assert status == 400
    assert (
        "minProperties: this model's way of writing calls cannot keep to it"
        in (got["error"]["message"])
    )
    assert got["error"]["param"] == "tools[1].function.parameters.minProperties"


@pytest.mark.parametrize(
    ("name", "said", "place", "words"),
    [
        ("q", {"pattern": "a{2,1}"}, "properties.q.pattern", "invalid repetition count range"),
        ("q", {"pattern": "a)(?=b"}, "properties.q.pattern", "a ')' closes nothing"),
        ("q", {"pattern": "a(?=b)"}, "properties.q.pattern", "look-around"),
        ("a>b", {}, "properties.a>b", "without this model's marks, got 'a>b'"),
        ("q", {"enum": ["</parameter>"]}, "properties.q", "told from this model's marks"),
    ],
)
async def test_what_marks_cannot_hold_is_named(talking, name, said, place, words):
    """A pattern at fault, and a name or value that the marks would cut, are a 400 with the path."""
    live = talking.live
    live.model.chat_format = ChatFormat(tools=FORMATS["qwen3-coder"])
    tool = json.loads(json.dumps(F))
    tool["function"]["parameters"]["properties"][name] = {"type": "string", **said}
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
    status, got, _ = await live.post(CHAT, body)
    assert (status, got["error"]["param"]) == (400, f"tools[0].function.parameters.{place}")
    assert words in got["error"]["message"]
    assert got["error"]["message"].count("properties.") == 1, "the place is told once"


async def test_tools_too_hard_to_enforce_are_refused(talking):
    """Schemas that no mask can be made of in time are a 400, not a server that is busy."""
    hard = json.loads(json.dumps(F))
    patterns = [{"pattern": f".*{letter}.*"} for letter in "abcdefghijklmnopqrst"]
    hard["function"]["parameters"]["properties"]["n"] = {"type": "string", "allOf": patterns}
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [hard]}
    status, got, _ = await talking.live.post(CHAT, body)
    assert (status, got["error"]["param"], got["error"]["code"]) == (
        400, "tools", "unsupported_constraint",
    )  # fmt: skip
    assert got["error"]["message"].startswith("tools: expected one that can be")


async def test_a_refused_conversation_is_told_otherwise(talking):
    """A template that wants one system message at the start gets one; else its own words go out."""
    live = talking.live
    render = live.model.render_chat

    async def strict(messages, tools, kwargs):
        if any(message["role"] == "system" for message in messages[1:]):
            raise TemplateError("x", "raised", "the system speaks first")
        return await render(messages, tools, kwargs)

    live.model.render_chat = strict
    messages = [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]
    assert (await live.post(CHAT, {"messages": messages}))[0] == 200
    assert live.model.rendered[-1][0] == [
        {"role": "system", "content": "b"}, {"role": "user", "content": "a"},
    ]  # fmt: skip

    async def silent(messages, tools, kwargs):
        raise TemplateError("x", "raised", "I do not talk")

    live.model.render_chat = silent
    status, got, _ = await live.post(CHAT, {"messages": messages})
    assert (status, got["error"]["param"]) == (400, "messages")
    assert "I do not talk" in got["error"]["message"]


def test_thoughts_are_counted_by_their_tokens_however_they_come():
    """Tokens up to the closing mark count as reasoning, in one delta or in many."""
    text = "<think>ab</think>cd"
    turn = Turn((1,), ChatFormat(ReasoningFormat("<think>", "</think>")), ToolChoice(), False, None,
                frozenset())  # fmt: skip

    class Letters:
        def token_bytes(self, id_):
            return bytes([id_])

    for size in (1, 3, len(text)):
        parts = AnswerParts(turn, Letters())
        for at in range(0, len(text), size):
            piece = text[at : at + size]
            parts.take(Delta(piece, len(piece), token_ids=tuple(piece.encode())))
        parts.take(Delta("", 0, "stop"))
        assert parts.reasoning_tokens == len("<think>ab</think>")
        assert (parts.content, parts.reasoning) == ("cd", "ab")
    none = AnswerParts(turn, Letters())
    none.take(Delta("abc", 3, "stop", token_ids=(97, 98, 99)))
    assert none.reasoning_tokens == 0
