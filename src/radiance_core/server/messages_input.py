"""The messages of ``/v1/messages``, whose content is blocks, made into those of a conversation.

user: tool_result, text      ──  tool, …, user
assistant: thinking, text, tool_use  ──  assistant with reasoning, content and calls
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from radiance_core.server.errors import invalid, quote, unsupported
from radiance_core.server.unknown_keys import UnknownKeys, only

# cache_control asks for what happens anyway; citations and signatures are another server's.
_TEXT = only({"text", "cache_control", "citations"})
_USE = only({"id", "name", "input", "cache_control", "caller"})
_RESULT = only({"tool_use_id", "content", "cache_control", "is_error"})
_THINKING = only({"thinking", "signature"})
_MESSAGE = frozenset({"role", "content"})


class BlockReader:
    """Reads the messages of one request in their order.

    Args:
        unknown: gathers keys that nothing reads.
    """

    def __init__(self, unknown: UnknownKeys) -> None:
        self._unknown = unknown

    def read(self, messages: Sequence[Mapping[str, Any]], system: object) -> list[dict[str, Any]]:
        """Return the messages of a conversation.

        Raises: ``ApiError`` 400 naming the block that is malformed or not served.
        """
        made: list[dict[str, Any]] = []
        if system is not None and (text := self._system(system)):
            made.append({"role": "system", "content": text})
        if not messages:
            raise invalid("messages: expected at least one message, got none.", "messages")
        for place, message in enumerate(messages):
            path = f"messages[{place}]"
            self._unknown.note(message, _MESSAGE, path)
            role = message.get("role")
            if role == "user":
                made += self._user(message.get("content"), f"{path}.content")
            elif role == "assistant":
                made.append(self._assistant(message.get("content"), f"{path}.content"))
            else:
                raise invalid(
                    f"{path}.role: expected user or assistant, got {quote(role)}; a system prompt "
                    "stands in the field system.",
                    f"{path}.role",
                )
        return made

    def _system(self, system: object) -> str:
        if isinstance(system, str):
            return system
        return "\n\n".join(
            self._text(block, path) for block, path in _blocks(system, "system", "text")
        )

    def _user(self, content: object, path: str) -> list[dict[str, Any]]:
        if isinstance(content, str):
            return [{"role": "user", "content": content}]
        made: list[dict[str, Any]] = []
        for block, at in _blocks(content, path, "text, tool_result"):
            kind = block["type"]
            if kind == "text":
                text = self._text(block, at)
                if made and made[-1]["role"] == "user":
                    made[-1]["content"] += text
                else:
                    made.append({"role": "user", "content": text})
            elif kind == "tool_result":
                made.append(self._result(block, at))
            else:
                raise _unread(kind, at, "text and tool_result")
        return made

    def _assistant(self, content: object, path: str) -> dict[str, Any]:
        if isinstance(content, str):
            return {"role": "assistant", "content": content}
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[dict[str, Any]] = []
        for block, at in _blocks(content, path, "text, tool_use, thinking"):
            kind = block["type"]
            if kind == "text":
                texts.append(self._text(block, at))
            elif kind == "tool_use":
                calls.append(self._use(block, at))
            elif kind == "thinking":
                self._unknown.note(block, _THINKING, at)
                thoughts.append(_string(block, "thinking", at))
            else:
                raise _unread(kind, at, "text, tool_use and thinking")
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
        if thoughts:
            message["reasoning_content"] = "".join(thoughts)
        if calls:
            message["tool_calls"] = calls
        elif message["content"] is None:
            message["content"] = ""
        return message

    def _text(self, block: Mapping[str, Any], path: str) -> str:
        if block["type"] != "text":
            raise _unread(block["type"], path, "text")
        self._unknown.note(block, _TEXT, path)
        return _string(block, "text", path)

    def _use(self, block: Mapping[str, Any], path: str) -> dict[str, Any]:
        self._unknown.note(block, _USE, path)
        given = block.get("input")
        if not isinstance(given, dict):
            raise invalid(f"{path}.input: expected an object, got {quote(given)}.", f"{path}.input")
        arguments = msgspec.json.encode(given).decode()
        function = {"name": _string(block, "name", path), "arguments": arguments}
        return {"id": _string(block, "id", path), "type": "function", "function": function}

    def _result(self, block: Mapping[str, Any], path: str) -> dict[str, Any]:
        self._unknown.note(block, _RESULT, path)
        if block.get("is_error"):
            self._unknown.paths.append(f"{path}.is_error")  # no template has a place for it
        content = block.get("content")
        if content is None:
            content = ""
        elif not isinstance(content, str):
            content = "".join(
                self._text(part, at) for part, at in _blocks(content, f"{path}.content", "text")
            )
        answered = _string(block, "tool_use_id", path)
        return {"role": "tool", "tool_call_id": answered, "content": content}


def _blocks(content: object, path: str, kinds: str) -> list[tuple[Mapping[str, Any], str]]:
    """Return each block with its path; all of them have a type."""
    if not isinstance(content, list):
        raise invalid(f"{path}: expected text or a list of blocks, got {quote(content)}.", path)
    found = []
    for place, block in enumerate(content):
        at = f"{path}[{place}]"
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            raise invalid(f"{at}: expected a block of type {kinds}, got {quote(block)}.", at)
        found.append((block, at))
    return found


def _unread(kind: object, path: str, kinds: str) -> Exception:
    if kind in {"image", "document", "search_result", "file"}:
        return unsupported(path, f"this model reads text only, and {quote(kind)} is not text")
    return unsupported(path, f"blocks of type {quote(kind)} are not served here; {kinds} are")


def _string(block: Mapping[str, Any], key: str, path: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise invalid(f"{path}.{key}: expected a string, got {quote(value)}.", f"{path}.{key}")
    return value
