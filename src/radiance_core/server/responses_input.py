"""The input items of ``/v1/responses``, made into the messages of a conversation.

reasoning ─┐
message   ─┼─ one assistant message, until anything else comes
function_call ─┘
function_call_output ── a tool's message
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from radiance_core.server.errors import invalid, quote, unsupported
from radiance_core.server.unknown_keys import Shape, UnknownKeys, only

_MESSAGE = only({"role", "content", "id", "status", "phase"})
_CALL = only({"id", "call_id", "name", "arguments", "status", "namespace"})
_OUTPUT = only({"id", "call_id", "output", "status"})
_REASONING = only({"id", "summary", "content", "encrypted_content", "status"})
_THOUGHT = Shape(only({"text"}))
_PART = only({"text", "refusal", "annotations", "logprobs"})
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_ROLES = ("system", "developer", "user", "assistant")


class InputReader:
    """Reads the items of one request in their order.

    Args:
        unknown: gathers keys that nothing reads.
    """

    def __init__(self, unknown: UnknownKeys) -> None:
        self._unknown = unknown
        self._messages: list[dict[str, Any]] = []
        self._turn: dict[str, Any] | None = None
        self._readers: dict[str, Callable[[Mapping[str, Any], str], None]] = {
            "message": self._message,
            "function_call": self._call,
            "function_call_output": self._output,
            "reasoning": self._reasoning,
        }

    def read(self, given: str | Sequence[Any], instructions: str | None) -> list[dict[str, Any]]:
        """Return the messages of a conversation.

        Raises: ``ApiError`` 400 naming the item that is malformed or not served.
        """
        if instructions:
            self._messages.append({"role": "system", "content": instructions})
        if isinstance(given, str):
            self._messages.append({"role": "user", "content": given})
            return self._messages
        if not given:
            raise invalid("input: expected text or at least one item, got an empty list.", "input")
        for place, item in enumerate(given):
            self._item(item, f"input[{place}]")
        return self._messages

    def _item(self, item: object, path: str) -> None:
        if not isinstance(item, Mapping):
            raise invalid(f"{path}: expected an object, got {quote(item)}.", path)
        kind = item.get("type")
        if kind is None and "role" in item:
            kind = "message"
        read = self._readers.get(kind) if isinstance(kind, str) else None
        if read is None:
            raise unsupported(
                f"{path}.type", f"items of type {quote(kind)} are not served; those of type "
                f"{', '.join(self._readers)} are",
            )  # fmt: skip
        read(item, path)

    def _message(self, item: Mapping[str, Any], path: str) -> None:
        self._unknown.note(item, _MESSAGE, path)
        role = item.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise invalid(
                f"{path}.role: expected one of {', '.join(_ROLES)}, got {quote(role)}.",
                f"{path}.role",
            )
        text = self._texts(item.get("content"), f"{path}.content")
        if role != "assistant":
            self._turn = None
            self._messages.append({"role": role, "content": text})
            return
        turn = self._assistant()
        if turn["content"] is not None or turn.get("tool_calls"):
            self._turn = None
            turn = self._assistant()
        turn["content"] = text

    def _call(self, item: Mapping[str, Any], path: str) -> None:
        self._unknown.note(item, _CALL, path)
        function = {
            "name": _string(item, "name", path),
            "arguments": _string(item, "arguments", path),
        }
        call = {"id": _string(item, "call_id", path), "type": "function", "function": function}
        self._assistant().setdefault("tool_calls", []).append(call)

    def _output(self, item: Mapping[str, Any], path: str) -> None:
        self._unknown.note(item, _OUTPUT, path)
        self._turn = None
        self._messages.append({
            "role": "tool",
            "tool_call_id": _string(item, "call_id", path),
            "content": self._texts(item.get("output"), f"{path}.output"),
        })  # fmt: skip

    def _reasoning(self, item: Mapping[str, Any], path: str) -> None:
        self._unknown.note(item, _REASONING, path)
        listed = item.get("content") or []
        if not isinstance(listed, list):
            raise invalid(f"{path}.content: expected a list of parts.", f"{path}.content")
        self._unknown.sweep(listed, _THOUGHT, f"{path}.content")
        text = "".join(_string(part, "text", f"{path}.content[{n}]")
                       for n, part in enumerate(listed))  # fmt: skip
        if not text:
            return
        if self._turn is not None and (self._turn["content"] or self._turn.get("tool_calls")):
            self._turn = None
        turn = self._assistant()
        turn["reasoning_content"] = turn.get("reasoning_content", "") + text

    def _assistant(self) -> dict[str, Any]:
        """Return the assistant's message that goes on, begun here when there is none."""
        if self._turn is None:
            self._turn = {"role": "assistant", "content": None}
            self._messages.append(self._turn)
        return self._turn

    def _texts(self, content: object, path: str) -> str:
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise invalid(f"{path}: expected text or a list of parts, got {quote(content)}.", path)
        return "".join(self._part(part, f"{path}[{n}]") for n, part in enumerate(content))

    def _part(self, part: object, path: str) -> str:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(part, Mapping) or not isinstance(kind, str):
            raise invalid(f"{path}: expected a part with a type, got {quote(part)}.", path)
        if kind not in _TEXTS:
            raise unsupported(path, f"this model reads text only, and {quote(kind)} is not text")
        self._unknown.note(part, _PART, path)
        return _string(part, _TEXTS[kind], path)


def _string(item: object, key: str, path: str) -> str:
    value = item.get(key) if isinstance(item, Mapping) else None
    if not isinstance(value, str):
        raise invalid(f"{path}.{key}: expected a string, got {quote(value)}.", f"{path}.{key}")
    return value
