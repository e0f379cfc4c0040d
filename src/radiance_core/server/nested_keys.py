"""The keys that the objects inside a chat or text request may have, object by object.

The other dialects read their objects into those of a chat request one by one, and note unknown keys
as they go; here one table says them all, for the whole body at once.
"""

from collections.abc import Collection, Mapping
from typing import Any

from radiance_core.server.requests import Message
from radiance_core.server.unknown_keys import Shape, UnknownKeys, only

STREAM_OPTIONS = frozenset({"include_usage", "include_obfuscation", "continuous_usage_stats"})
TOOL_FUNCTION = frozenset({"name", "description", "parameters", "strict"})
_FUNCTION = frozenset({"function"})
_NAME = Shape(frozenset({"name"}))
_CALLED = Shape(frozenset({"name", "arguments"}))
_PARTS = Shape(
    only({"text", "refusal", "annotations", "cache_control"}), kinds=frozenset({"text", "refusal"})
)
_MESSAGES = Shape(
    frozenset(Message.__struct_fields__),
    {
        "content": _PARTS,
        "tool_calls": Shape(only({"id", "index", "function"}), {"function": _CALLED}),
        "function_call": _CALLED,
    },
)
# What is of another type is refused as a whole.
_TOOLS = Shape(only(_FUNCTION), {"function": Shape(TOOL_FUNCTION)}, kinds=_FUNCTION)
_CHOSEN = Shape(only(_FUNCTION), {"function": _NAME}, kinds=_FUNCTION)
_CHOICE = Shape(
    only({"function", "allowed_tools"}),
    {
        "function": _NAME,
        "allowed_tools": Shape(frozenset({"mode", "tools"}), {"tools": _CHOSEN}),
    },
    kinds=frozenset({"function", "allowed_tools"}),
)
BODY: Mapping[str, Shape] = {
    "messages": _MESSAGES,
    "tools": _TOOLS,
    "tool_choice": _CHOICE,
    "stream_options": Shape(STREAM_OPTIONS),
}
"""By field of the body. What a constraint is made of is looked through where it is read."""


def unknown_inside(
    body: Mapping[str, Any], *, strict: bool, among: Collection[str] = tuple(BODY)
) -> list[str]:
    """Return where each unknown key inside the fields of a body comes first; they are ignored.

    Args:
        body: the request.
        strict: refuse them instead.
        among: the fields to look into.

    Raises: ``ApiError`` 400 for a near miss of a known key, and for more than would be named.
    """
    unknown = UnknownKeys(strict=strict)
    for name, shape in BODY.items():
        if name in among:
            unknown.sweep(body.get(name), shape, name)
    return unknown.paths
