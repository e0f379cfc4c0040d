"""Conversations as templates take them: arguments, ids, roles, and tools told in words."""

import json
import re

import pytest
from unit.chat_format.reading import read

from radiance_core.chat_format.format import ChatFormat
from radiance_core.chat_format.merging import simpler
from radiance_core.chat_format.messages import for_template, new_call_id
from radiance_core.chat_format.named import FORMATS
from radiance_core.chat_format.tools import Tool
from radiance_core.chat_format.writing import without_tools, write_calls

LONG = "call_0123456789abcdef01234567"


def talk(arguments='{"n": 1}', id_=LONG):
    call = {"id": id_, "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": id_, "content": "one"},
    ]


@pytest.mark.parametrize(
    ("sent", "as_text", "given"),
    [
        ('{"n": 1}', False, {"n": 1}),
        ('{"n": 1}', True, '{"n": 1}'),
        ({"n": 1}, False, {"n": 1}),
        ({"n": 1}, True, '{"n": 1}'),
        ("", False, {}),
        ("", True, "{}"),
        ('{"n": ', False, '{"n": '),  # cut short once, and sent back like that
        ("[1]", False, "[1]"),
        ("[" * 100_000, False, "[" * 100_000),
    ],
)
def test_arguments_are_what_the_template_writes(sent, as_text, given):
    """JSON text becomes an object unless the template writes text; no text is refused."""
    made = for_template(talk(sent), ChatFormat(arguments_as_text=as_text))
    assert made[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": given}


def test_results_are_named_and_thoughts_go_by_both_names():
    """A result says whose it is, and history with either name of thoughts is the same."""
    made = for_template(talk(), ChatFormat())
    assert made[2]["name"] == "f"
    assert made[1]["reasoning"] == made[1]["reasoning_content"] == "hm"
    other = talk()
    other[1]["reasoning_content"] = other[1].pop("reasoning")
    assert for_template(other, ChatFormat()) == made


def test_short_ids_stay_equal_and_apart():
    """Ids become nine letters and digits where only those go; equal ones stay equal."""
    form = ChatFormat(short_ids=True)
    made = for_template(talk(), form)
    [call] = made[1]["tool_calls"]
    assert re.fullmatch(r"[A-Za-z0-9]{9}", call["id"])
    assert made[2]["tool_call_id"] == call["id"]
    assert for_template(talk(id_="123456789"), form)[2]["tool_call_id"] == "123456789"
    assert for_template(talk(id_="other"), form)[2]["tool_call_id"] != call["id"]


def test_new_ids_are_of_the_form_and_never_twice():
    """Ids of answers are random, and short where the template wants them short."""
    for form, shape in ((ChatFormat(), r"call_[A-Za-z0-9]{24}"),
                        (ChatFormat(short_ids=True), r"[A-Za-z0-9]{9}")):  # fmt: skip
        ids = {new_call_id(form) for _ in range(1000)}
        assert len(ids) == 1000
        assert all(re.fullmatch(shape, id_) for id_ in ids)


def test_refused_conversations_are_told_in_fewer_roles():
    """First one system message and joined neighbours, then no system message; nothing is lost."""
    messages = [
        {"role": "system", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "", "tool_calls": [1]},
        {"role": "tool", "content": "d"},
        {"role": "tool", "content": "e"},
        {"role": "developer", "content": "f"},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": "g"},
    ]
    kept = json.dumps(messages)
    last = {"role": "assistant", "content": "g"}
    joined = [{"role": "user", "content": "b\n\nc"}, *messages[3:6], last]
    first, second = simpler(messages)
    assert first == [{"role": "system", "content": "a\n\nf"}, *joined]
    assert second == [{"role": "user", "content": "a\n\nf\n\nb\n\nc"}, *joined[1:]]
    assert json.dumps(messages) == kept
    assert list(simpler(messages[1:2])) == [messages[1:2]]


@pytest.mark.parametrize("name", FORMATS)
def test_calls_are_written_as_they_are_read(name):
    """What is written of calls in a format is what the parser makes those calls of."""
    tools = [Tool("f"), Tool("g")]
    arguments = [{"text": 'a "b"\n', "n": 1, "list": [True, None]}, {}]
    calls = [
        {"id": f"qid00000{n}", "function": {"name": tool.name, "arguments": arguments[n]}}
        for n, tool in enumerate(tools)
    ]
    if not FORMATS[name].parallel:
        calls = calls[:1]
    found = read(ChatFormat(tools=FORMATS[name]), tools, write_calls(calls, FORMATS[name]))
    assert [called for called, _ in found.calls] == [call["function"]["name"] for call in calls]
    assert [json.loads(one) for _, one in found.calls] == arguments[: len(calls)]
    assert found.content == ""


def test_tools_calls_and_results_can_be_said_in_words():
    """A template that knows no tools gets them in system, assistant and user messages."""
    definition = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    made = for_template(talk(), ChatFormat())
    second = {**made[2], "content": "two"}
    said = without_tools([*made, second], [definition], FORMATS["hermes"])
    assert [message["role"] for message in said] == ["system", "user", "assistant", "user"]
    assert json.dumps(definition["function"]) in said[0]["content"]
    assert "<tool_call>\n" in said[0]["content"]
    assert said[2]["content"] == ('<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>')
    results = "The call of f gave:\none\n\nThe call of f gave:\ntwo"
    assert said[3] == {"role": "user", "content": results}
    assert "tool_calls" not in said[2]
    own = [{"role": "system", "content": "Be brief."}, made[0]]
    told = without_tools(own, [definition], FORMATS["hermes"])
    assert told[0]["content"].startswith("Be brief.\n\nYou may call")
    assert without_tools(own, (), FORMATS["hermes"]) == own
