"""Requests of every dialect with something in them changed at random."""

import copy
import json
import random

import pytest
from unit.server.dialects import FORMAT

FUNCTION = {"name": "f", "parameters": {"type": "object"}}
BODIES = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "s"}]},
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "y", "reasoning": "t", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "o"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "logprobs": True, "top_logprobs": 2, "logit_bias": {"5": 1}, "stop": ["a"],
    },
    "/v1/responses": {
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "t"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "o"},
        ],
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "text"}}, "reasoning": {"effort": "none"},
        "instructions": "i", "metadata": {"a": "b"}, "include": [], "max_output_tokens": 3,
    },
    "/v1/messages": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
                {"type": "text", "text": "r"}]}]},
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"}, "thinking": {"type": "disabled"}, "max_tokens": 3,
        "system": [{"type": "text", "text": "s"}], "output_config": {"effort": "none"},
        "stop_sequences": ["a"],
    },
    "/v1/completions": {"prompt": ["a"], "logprobs": 1, "echo": True, "max_tokens": 2, "n": 2},
}  # fmt: skip


def words_of(value):
    """Return the keys and texts of a value."""
    if isinstance(value, dict):
        return {*value, *(word for item in value.values() for word in words_of(item))}
    if isinstance(value, list):
        return {word for item in value for word in words_of(item)}
    return {value} if isinstance(value, str) else set()


WORDS = sorted(words_of(BODIES))


def drawn(depth=0):
    """Return any JSON value, shallow ones more often."""
    chance = random.random()
    if depth > 3 or chance < 0.5:
        words = random.choices(WORDS, k=3)
        return random.choice([None, True, False, 0, 1, -1, 10**19, 1.5, "", "x", *words])
    if chance < 0.75:
        return [drawn(depth + 1) for _ in range(random.randrange(4))]
    return {random.choice(WORDS): drawn(depth + 1) for _ in range(random.randrange(6))}


def mutate(node):
    """Change, drop or add one thing somewhere in a value."""
    while isinstance(node, dict | list) and node:
        key = random.choice(list(node)) if isinstance(node, dict) else random.randrange(len(node))
        if random.random() < 0.4 or not isinstance(node[key], dict | list):
            chance = random.random()
            if isinstance(node, dict) and chance < 0.2:
                del node[key]
            elif isinstance(node, dict) and chance < 0.5:
                node[random.choice(WORDS)] = drawn()
            else:
                node[key] = drawn()
            return
        node = node[key]


async def render(messages, tools, kwargs):
    """Write a conversation as a template might that takes every message."""
    text = "".join(f"<{m['role']}>{m.get('content') or ''}" for m in messages)
    return text[:300] + "<assistant>"


@pytest.mark.parametrize("path", sorted(BODIES))
async def test_no_change_is_the_servers_fault(live, path):
    """Whatever stands wherever, the answer is a 200 or a 4xx that says what is wrong."""
    live.model.chat_format = FORMAT
    live.model.render_chat = render
    seen = set()
    assert (await live.post(path, BODIES[path]))[0] == 200
    for _ in range(250):
        body = copy.deepcopy(BODIES[path])
        for _ in range(random.randrange(1, 4)):
            mutate(body)
        body.pop("stream", None)
        status, got, _ = await live.post(path, body)
        assert status in {200, 400, 404}, (got, json.dumps(body))
        assert (status == 200) == ("error" not in got or got["error"] is None)
        seen.add(status)
    assert seen >= {200, 400}


CHOICE = {"type": "allowed_tools", "allowed_tools": {
    "mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]}}  # fmt: skip
MORE = [
    *BODIES.items(),
    ("/v1/chat/completions", {**BODIES["/v1/chat/completions"], "tool_choice": CHOICE}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 2, "response_format": {"type": "text"}}),
    ("/v1/responses", {"input": "x", "tools": [{"type": "function", **FUNCTION}], "tool_choice": {
        "type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}}),
]  # fmt: skip


def places(node):
    """Return what holds each leaf, and its key there."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, item in list(items):
        if isinstance(item, dict | list):
            yield from places(item)
        yield node, key


@pytest.mark.parametrize(("path", "body"), MORE)
async def test_a_word_may_turn_out_to_be_no_text(live, path, body):
    """Wherever a value is looked up among words, one that cannot be looked up is a 400."""
    live.model.chat_format = FORMAT
    live.model.render_chat = render
    body = copy.deepcopy(body)
    for holder, key in places(body):
        kept = holder[key]
        for odd in ([], ["a"], {}, {"a": []}, [[]]):
            holder[key] = odd
            status, got, _ = await live.post(path, body)
            assert status in {200, 400, 404}, (got, json.dumps(body))
        holder[key] = kept
