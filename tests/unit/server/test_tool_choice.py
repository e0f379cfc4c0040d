"""The fields about tools: what they may say, and what is said of a mistake."""

import pytest

from radiance_core.chat_format.format import ChatFormat
from radiance_core.chat_format.named import FORMATS
from radiance_core.server.errors import ApiError
from radiance_core.server.tools import MAX_TOOLS, read_choice

FORM = ChatFormat(tools=FORMATS["hermes"])
F = {"type": "function", "function": {"name": "f"}}
G = {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}


def allowed(mode="auto", *tools):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


@pytest.mark.parametrize(
    ("tools", "choice", "parallel", "mode", "names", "several"),
    [
        (None, None, None, "none", "", True),
        ([], "auto", None, "none", "", True),
        ([F, G], None, None, "auto", "fg", True),
        ([F, G], "none", None, "none", "", True),
        ([F, G], "required", False, "required", "fg", False),
        ([F, G], F, None, "named", "f", False),
        ([F, G], allowed("required", G), True, "required", "g", True),
        ([F, G], allowed("auto", F, G), None, "auto", "fg", True),
    ],
)
def test_every_choice_there_is(tools, choice, parallel, mode, names, several):
    """Words, names and lists of allowed tools say what may be called; all tools are shown."""
    got = read_choice(tools, choice, parallel, FORM)
    assert (got.mode, "".join(tool.name for tool in got.callable)) == (mode, names)
    assert len(got.shown) == len(tools or ())
    assert got.parallel == several
    assert got.must_call == (mode in {"required", "named"})


def test_a_tool_without_parameters_is_shown_with_what_templates_go_through():
    """Templates read description and properties unasked; the model may give any arguments."""
    [tool] = read_choice([F], None, None, FORM).shown
    assert tool.parameters == {}
    assert tool.definition["function"] == {
        "name": "f", "description": "", "parameters": {"type": "object", "properties": {}},
    }  # fmt: skip


def test_a_family_without_parallel_calls_makes_one():
    """Where the template takes one call at a time, one is made."""
    form = ChatFormat(tools=FORMATS["llama3-json"])
    assert not read_choice([F], "required", True, form).parallel


@pytest.mark.parametrize(
    ("tools", "choice", "param", "words"),
    [
        ([5], None, "tools[0]", "tools[0]: expected an object, got '5'."),
        ([{}], None, "tools[0].type", "tools[0].type: expected function, got none."),
        ([F, {"type": "mcp"}], None, "tools[1].type",
         "tools[1].type: tools of type 'mcp' are not served; functions are."),
        ([{"type": "function"}], None, "tools[0].function",
         "tools[0].function: expected an object."),
        ([{"type": "function", "function": {"name": "a b"}}], None, "tools[0].function.name",
         "tools[0].function.name: expected 1 to 128 letters, digits, '_', '-' or '.', got 'a b'."),
        ([{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}], None,
         "tools[0].function.parameters",
         "tools[0].function.parameters: expected the JSON schema of an object, got"),
        ([F, F], None, "tools[1].function.name",
         "tools[1].function.name: expected each name once, got 'f' twice."),
        ([F] * (MAX_TOOLS + 1), None, "tools", "tools: expected at most 512, got 513."),
        ([F], "any", "tool_choice",
         "tool_choice: expected none, auto, required or an object, got 'any'."),
        ([F], 5, "tool_choice", "tool_choice: expected a word or an object, got '5'."),
        ([], "required", "tool_choice", "tool_choice: expected tools with it, got none."),
        ([F], {}, "tool_choice.type", "tool_choice.type: expected function, got none."),
        ([F], {"type": "custom"}, "tool_choice.type", "tools of type 'custom' are not served"),
        ([F], G, "tool_choice.function.name",
         "tool_choice.function.name: expected one of the tools (f), got 'g'."),
        (None, F, "tool_choice.function.name", "expected one of the tools (none), got 'f'."),
        ([F], {"type": "allowed_tools"}, "tool_choice.allowed_tools",
         "tool_choice.allowed_tools: expected an object with mode and tools."),
        ([F], allowed("none", F), "tool_choice.allowed_tools.mode",
         "tool_choice.allowed_tools.mode: expected auto or required, got 'none'."),
        ([F], allowed("auto"), "tool_choice.allowed_tools.tools",
         "tool_choice.allowed_tools.tools: expected at least one tool, got none."),
        ([F], allowed("auto", 5), "tool_choice.allowed_tools.tools[0].type",
         "tool_choice.allowed_tools.tools[0].type: expected function, got none."),
    ],
)  # fmt: skip
def test_a_mistake_is_named(tools, choice, param, words):
    """Each mistake is a 400 with its path, what was expected and what came."""
    with pytest.raises(ApiError) as caught:
        read_choice(tools, choice, None, FORM)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert words in caught.value.message


def test_a_model_that_cannot_call_says_why():
    """Tools for a model whose format is not known are refused with the reason."""
    with pytest.raises(ApiError) as caught:
        read_choice([F], "none", None, ChatFormat(why_no_tools="its template is silent"))
    assert caught.value.message == (
        "tools: this model cannot be given tools: its template is silent."
    )
    assert (caught.value.param, caught.value.code) == ("tools", "unsupported_parameter")
