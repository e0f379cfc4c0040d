"""A conversation with calls and thoughts, as a model's chat template reads it."""

import hashlib
import json
import re
import secrets
import string
from collections.abc import Mapping, Sequence
from typing import Any

from radiance_core.chat_format.format import ChatFormat

_LETTERS = string.ascii_letters + string.digits
_SHORT = re.compile(r"[A-Za-z0-9]{9}")

Messages = Sequence[Mapping[str, Any]]


def new_call_id(form: ChatFormat) -> str:
    """Return an id for a call of an answer, unlike any other."""
    length = 9 if form.short_ids else 24
    drawn = "".join(secrets.choice(_LETTERS) for _ in range(length))
    return drawn if form.short_ids else f"call_{drawn}"


def for_template(messages: Messages, form: ChatFormat) -> list[dict[str, Any]]:
    """Return messages in OpenAI's form as the model's template takes them.

    Arguments, which are JSON text in a request, become objects unless the template writes text.
    Ids are shortened where it takes only short ones; equal ids stay equal. A tool's message gets
    the name of the function whose call it answers. Thoughts go by both of their names.
    """
    names: dict[str, str] = {}
    made = []
    for message in messages:
        read = dict(message)
        if read.get("tool_calls"):
            read["tool_calls"] = [_call(call, form, names) for call in read["tool_calls"]]
        if isinstance(answered := read.get("tool_call_id"), str):
            if answered in names:
                read.setdefault("name", names[answered])
            read["tool_call_id"] = _id(answered, form)
        thoughts = read.get("reasoning_content") or read.get("reasoning")
        if thoughts:
            read["reasoning"] = read["reasoning_content"] = thoughts
        made.append(read)
    return made


def _call(call: Mapping[str, Any], form: ChatFormat, names: dict[str, str]) -> dict[str, Any]:
    function = call["function"]
    names[call["id"]] = function["name"]
    arguments = function.get("arguments") or "{}"
    if form.arguments_as_text:
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
    elif isinstance(arguments, str):
        arguments = _object(arguments)
    made = {"name": function["name"], "arguments": arguments}
    return {"id": _id(call["id"], form), "type": "function", "function": made}


def _object(text: str) -> Any:
    """Return the object that ``text`` holds, the text itself where it holds none."""
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        return text  # an answer that was cut short comes back like this
    return held if isinstance(held, dict) else text


def _id(given: str, form: ChatFormat) -> str:
    if not form.short_ids or _SHORT.fullmatch(given):
        return given
    digest = hashlib.sha256(given.encode("utf-8", "replace")).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:9])
