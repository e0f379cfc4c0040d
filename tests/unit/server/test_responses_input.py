"""The items of /v1/responses as messages."""

import random
import string

import pytest

from radiance_core.server.errors import ApiError
from radiance_core.server.responses_input import InputReader
from radiance_core.server.unknown_keys import UnknownKeys


def read(given, instructions=None, *, strict=False):
    unknown = UnknownKeys(strict=strict)
    return InputReader(unknown).read(given, instructions), unknown.paths


def word():
    return "".join(random.choices(string.ascii_letters + " äß漢🙂", k=random.randrange(1, 12)))


def test_text_is_what_the_user_says():
    """A string is one message; instructions stand before it as the system's."""
    assert read("hi")[0] == [{"role": "user", "content": "hi"}]
    assert read("hi", "be brief")[0][0] == {"role": "system", "content": "be brief"}


def test_a_turn_of_several_items_is_one_message():
    """Thoughts, text and calls up to the next turn are one message of the assistant."""
    thought, text, answer = word(), word(), word()
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "a"},
                                     {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [],
         "content": [{"type": "reasoning_text", "text": thought}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
         "content": [{"type": "output_text", "text": text, "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": '{"x":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": answer},
        {"type": "function_call_output", "call_id": "c2",
         "output": [{"type": "input_text", "text": answer}]},
        {"type": "message", "role": "developer", "content": "d"},
    ]  # fmt: skip
    got, unknown = read(items)
    assert unknown == []
    assert got == [
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": text, "reasoning_content": thought, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "g", "arguments": '{"x":1}'}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": answer},
        {"role": "tool", "tool_call_id": "c2", "content": answer},
        {"role": "developer", "content": "d"},
    ]  # fmt: skip


def test_two_messages_of_the_assistant_stay_two():
    """What was said in two messages, or after a call, does not run together."""
    said = {"role": "assistant", "content": "one"}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text",
                                                                "text": "t"}]}  # fmt: skip
    assert [m["content"] for m in read([said, {**said, "content": "two"}])[0]] == ["one", "two"]
    assert len(read([call, said])[0]) == 2
    assert len(read([said, thought])[0]) == 2
    assert len(read([thought, thought, said])[0]) == 1


@pytest.mark.parametrize(
    ("given", "param", "words"),
    [
        ([], "input", "at least one item"),
        (["x"], "input[0]", "expected an object, got 'x'"),
        ([{}], "input[0].type", "items of type 'None' are not served"),
        ([{"type": "item_reference", "id": "x"}], "input[0].type", "'item_reference'"),
        ([{"type": "computer_call"}], "input[0].type", "'computer_call'"),
        ([{"role": "tool", "content": "x"}], "input[0].role", "expected one of system"),
        ([{"role": "user", "content": 5}], "input[0].content", "expected text or a list"),
        ([{"role": "user", "content": ["x"]}], "input[0].content[0]", "a part with a type"),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}],
         "input[0].content[0]", "'input_image' is not text"),
        ([{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}],
         "input[0].content[0]", "'input_file' is not text"),
        ([{"role": "user", "content": [{"type": "input_text"}]}],
         "input[0].content[0].text", "expected a string"),
        ([{"type": "function_call", "name": "f", "arguments": "{}"}], "input[0].call_id", "string"),
        ([{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}],
         "input[0].arguments", "expected a string"),
        ([{"type": "function_call_output", "call_id": "c"}], "input[0].output", "expected text"),
        ([{"type": "reasoning", "content": "x"}], "input[0].content", "a list of parts"),
        ([{"type": "reasoning", "content": ["x"]}], "input[0].content[0].text", "a string"),
    ],
)  # fmt: skip
def test_bad_items_are_named(given, param, words):
    """What is malformed or not served is a 400 at its path."""
    with pytest.raises(ApiError) as caught:
        read(given)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert caught.value.message.startswith(f"{param}: ")
    assert words in caught.value.message


def test_unknown_keys_are_named_once_and_near_misses_refused():
    """A key that nothing reads is named where it comes first; a slip of the pen is not passed."""
    item = {"role": "user", "content": "x", "flavour": 1, "nothing": None}
    assert read([item, item])[1] == ["input[0].flavour"]
    with pytest.raises(ApiError, match="did you mean 'content'"):
        read([{"role": "user", "content": "x", "contents": "y"}])
    with pytest.raises(ApiError, match="--strict-requests"):
        read([item], strict=True)
    with pytest.raises(ApiError, match="at most 32 unknown fields"):
        read([{"role": "user", "content": "x", **{f"q{n}q": 1 for n in range(40)}}])
