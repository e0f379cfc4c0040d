"""The blocks of /v1/messages as messages of a conversation."""

import json

import pytest

from radiance_core.server.errors import ApiError
from radiance_core.server.messages_input import BlockReader
from radiance_core.server.unknown_keys import UnknownKeys


def read(messages, system=None):
    unknown = UnknownKeys(strict=False)
    return BlockReader(unknown).read(messages, system), unknown.paths


def test_text_and_blocks_of_text_are_the_same():
    """A string and text blocks give one message; system text stands first."""
    blocks = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
              {"type": "text", "text": "b"}]  # fmt: skip
    assert read([{"role": "user", "content": "ab"}]) == read([{"role": "user", "content": blocks}])
    assert read([{"role": "user", "content": "x"}], "sys")[0][0] == {
        "role": "system", "content": "sys",
    }  # fmt: skip
    got = read([{"role": "user", "content": "x"}], blocks)[0]
    assert got[0] == {"role": "system", "content": "a\n\nb"}


def test_calls_and_results_become_tool_messages():
    """Uses are calls with JSON text; results are the tool's messages, before what is said."""
    given = {"city": "Zürich", "n": [1, 2]}
    got, unknown = read([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "f", "input": given},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [
                {"type": "text", "text": "12"}, {"type": "text", "text": "°C"}]},
            {"type": "tool_result", "tool_use_id": "t2", "is_error": True},
            {"type": "text", "text": "and?"},
        ]},
    ])  # fmt: skip
    assistant = got[1]
    assert (assistant["content"], assistant["reasoning_content"]) == ("I look.", "hm")
    [call] = assistant["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("t1", "f")
    assert json.loads(call["function"]["arguments"]) == given
    assert got[2:] == [
        {"role": "tool", "tool_call_id": "t1", "content": "12°C"},
        {"role": "tool", "tool_call_id": "t2", "content": ""},
        {"role": "user", "content": "and?"},
    ]
    assert unknown == ["messages[2].content[1].is_error"]


@pytest.mark.parametrize(
    ("message", "param", "words"),
    [
        ({"role": "system", "content": "x"}, "messages[0].role", "stands in the field system"),
        ({"role": "user", "content": 5}, "messages[0].content", "text or a list of blocks"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]", "a block of type text"),
        ({"role": "user", "content": [{"type": "image", "source": {}}]}, "messages[0].content[0]",
         "this model reads text only, and 'image' is not text"),
        ({"role": "user", "content": [{"type": "document", "source": {}}]},
         "messages[0].content[0]", "'document' is not text"),
        ({"role": "user", "content": [{"type": "thinking", "thinking": "x"}]},
         "messages[0].content[0]", "text and tool_result are"),
        ({"role": "assistant", "content": [{"type": "server_tool_use"}]},
         "messages[0].content[0]", "'server_tool_use' are not served here"),
        ({"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
         "messages[0].content[0]", "'redacted_thinking'"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text", "string"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f",
                                            "input": "x"}]},
         "messages[0].content[0].input", "expected an object"),
        ({"role": "user", "content": [{"type": "tool_result", "content": "x"}]},
         "messages[0].content[0].tool_use_id", "string"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "image"}]}]}, "messages[0].content[0].content[0]", "'image' is not text"),
    ],
)  # fmt: skip
def test_bad_blocks_are_named(message, param, words):
    """What is malformed or not served is a 400 at its path."""
    with pytest.raises(ApiError) as caught:
        read([message])
    assert (caught.value.status, caught.value.param) == (400, param)
    assert caught.value.message.startswith(f"{param}: ")
    assert words in caught.value.message


def test_no_messages_are_refused():
    """A conversation has a message."""
    with pytest.raises(ApiError, match="at least one message, got none"):
        read([])
