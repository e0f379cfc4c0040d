"""Grammars of answers: what they take, what they refuse, and why a schema is not served."""

import json
import re

import pytest
from unit.chat_format.families import SPECIAL
from unit.chat_format.vocabulary import Bytes, taken

from radiance_core.chat_format.format import ChatFormat, ReasoningFormat
from radiance_core.chat_format.grammar import answer_grammar
from radiance_core.chat_format.named import FORMATS
from radiance_core.chat_format.tagged_grammar import SchemaNotServed
from radiance_core.chat_format.tools import Tool, ToolChoice
from radiance_core.constrain.grammar import translate

VOCABULARY = Bytes(SPECIAL)
THINK = ReasoningFormat("<think>", "</think>")
STRICT = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "word": {"type": "string", "enum": ["yes", "no"]},
                   "note": {"type": "string", "maxLength": 3}, "rest": {"type": "string"},
                   "code": {"type": "string", "pattern": "^[a-z]/[0-9]$"}},
    "required": ["n"],
    "additionalProperties": False,
}  # fmt: skip


def grammar(name="hermes", mode="auto", *, schema=STRICT, parallel=True, inside=False,
            reasoning=None, content=False):  # fmt: skip
    tools = (Tool("f", schema), Tool("g", schema))
    usable = () if mode == "none" else tools[:1] if mode == "named" else tools
    form = ChatFormat(reasoning, FORMATS[name])
    choice = ToolChoice(mode, tools, usable, parallel) if mode else ToolChoice()
    schemas = {tool.name: schema for tool in tools}
    made = answer_grammar(form, choice, schemas, inside_reasoning=inside, has_content=content)
    if not content or made is None:
        return made
    spec = json.dumps({"answer": made, "content": ["json_schema", '{"type": "array"}']})
    return translate("answer", spec).text


def call(name="f", arguments='{"n": 1}'):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def check(made, whole=(), unfinished=(), refused=()):
    for text in whole:
        assert taken(made, text, VOCABULARY) == "whole", (text, made)
    for text in unfinished:
        assert taken(made, text, VOCABULARY) == "open", (text, made)
    for text in refused:
        assert taken(made, text, VOCABULARY).startswith("refused"), (text, made)


def test_auto_is_free_until_a_call_begins():
    """Text is free; a call that began is whole, of an offered tool, and by its schema."""
    check(
        grammar(),
        ["", "any text < at <tool_ all", call(), "I look." + call() + "\n" + call("g")],
        ["<tool_call>", "x" + call()[:-3]],
        [
            call("h"), call(arguments="{}"), call(arguments='{"n": "1"}'),
            call(arguments='{"n": 1, "more": 2}'), "<tool_call> no", call() + " and more",
        ],
    )  # fmt: skip


def test_due_calls_leave_no_other_way():
    """Required is one call or more and nothing else; named only that call; parallel one at most."""
    check(grammar(mode="required"), [call(), call() + "\n" + call("g")], [""], ["text", " "])
    check(grammar(mode="required", parallel=False), [call("g")], [], [call() + "\n" + call()])
    check(grammar(mode="named", parallel=False), [call()], [""], [call("g")])
    check(grammar(parallel=False), ["text", call()], [], [call() + "\n" + call()])


@pytest.mark.parametrize("name", FORMATS)
def test_none_cannot_begin_a_call(name):
    """Where calls may not come their mark cannot be written, and text is free otherwise."""
    made = grammar(name, "none")
    begin = FORMATS[name].opening.strip() or '{"name": "f"'
    check(made, ["", "Some [text] <with> {marks} of its own", "{}"], [], [begin, begin + "f"])


def test_thoughts_come_first_and_are_free():
    """Thoughts may hold what looks like a call; the rules hold for what follows them."""
    made = grammar(mode="required", reasoning=THINK)
    thought = "<think>perhaps <tool_call> x\n</think>\n\n"
    check(made, [call(), thought + call()], [thought, "<think>"], [thought + "text"])
    made = grammar(mode="required", reasoning=THINK, inside=True)
    check(made, ["hm</think>" + call()], ["hm", call()], ["hm</think>text"])
    check(grammar(reasoning=THINK), ["text", thought + "text", thought + call()], [thought[:-14]],
          [thought + call("h")])  # fmt: skip
    check(grammar(mode="none", reasoning=THINK), [thought + "text"], [], [thought + call()])


def test_text_may_have_a_form_of_its_own():
    """A form of the content holds after thoughts and beside calls; nothing to say gives none."""
    check(grammar(content=True), ["[1, 2]", call()], [""], ["text"])
    made = grammar(mode="", reasoning=THINK, content=True)
    check(made, ["[]", "<think>so</think>\n[]"], ["<think>so</think>"], ["<think>so</think>no"])
    assert grammar(mode="", content=True) is None
    assert grammar(mode="", reasoning=THINK) is None


def tagged(*arguments):
    pairs = "".join(f"\n<parameter={k}>\n{v}\n</parameter>" for k, v in arguments)
    return f"<tool_call>\n<function=f>{pairs}\n</function>\n</tool_call>"


def test_tagged_arguments_keep_to_their_schema():
    """Names, presence, types, values, lengths and patterns hold for arguments in marks."""
    check(
        grammar("qwen3-coder"),
        [
            tagged(("n", "1")),
            tagged(("n", "-5"), ("word", "no"), ("note", "a<b"), ("rest", "x\n</para> y")),
            tagged(("n", "1"), ("rest", "")), tagged(("n", "1"), ("code", "a/1")),
        ],
        ["<tool_call>"],
        [
            tagged(), tagged(("word", "yes")), tagged(("n", "one")), tagged(("n", "1"), ("x", "1")),
            tagged(("n", "1"), ("word", "maybe")), tagged(("n", "1"), ("note", "long")),
            tagged(("n", "1"), ("code", "a/b")),
        ],
    )  # fmt: skip


def test_tagged_arguments_without_a_schema_are_free():
    """A tool that names no properties takes any, one that forbids all takes none."""
    check(grammar("qwen3-coder", schema={}), [tagged(), tagged(("any", "thing"), ("b", "1"))])
    closed = {"type": "object", "additionalProperties": False}
    check(grammar("qwen3-coder", schema=closed), [tagged()], [], [tagged(("a", "1"))])
    odd = {"properties": {"a": False, "b": {"const": None}, "c": {"$ref": "#/$defs/d"}},
           "required": ["e"], "$defs": {"d": {"type": "boolean"}}}  # fmt: skip
    check(grammar("qwen3-coder", schema=odd),
          [tagged(("b", "null"), ("c", "true"), ("e", "anything"))], [],
          [tagged(("e", "x"), ("a", "1")), tagged(("c", "no"), ("e", "x"))])  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "path", "words"),
    [
        ({"minProperties": 1}, "minProperties",
         "minProperties: this model's way of writing calls cannot keep to it"),
        ({"properties": {"a": {"type": "string", "format": "date"}}}, "properties.a.format",
         "a.format: this model's way of writing texts cannot keep to it"),
    ],
)  # fmt: skip
def test_what_marks_cannot_keep_to_is_refused(schema, path, words):
    """A keyword that raw texts cannot follow is refused by its path, not dropped."""
    with pytest.raises(SchemaNotServed, match=re.escape(words)) as caught:
        grammar("qwen3-coder", schema=schema)
    assert caught.value.path == path
