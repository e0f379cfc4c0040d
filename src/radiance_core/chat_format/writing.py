"""Tools, calls and results as plain text, for a chat template that knows of none."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from radiance_core.chat_format.format import ID_HOLE, ToolFormat

Message = Mapping[str, Any]


def without_tools(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], form: ToolFormat
) -> list[dict[str, Any]]:
    """Return a conversation in which tools, calls and results are said in words.

    Tools go into the system message, calls into the text of the answers that made them, and
    results into messages of the user.
    """
    said: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            text = f"The call of {message.get('name', 'a function')} gave:\n{message['content']}"
            if said and said[-1].get("_result"):
                said[-1]["content"] += f"\n\n{text}"
            else:
                said.append({"role": "user", "content": text, "_result": True})
        elif message.get("tool_calls"):
            said.append(_with_calls(message, form))
        else:
            said.append(dict(message))
    for message in said:
        message.pop("_result", None)
    return _told(said, tools, form) if tools else said


def _with_calls(message: Message, form: ToolFormat) -> dict[str, Any]:
    """Return an answer whose calls are part of its text."""
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    text = write_calls(message["tool_calls"], form)
    before = message.get("content") or ""
    return {**kept, "content": f"{before}\n{text}" if before else text}


def _told(
    messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]], form: ToolFormat
) -> list[dict[str, Any]]:
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    example = {"id": "0" * 9, "function": {"name": "name", "arguments": {"argument": "value"}}}
    text = (
        f"You may call these functions, each given with the JSON schema of its arguments:\n{listed}"
        f"\n\nTo call one, write:\n{write_calls([example], form)}"
    )
    if messages and messages[0]["role"] in {"system", "developer"}:
        first = messages[0]
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def write_calls(calls: Sequence[Mapping[str, Any]], form: ToolFormat) -> str:
    """Return calls, with their arguments as objects, in a format."""
    written = [_write(call, form) for call in calls]
    text = form.section_open + form.separator.join(written) + form.section_close
    return text.strip()


def _write(call: Mapping[str, Any], form: ToolFormat) -> str:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    if isinstance(arguments, str) or form.values != "tagged":
        body = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
    else:
        body = "".join(_tagged(key, value, form) for key, value in arguments.items())
    parts = (
        form.call_open, form.object_open, name, form.name_end, body, form.object_close,
        form.call_close,
    )  # fmt: skip
    return "".join(parts).replace(ID_HOLE, str(call["id"]))


def _tagged(key: str, value: Any, form: ToolFormat) -> str:
    is_text = isinstance(value, str)
    close = form.key_close if is_text or not form.other_key_close else form.other_key_close
    text = value if is_text else json.dumps(value, ensure_ascii=False)
    return f"{form.key_open}{key}{close}{text}{form.value_close}"
