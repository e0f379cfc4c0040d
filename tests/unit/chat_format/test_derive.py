"""What is found out from chat templates: how calls are written, and thoughts."""

import json
import time

import pytest
from processor_time import least
from unit.chat_format.families import FAMILIES, SPECIAL, template
from unit.chat_format.reading import read
from unit.chat_format.vocabulary import Bytes, taken

from radiance_core.chat_format.format import ReasoningFormat
from radiance_core.chat_format.grammar import answer_grammar
from radiance_core.chat_format.messages import for_template
from radiance_core.chat_format.parser import AnswerParser
from radiance_core.chat_format.tools import Tool, ToolChoice
from radiance_core.text.template_process import RENDER_SECONDS

ANY = {"type": "object"}
VALUES = {
    "text": 'two\nlines, a "quote" & a <b>',
    "count": 3,
    "share": 0.5,
    "yes": True,
    "list": [1, "two", {"three": None}],
}
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"}, "count": {"type": "integer"}, "share": {"type": "number"},
        "yes": {"type": "boolean"}, "list": {"type": "array"},
    },
}  # fmt: skip
TOOLS = (Tool("look_up", SCHEMA), Tool("get.time", SCHEMA))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_told_by_its_template(name, formats):
    """The way of writing calls is derived, and has the name of a known one that is the same."""
    form, _ = formats[name]
    assert form.tools is not None, form.why_no_tools
    assert form.tools.name == name
    assert form.tools.parallel == (name != "llama3-json")
    assert form.short_ids == (name == "mistral-list")
    assert form.arguments_as_text == (name == "deepseek-fenced")
    assert form.source == "template"


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_template_writes_is_read_and_allowed(name, formats):
    """Calls that the template writes are parsed into the same calls, and the grammar takes them."""
    form, chat = formats[name]
    calls = [("look_up", VALUES)]
    if form.tools.parallel:
        calls += [("get.time", {"text": "x", "yes": False}), ("look_up", {})]
    text = written(form, chat, calls)
    found = read(form, TOOLS, [text], inside=False)
    assert [(call, json.loads(arguments)) for call, arguments in found.calls] == calls, text
    assert found.content == ""
    vocabulary = Bytes(SPECIAL)
    schemas = {tool.name: SCHEMA for tool in TOOLS}
    for mode, before in (("auto", ""), ("auto", "I look.\n"), ("required", "")):
        if before and form.tools.is_bare:
            continue
        choice = ToolChoice(mode, TOOLS, TOOLS)
        grammar = answer_grammar(form, choice, schemas, inside_reasoning=False)
        assert taken(grammar, before + text, vocabulary) == "whole", (mode, text, grammar)
    none = answer_grammar(form, ToolChoice("none", TOOLS), schemas, inside_reasoning=False)
    assert taken(none, text, vocabulary).startswith("refused"), text
    assert taken(none, "No call.", vocabulary) == "whole"


def written(form, chat, calls):
    """Return the text of an answer as the template writes it in a conversation."""
    listed = [
        {"id": f"qid00000{n}", "type": "function",
         "function": {"name": name, "arguments": json.dumps(arguments)}}
        for n, (name, arguments) in enumerate(calls)
    ]  # fmt: skip
    messages = [{"role": "user", "content": "q"},
                {"role": "assistant", "content": "", "tool_calls": listed}]  # fmt: skip
    text = chat.render(for_template(messages, form), add_generation_prompt=False)
    return text.rpartition("<|turn|>assistant\n")[2].rstrip().removesuffix("<|end|>").strip()


def test_thoughts_are_told_by_their_marks(formats, deriving):
    """Marks around thoughts are found where they are written, taken off, or opened with."""
    think = ReasoningFormat("<think>", "</think>")
    assert formats["hermes"][0].reasoning == think
    assert formats["qwen3-coder"][0].reasoning == ReasoningFormat("<think>", "</think>", True)
    assert formats["glm"][0].reasoning is None
    one = "{{- '' }}"
    taken_off = template(one).replace(
        "message.content or ''", "(message.content or '').split('</think>')[-1]"
    )
    assert deriving(taken_off)[0].reasoning == think
    opened = template(one, opened="<think>\n") + "{# </think> #}"
    assert deriving(opened)[0].reasoning == ReasoningFormat("<think>", "</think>", True)
    special = (*SPECIAL, "<|START_THINKING|>", "<|END_THINKING|>")
    marked = "<|START_THINKING|>{{ message.reasoning }}<|END_THINKING|>"
    written = template(one, thoughts=f"{{%- if message.reasoning %}}{marked}{{% endif %}}")
    found = deriving(written, special)[0]
    assert found.reasoning == ReasoningFormat(
        "<|START_THINKING|>", "<|END_THINKING|>", is_special=True
    )
    assert set(found.special) == {"<|START_THINKING|>", "<|END_THINKING|>"}


