"""The fields ``tools``, ``tool_choice`` and ``parallel_tool_calls``, read into one choice."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from radiance_core.chat_format.format import ChatFormat
from radiance_core.chat_format.tools import ChoiceMode, Tool, ToolChoice
from radiance_core.server.errors import ApiError, invalid, quote, unsupported
from radiance_core.server.nested_keys import TOOL_FUNCTION

MAX_TOOLS = 512
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_WORDS: dict[str, ChoiceMode] = {"none": "none", "auto": "auto", "required": "required"}


def read_choice(
    tools: Sequence[Any] | None,
    tool_choice: object,
    parallel: bool | None,
    form: ChatFormat,
) -> ToolChoice:
    """Return what an answer may do with the tools of a request.

    Args:
        tools: in OpenAI's form, as sent.
        tool_choice: a word or an object, as sent; None is ``auto`` where there are tools.
        parallel: ``parallel_tool_calls``; None allows several.
        form: of the model; one without calls refuses tools.

    Raises: ``ApiError`` 400 naming the tool, or saying why this model cannot call.
    """
    shown = read_tools(tools or ())
    mode, names = _read_mode(tool_choice, shown)
    if not shown:
        return ToolChoice()
    if form.tools is None:
        raise unsupported("tools", f"this model cannot be given tools: {form.why_no_tools}")
    usable = () if mode == "none" else shown
    if names is not None:
        usable = tuple(tool for tool in usable if tool.name in names)
    several = parallel is not False and form.tools.parallel and mode != "named"
    return ToolChoice(mode, shown, usable, several)


def read_tools(tools: Sequence[Any]) -> tuple[Tool, ...]:
    """Return the functions that a request offers."""
    if len(tools) > MAX_TOOLS:
        raise invalid(f"tools: expected at most {MAX_TOOLS}, got {len(tools)}.", "tools")
    read: dict[str, Tool] = {}
    for place, given in enumerate(tools):
        tool = _read_tool(given, f"tools[{place}]")
        if tool.name in read:
            path = f"tools[{place}].function.name"
            raise invalid(f"{path}: expected each name once, got {quote(tool.name)} twice.", path)
        read[tool.name] = tool
    return tuple(read.values())


def _read_tool(given: object, path: str) -> Tool:
    if not isinstance(given, Mapping):
        raise invalid(f"{path}: expected an object, got {quote(given)}.", path)
    kind = given.get("type")
    if kind != "function":
        raise _not_a_function(f"{path}.type", kind)
    function = given.get("function")
    if not isinstance(function, Mapping):
        raise invalid(f"{path}.function: expected an object.", f"{path}.function")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(
            f"{path}.function.name: expected 1 to 128 letters, digits, '_', '-' or '.', got "
            f"{quote(name)}.",
            f"{path}.function.name",
        )
    parameters = function.get("parameters")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        raise invalid(
            f"{path}.function.parameters: expected the JSON schema of an object, got "
            f"{quote(parameters)}.",
            f"{path}.function.parameters",
        )
    # Templates print a description without asking, and differ in how they write none.
    told = {key: function[key] for key in function if key in TOOL_FUNCTION}
    told["parameters"] = {**parameters}
    told.setdefault("description", "")
    told["parameters"].setdefault("type", "object")
    told["parameters"].setdefault("properties", {})
    return Tool(name, parameters, {"type": "function", "function": told})


def _read_mode(choice: object, shown: Sequence[Tool]) -> tuple[ChoiceMode, frozenset[str] | None]:
    """Return the mode, and the names that it is limited to."""
    if choice is None:
        return "auto", None
    if isinstance(choice, str):
        if choice not in _WORDS:
            raise invalid(
                f"tool_choice: expected {', '.join(_WORDS)} or an object, got {quote(choice)}.",
                "tool_choice",
            )
        if choice == "required" and not shown:
            raise invalid("tool_choice: expected tools with it, got none.", "tool_choice")
        return _WORDS[choice], None
    if not isinstance(choice, Mapping):
        raise invalid(f"tool_choice: expected a word or an object, got {quote(choice)}.",
                      "tool_choice")  # fmt: skip
    kind = choice.get("type")
    if kind == "function":
        return "named", frozenset({_named(choice, "tool_choice", shown)})
    if kind == "allowed_tools":
        return _allowed(choice.get("allowed_tools"), shown)
    raise _not_a_function("tool_choice.type", kind)


def _allowed(given: object, shown: Sequence[Tool]) -> tuple[ChoiceMode, frozenset[str]]:
    path = "tool_choice.allowed_tools"
    if not isinstance(given, Mapping) or not isinstance(given.get("tools"), list):
        raise invalid(f"{path}: expected an object with mode and tools.", path)
    mode = given.get("mode")
    if mode not in ("auto", "required"):  # may be unhashable
        raise invalid(f"{path}.mode: expected auto or required, got {quote(mode)}.", f"{path}.mode")
    names = frozenset(
        _named(item, f"{path}.tools[{place}]", shown) for place, item in enumerate(given["tools"])
    )
    if not names:
        raise invalid(f"{path}.tools: expected at least one tool, got none.", f"{path}.tools")
    return _WORDS[str(mode)], names


def _named(given: object, path: str, shown: Sequence[Tool]) -> str:
    """Return the name of the offered tool that a choice refers to."""
    if not isinstance(given, Mapping) or given.get("type") != "function":
        raise _not_a_function(
            f"{path}.type", given.get("type") if isinstance(given, Mapping) else None
        )
    function = given.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    names = [tool.name for tool in shown]
    if name not in names:
        raise invalid(
            f"{path}.function.name: expected one of the tools ({', '.join(names) or 'none'}), got "
            f"{quote(name)}.",
            f"{path}.function.name",
        )
    return str(name)


def _not_a_function(path: str, kind: object) -> ApiError:
    if kind is None:
        return invalid(f"{path}: expected function, got none.", path)
    return unsupported(path, f"tools of type {quote(kind)} are not served; functions are")
