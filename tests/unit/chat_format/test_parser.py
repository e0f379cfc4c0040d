"""Answers taken apart: what comes of them, however they are cut into pieces."""

import json
import random

import pytest
from unit.chat_format.reading import Read, read

from radiance_core.chat_format.format import ChatFormat, ReasoningFormat
from radiance_core.chat_format.named import FORMATS
from radiance_core.chat_format.tools import Tool

THINK = ReasoningFormat("<think>", "</think>")
PARAMETERS = {
    "properties": {"text": {"type": "string"}, "n": {"type": "integer"},
                   "list": {"type": "array"}, "maybe": {"type": ["string", "null"]}},
}  # fmt: skip
TOOLS = (Tool("f", PARAMETERS), Tool("a.b-c_1", PARAMETERS))


def form(name: str) -> ChatFormat:
    return ChatFormat(THINK, FORMATS[name])


FENCED = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
ENDED = "\n```<｜tool▁call▁end｜>"
GOLDEN = [
    ("hermes", "Hello there.", Read("Hello there.")),
    ("hermes", " leading and trailing \n", Read(" leading and trailing \n")),
    ("hermes", "<think>\nwhy\n</think>\n\nso", Read("so", "why")),
    ("hermes", "say <think> and </think> as words", Read("say <think> and </think> as words")),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>',
     Read(calls=[("f", '{"n": 1}')], ended=[0])),
    ("hermes", 'I look.\n\n<tool_call>{"name":"f","arguments":{}}</tool_call>\n<tool_call>'
     '{"name": "a.b-c_1", "arguments": {"text": "}]\\"{"}}</tool_call>\n',
     Read("I look.", "", [("f", "{}"), ("a.b-c_1", '{"text": "}]\\"{"}')], [0, 1])),
    ("hermes", '<think>hm</think><tool_call>{"arguments": {"n": 2}, "name": "f"}</tool_call>done',
     Read("done", "hm", [("f", '{"n": 2}')], [0])),
    ("hermes", '<tool_call>{"name": "f"}</tool_call>', Read(calls=[("f", "{}")], ended=[0])),
    ("hermes", '<tool_call>{"name": "f", "arguments": null}</tool_call>',
     Read(calls=[("f", "{}")], ended=[0])),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"n\\": 3}"}</tool_call>',
     Read(calls=[("f", '{"n": 3}')], ended=[0])),
    ("hermes", "a <tool_call> is a mark", Read("a<tool_call> is a mark")),
    ("hermes", '<tool_call>{"name": "g", "arguments": {}}</tool_call>',
     Read('<tool_call>{"name": "g", "arguments": {}}</tool_call>')),
    ("hermes", '<tool_call><tool_call>{"name": "f", "arguments": {}}</tool_call>',
     Read("<tool_call>", "", [("f", "{}")], [0])),
    ("hermes", "a < b, x <tool", Read("a < b, x <tool")),
    ("llama3-json", '{"name": "f", "parameters": {"n": 1}}',
     Read(calls=[("f", '{"n": 1}')], ended=[0])),
    ("llama3-json", '  {"type": "function", "name": "f", "parameters": {}}\n',
     Read(calls=[("f", "{}")], ended=[0])),
    ("llama3-json", '{"answer": {"name": "f"}}', Read('{"answer": {"name": "f"}}')),
    ("llama3-json", 'See {"name": "f", "parameters": {}}',
     Read('See {"name": "f", "parameters": {}}')),
    ("mistral-list", '[TOOL_CALLS][{"name": "f", "arguments": {"n": 1}, "id": "123456789"}, '
     '{"name": "f", "arguments": {}}]', Read(calls=[("f", '{"n": 1}'), ("f", "{}")], ended=[0, 1])),
    ("mistral", 'Yes.[TOOL_CALLS]f[ARGS]{"n": 1}[TOOL_CALLS]a.b-c_1[ARGS]{}',
     Read("Yes.", "", [("f", '{"n": 1}'), ("a.b-c_1", "{}")], [0, 1])),
    ("functionary", '<function=f>{"n": 1}</function><function=f>{}</function>',
     Read(calls=[("f", '{"n": 1}'), ("f", "{}")], ended=[0, 1])),
    ("qwen3-coder", "<tool_call>\n<function=f>\n<parameter=text>\n 1\n2 \n\n</parameter>\n"
     "<parameter=n>\n12\n</parameter>\n<parameter=list>\n[1, {}]\n</parameter>\n"
     "<parameter=maybe>\nnull\n</parameter>\n<parameter=free>\nTrue\n</parameter>\n"
     "</function>\n</tool_call>",
     Read(calls=[("f", '{"text": " 1\\n2 \\n", "n": 12, "list": [1, {}], "maybe": null, '
                  '"free": true}')], ended=[0])),
    ("qwen3-coder", "<tool_call><function=f><parameter=n>many</parameter></function></tool_call>",
     Read(calls=[("f", '{"n": "many"}')], ended=[0])),
    ("glm", "<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>5 </x</arg_value>\n</tool_call>"
     "<tool_call>f</tool_call>", Read(calls=[("f", '{"text": "5 </x"}'), ("f", "{}")],
                                      ended=[0, 1])),
    ("deepseek-fenced",
     f'<｜tool▁calls▁begin｜>{FENCED}{{"n": 1}}{ENDED}\n{FENCED}{{}}{ENDED}<｜tool▁calls▁end｜>',
     Read(calls=[("f", '{"n": 1}'), ("f", "{}")], ended=[0, 1])),
    ("granite-list", '<|tool_call|>[{"name": "f", "arguments": {}}]',
     Read(calls=[("f", "{}")], ended=[0])),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "expected"), GOLDEN)