def test_marks_of_messages_are_no_marks_of_thoughts(deriving):
    """Where an answer's text has the same mark before it, it does not enclose thoughts."""
    channels = template(
        "{{- '' }}",
        thoughts="{%- if message.reasoning %}<|turn|>x<|say|>{{ message.reasoning }}<|stop|>"
        "{% endif %}<|say|>",
    )
    assert deriving(channels)[0].reasoning is None


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (template("{{- call.name }}").replace("{%- if tools %}", "{%- if false %}"),
         "its chat template does not mention tools"),
        (template("{{- call.name }}").replace("{%- if tools %}",
                                              "{%- if tools %}{{ raise_exception('no') }}"),
         "its chat template refuses a conversation with tools"),
        (template("{{- '' }}"), "its chat template does not write the calls of earlier answers"),
        (template("{{- raise_exception('no') }}"),
         "its chat template refuses answers with calls"),
        (template("{{- call.name + ' ' }}{{- call.arguments | tojson }}"),
         "its calls begin with no mark"),
        (template("{{- 'Do: ' + call.name + ' ' }}{{- call.arguments | tojson }}"),
         "its calls begin with 'Do:', which any text may hold"),
        (template("{{- '<c>{\"n\\\\u0061me\": \"' + call.name + '\", \"a\": ' }}"
                  "{{- call.arguments | tojson }}{{- '}</c>' }}"),
         "its calls are written in a way that is not understood"),
        (template("{{- '<c>' + call.name }}{%- for k, v in call.arguments.items() %}"
                  "{{- ' ' + k + ' ' ~ v }}{%- endfor %}"),
         "its calls are written in a way that is not understood"),
        (template("{{- '<c>' + call.name }}{%- for k, v in call.arguments.items() %}"
                  "{{- '<k>' + k + '</k><v>' + v + '</v>' if v is string else '' }}{%- endfor %}"
                  "{{- '</c>' }}"),
         "its calls leave out arguments that are no text"),
    ],
)  # fmt: skip
def test_a_template_that_is_not_understood_says_why(source, why, deriving):
    """Without a format there is a reason in words, and the model still chats."""
    form, _ = deriving(source)
    assert form.tools is None
    assert form.why_no_tools == why


def test_special_tokens_among_the_marks_are_known(formats):
    """Only those special tokens are listed that stand in the format's own texts."""
    assert set(formats["mistral"][0].special) == {"[TOOL_CALLS]", "[ARGS]"}
    assert formats["hermes"][0].special == {}
    parser = AnswerParser(formats["mistral"][0], TOOLS)
    assert parser.num_calls == 0


def test_a_template_without_end_costs_one_limit(deriving):
    """The first probe that takes too long is the last: start-up waits for the limit once."""
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    took: list[float] = []
    # At the best of a few: on a busy machine starting the process takes longer.
    while len(took) < 5 and min(took, default=99.0) >= 3 * RENDER_SECONDS:
        started = time.monotonic()
        form, _ = deriving(
            template("{{- '' }}").replace("{%- if tools %}", endless + "{%- if tools %}")
        )
        took.append(time.monotonic() - started)
    assert min(took) < 3 * RENDER_SECONDS
    assert form.why_no_tools == "its chat template takes too long"
    assert (form.tools, form.reasoning) == (None, None)


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "{" * 100_000, "</think" * 14_000, "<" * 100_000, '{"a":' * 20_000]
)
def test_odd_long_templates_are_looked_at_in_time(text, deriving):
    """Long runs of whatever marks are made of cost no more than moments."""
    one = "{{- '<c>' + call.name + '>' }}{{- call.arguments | tojson }}{{- '</c>' }}"
    source = template(one, before=text, thoughts="{{- message.reasoning }}")
    form, _ = deriving(source)
    assert form.reasoning is None
    assert least(lambda: deriving(source), 5) < 5
    raw = "{% raw %}" + text + "{% endraw %}"
    assert least(lambda: deriving(raw), 5) < 5
