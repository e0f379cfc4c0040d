"""Conversations that a template refuses, told in the fewer roles that every template takes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]
_SYSTEM = ("system", "developer")


def simpler(messages: Sequence[Message]) -> Iterator[list[dict[str, Any]]]:
    """Yield the conversation in ever simpler forms that say the same.

    First with what the system says in one message at the start, and neighbours of one role in
    one message; then with the system's words before the user's first.
    """
    system = "\n\n".join(
        str(message["content"]) for message in messages if message["role"] in _SYSTEM
    )
    rest = _joined([message for message in messages if message["role"] not in _SYSTEM])
    yield [{"role": "system", "content": system}, *rest] if system else rest
    if system and rest and rest[0]["role"] == "user":
        yield [{**rest[0], "content": f"{system}\n\n{rest[0]['content']}"}, *rest[1:]]


def _joined(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Join neighbouring messages of the user, and neighbouring plain ones of the assistant."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        last = joined[-1] if joined else {}
        plain = message["role"] in {"user", "assistant"} and not message.get("tool_calls")
        if plain and last.get("role") == message["role"] and not last.get("tool_calls"):
            parts = (last["content"], message["content"])
            last["content"] = "\n\n".join(part for part in parts if part)
        else:
            joined.append(dict(message))
    return joined