def test_golden_answers_whole_and_in_pieces(name, text, expected):
    """One answer gives the same parts whole, at each of its cuts, letter by letter, at random."""
    rng = random.Random()
    assert read(form(name), TOOLS, [text]) == expected
    assert read(form(name), TOOLS, text) == expected
    for cut in range(len(text)):
        assert read(form(name), TOOLS, [text[:cut], text[cut:]]) == expected, cut
    for _ in range(20):
        cuts = sorted(rng.sample(range(len(text) + 1), min(5, len(text))))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert read(form(name), TOOLS, pieces) == expected, cuts


@pytest.mark.parametrize(("name", "text", "expected"), [row for row in GOLDEN if row[2].calls])
def test_a_cut_answer_is_a_beginning_of_the_whole(name, text, expected):
    """Wherever the limit falls, no markup is text, and each part begins as it does in the whole."""
    for length in range(len(text)):
        part = read(form(name), TOOLS, [text[:length]], cut=True)
        assert expected.content.startswith(part.content.rstrip()), (length, part)
        assert expected.reasoning.startswith(part.reasoning)
        assert len(part.calls) <= len(expected.calls)
        for (called, arguments), (whole, all_) in zip(part.calls, expected.calls, strict=False):
            assert called == whole
            assert all_.startswith(arguments), (length, part)
        for index in part.ended:
            json.loads(part.calls[index][1])


MULTI = [
    (
        "qwen3-coder",
        "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=f>",
    ),
    (
        "deepseek",
        "Yes <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
    ),
]


@pytest.mark.parametrize(
    ("name", "text"),
    [*((name, text) for name, text, found in GOLDEN if found.calls), *MULTI],
)
def test_a_cut_within_a_mark_leaves_nothing_of_it(name, text):
    """Wherever the limit falls, within a character too, content gets no mark and no lone space."""
    data = text.encode()
    whole = read(form(name), TOOLS, [text])
    for length in range(len(data)):
        part = data[:length].decode(errors="replace")
        found = read(form(name), TOOLS, [part], cut=True)
        assert read(form(name), TOOLS, part, cut=True) == found, (length, part)
        assert whole.content.startswith(found.content.rstrip()), (length, part)
        assert found.content.strip() or not found.calls or not found.content, (length, part)


def test_without_tools_marks_of_calls_are_text():
    """A request without tools gets its text as written, marks, space and all."""
    text = ' <tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n'
    assert read(form("hermes"), (), [text]) == Read(text)
    assert read(ChatFormat(), (), ["<think>", text]) == Read("<think>" + text)


def test_thoughts_that_the_prompt_began_have_no_opening_mark():
    """Inside from the start: text up to the closing mark is thought; without one, all of it."""
    found = read(form("hermes"), TOOLS, "well\n</think>\n\nSo <be it.", inside=True)
    assert found == Read("So <be it.", "well")
    assert read(form("hermes"), TOOLS, ["hm <tool_call>"], inside=True).reasoning
    opened = ChatFormat(ReasoningFormat("<think>", "</think>", starts_open=True))
    assert read(opened, (), ["a</think>b"]) == Read("b", "a")
    assert read(opened, (), ["a</think>b"], inside=False) == Read("a</think>b")


def test_marks_that_are_special_tokens_count_wherever_they_stand():
    """A special token cannot be ordinary text: in the middle too it opens thoughts."""
    special = ChatFormat(ReasoningFormat("<|b|>", "<|e|>", is_special=True))
    found = read(special, (), "one<|b|>two<|e|>three<|e|>four")
    assert (found.content, found.reasoning) == ("onethreefour", "two")


FRAGMENTS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "f"', '{"name": "g"',
    ', "arguments": ', "{", "}", "[", "]", '"', "\\", "\n", " ", "word", "é🙂", "[TOOL_CALLS]",
    "[ARGS]", "f", "<function=f>", "</function>", "<parameter=n>", "</parameter>", "<arg_key>",
    "</arg_key>", "<arg_value>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "null", "1",
    "<![CDATA[", "]]>", "\0", ":", ",",
]  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_no_text_raises_and_none_is_lost(name):
    """Random texts of marks and their pieces: nothing raises, cuts do not matter, text is kept.

    10,000 texts for each of the formats. Where no call began and nothing was thought, the content
    is the text but for white space.
    """
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    known = form(name)
    for _ in range(10_000):
        text = "".join(_fragment(rng) for _ in range(rng.randrange(1, 9)))
        whole = read(known, TOOLS, [text])
        at = rng.randrange(len(text) + 1)
        assert read(known, TOOLS, [text[:at], text[at:]]) == whole, (seed, text, at)
        read(known, TOOLS, [text], cut=True)
        if not whole.calls and not text.lstrip().startswith("<think>"):
            assert whole.content.split() == text.split() or _bare(whole.content) == _bare(text), (
                seed, text,
            )  # fmt: skip


def _fragment(rng: random.Random) -> str:
    fragment = rng.choice(FRAGMENTS)
    return fragment if rng.random() < 0.8 else fragment[: rng.randrange(len(fragment) + 1)]


def _bare(text: str) -> str:
    return "".join(text.split())


def test_time_is_linear_in_the_text():
    """Ten times the text takes no more than some twenty times the time, also for half marks."""
    import time

    for unit in ("word ", "<tool_cal ", '<tool_call>{"name": "f", "arguments": {"text": "x"', "<"):
        took = []
        for count in (2_000, 20_000):
            text = unit * (count // len(unit))
            best = 1e9
            for _ in range(3):
                start = time.process_time()
                read(form("hermes"), TOOLS, [text])
                best = min(best, time.process_time() - start)
            took.append(best)
        assert took[1] < 25 * max(took[0], 1e-4), (unit, took)
