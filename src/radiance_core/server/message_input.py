"""Messages of a conversation as clients send them, checked and put into one form."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from radiance_core.server.errors import ApiError, invalid, quote, unsupported
from radiance_core.server.requests import Message

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_OWN = {
    "tool_calls": "assistant", "function_call": "assistant", "reasoning": "assistant",
    "reasoning_content": "assistant", "tool_call_id": "tool",
}  # fmt: skip
"""The role whose messages alone have a field."""


def read_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages in OpenAI's present form: known roles, text content, calls with ids.

    A ``function_call`` becomes a call and a ``function`` message its tool's; thoughts go by both
    of their names.

    Raises: ``ApiError`` 400 naming the message and its field.
    """
    if not messages:
        raise invalid("messages: expected at least one message, got none.", "messages")
    reader = _Reader()
    return [reader.read(message, f"messages[{place}]") for place, message in enumerate(messages)]


class _Reader:
    """Reads messages in their order; keeps which calls were made."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._last_by_name: dict[str, str] = {}

    def read(self, message: Message, path: str) -> dict[str, Any]:
        """Return one message."""
        if message.role not in _ROLES:
            raise _wrong_role(message.role, path)
        for field, role in _OWN.items():
            if getattr(message, field) and message.role != role:
                raise invalid(
                    f"{path}.{field}: expected in messages of the {role} only, got it in one of "
                    f"the {message.role}.",
                    f"{path}.{field}",
                )
        if message.audio:
            raise unsupported(f"{path}.audio", "this server reads text only")
        if message.role == "assistant":
            return self._assistant(message, path)
        if message.role in {"tool", "function"}:
            return self._result(message, path)
        read: dict[str, Any] = {"role": message.role, "content": _needed_text(message, path)}
        if message.name is not None:
            read["name"] = message.name
        return read

    def _assistant(self, message: Message, path: str) -> dict[str, Any]:
        calls = [
            self._call(call, f"{path}.tool_calls[{place}]")
            for place, call in enumerate(message.tool_calls or ())
        ]
        if message.function_call:
            calls.append(self._old_call(message.function_call, f"{path}.function_call"))
        reasoning = message.reasoning_content or message.reasoning
        text = message.refusal if message.content is None else _text(message, path)
        if text is None and not calls and not reasoning:
            raise invalid(f"{path}.content: expected text, got none.", f"{path}.content")
        read: dict[str, Any] = {"role": "assistant", "content": text or ""}
        if message.name is not None:
            read["name"] = message.name
        if reasoning:
            read["reasoning"] = read["reasoning_content"] = reasoning
        if calls:
            read["tool_calls"] = calls
        return read

    def _call(self, call: Mapping[str, Any], path: str) -> dict[str, Any]:
        kind = call.get("type", "function")
        if kind != "function":
            raise unsupported(f"{path}.type", f"calls of type {quote(kind)} are not served")
        id_ = call.get("id")
        if not isinstance(id_, str) or not id_:
            got = "none" if id_ is None else quote(id_)
            raise invalid(f"{path}.id: expected a text, got {got}.", f"{path}.id")
        return self._made(id_, call.get("function"), f"{path}.function")

    def _old_call(self, call: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Read the superseded field, whose one call has no id."""
        return self._made(f"call_{len(self._names)}", call, path)

    def _made(self, id_: str, function: object, path: str) -> dict[str, Any]:
        if not isinstance(function, Mapping):
            raise invalid(f"{path}: expected an object, got {quote(function)}.", path)
        name, arguments = function.get("name"), function.get("arguments", "{}")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise invalid(
                f"{path}.name: expected 1 to 128 letters, digits, '_', '-' or '.', got "
                f"{quote(name)}.",
                f"{path}.name",
            )
        if not isinstance(arguments, str | Mapping):
            raise invalid(
                f"{path}.arguments: expected JSON in a string, got {quote(arguments)}.",
                f"{path}.arguments",
            )
        self._names[id_] = name
        self._last_by_name[name] = id_
        function = {"name": name, "arguments": arguments}
        return {"id": id_, "type": "function", "function": function}

    def _result(self, message: Message, path: str) -> dict[str, Any]:
        """Read what a tool answered, by the call's id or, in the old form, by its name."""
        id_ = message.tool_call_id
        if message.role == "function":
            id_ = self._last_by_name.get(message.name or "")
        if id_ is None:
            field = "name" if message.role == "function" else "tool_call_id"
            got = quote(getattr(message, field)) if getattr(message, field) else "none"
            raise invalid(
                f"{path}.{field}: expected the call that this answers, got {got}.",
                f"{path}.{field}",
            )
        if id_ not in self._names:
            raise invalid(
                f"{path}.tool_call_id: expected the id of a call in an earlier message, got "
                f"{quote(id_)}.",
                f"{path}.tool_call_id",
            )
        read = {"role": "tool", "tool_call_id": id_, "content": _needed_text(message, path)}
        return {**read, "name": message.name or self._names[id_]}


def _wrong_role(role: str, path: str) -> ApiError:
    return invalid(
        f"{path}.role: expected one of {', '.join(_ROLES)}, got {quote(role)}.", f"{path}.role"
    )


def _needed_text(message: Message, path: str) -> str:
    if message.content is None:
        raise invalid(f"{path}.content: expected text, got none.", f"{path}.content")
    return _text(message, path)


def _text(message: Message, path: str) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    parts = content or ()
    return "".join(_part(part, f"{path}.content[{n}]") for n, part in enumerate(parts))


def _part(part: Mapping[str, Any], path: str) -> str:
    kind = part.get("type")
    if not isinstance(kind, str):
        raise unsupported(path, "it has no type" if kind is None else "its type is not a string")
    if kind not in {"text", "refusal"}:
        raise unsupported(path, f"this model reads text only, and {quote(kind)} is not text")
    text = part.get(kind)
    if not isinstance(text, str):
        raise invalid(f"{path}.{kind}: expected a string.", f"{path}.{kind}")
    return text
