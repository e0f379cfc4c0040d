"""Stop strings end the content of an answer and nothing else, however the answer arrives."""

import json
import random

import pytest
from unit.chat_format.reading import Read, collect, read
from unit.chat_format.test_parser import GOLDEN, TOOLS, form

from radiance_core.chat_format.content_stops import ContentStops
from radiance_core.chat_format.format import ChatFormat
from radiance_core.chat_format.parser import AnswerParser
from radiance_core.text.stop import StopMatcher

CALL = '<tool_call>{"name": "f", "arguments": {"text": "city END x"}}</tool_call>'
SIGNS = 'abc {}"<>:\n'


def stopped(known, pieces, stops, *, cut=False, tools=TOOLS):
    """Return what comes of an answer that arrives in pieces, the stop, and where it was found."""
    reader = ContentStops(AnswerParser(known, tools), stops)
    events, seen = [], 0
    for piece in pieces:
        seen += len(piece)
        stop = reader.feed(piece)
        events += reader.take()
        if stop is not None:
            return collect(events), stop, seen
    stop = reader.finish(cut=cut)
    events += reader.take()
    return collect(events), stop, seen


@pytest.mark.parametrize(("name", "text", "expected"), GOLDEN)
def test_what_stands_in_no_content_stops_nothing(name, text, expected):
    """Every piece of a text that its content lacks is passed over, at any cut."""
    rng = random.Random()
    for _ in range(40):
        at = rng.randrange(len(text))
        stop = text[at : at + rng.randrange(1, 6)]
        if stop in expected.content:
            continue
        assert stopped(form(name), rng.choice([[text], text]), [stop])[:2] == (expected, None), stop


def test_content_is_cut_where_a_stop_string_begins():
    """After thoughts and before calls: the earliest in the content, and nothing comes after it."""
    text = f"<think>city END</think>I look END here. END{CALL}"
    for pieces in ([text], text):
        found, stop, seen = stopped(form("hermes"), pieces, ["city", "END", "nowhere"])
        assert found == Read("I look ", "city END")
        assert stop == "END"
    assert seen == text.index("END here") + len("END")  # letter by letter: not one letter late
    found, stop, _ = stopped(form("hermes"), f"{CALL}after END", ["city", "END"])
    assert (found.content, found.ended, stop) == ("after ", [0], "END")


def test_a_call_parts_stretches_of_content():
    """What a call stands between is no stop string, and what was held comes before the call."""
    found, stop, _ = stopped(form("hermes"), f"one EN{CALL}D two", ["END", "Dx"])
    assert (found.content, found.ended, stop) == ("one END two", [0], None)
    reader = ContentStops(AnswerParser(form("hermes"), TOOLS), ["END"])
    reader.feed("one EN" + CALL)
    kinds = [type(event).__name__ for event in reader.take()]
    assert kinds[:2] == ["Content", "CallBegin"]


def test_no_more_is_held_than_could_stop():
    """Of content, only what could become a stop string or a mark waits."""
    reader = ContentStops(AnswerParser(form("hermes"), TOOLS), ["END"])
    for text, told in (("word E", "word "), ("x", "Ex"), ("EN", ""), ("d.", "ENd.")):
        assert reader.feed(text) is None
        assert collect(reader.take()).content == told


def test_random_answers_cut_anywhere_end_the_same():
    """3,000 answers: each part the same in any pieces; content as a matcher of its own cuts it."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    known = form("hermes")
    for _ in range(3000):
        words = "".join(rng.choice(SIGNS) for _ in range(rng.randrange(12)))
        thought = f"<think>{words[::-1]}</think>" if rng.random() < 0.5 else ""
        text = thought + words + rng.choice(["", CALL, "<tool_ca"])
        stops = ["".join(rng.choice(SIGNS) for _ in range(rng.randrange(1, 4))) for _ in range(3)]
        cut = rng.random() < 0.5
        whole = read(known, TOOLS, [text], cut=cut)
        plain = StopMatcher(stops)
        fed = plain.feed(whole.content)
        content = fed.text + plain.flush().text
        found, stop, _ = stopped(known, [text], stops, cut=cut)
        assert (found.content, stop) == (content, plain.matched), (seed, text, stops)
        assert found.reasoning == whole.reasoning
        assert found.calls == (whole.calls if stop is None else []), (seed, text, stops)
        at = rng.randrange(len(text) + 1)
        for pieces in (text, [text[:at], text[at:]]):
            assert stopped(known, pieces, stops, cut=cut)[:2] == (found, stop), (seed, text, stops)


def test_content_that_may_not_stop_yet_is_passed_on():
    """A stop string before the least number of tokens neither ends nor begins anything."""
    reader = ContentStops(AnswerParser(form("hermes"), TOOLS), ["END"])
    assert reader.feed("END E", may_stop=False) is None
    assert reader.feed("ND. END") == "END"
    assert collect(reader.take()).content == "END END. "


def test_stop_tokens_pass_in_thoughts_and_calls_only():
    """Whether a token ends the text depends on where it stands; an unknown one always may."""
    reader = ContentStops(AnswerParser(form("hermes"), TOOLS), [], {7})
    ends = {}
    text = f"<think>why</think>So: {CALL} then"
    for place, char in enumerate(text):
        reader.feed(char)
        ends[place] = not reader.passes(7)
        assert not reader.passes(8)
    assert not ends[text.index("why")]
    assert ends[text.index("So")]
    assert not any(ends[n] for n in range(text.index('{"name'), text.index("</tool_call>") - 1))
    assert ends[text.index("then")]


def test_thoughts_that_the_prompt_began_are_no_content():
    """Inside from the start, a stop token waits for the closing mark."""
    parser = AnswerParser(ChatFormat(form("hermes").reasoning), (), inside_reasoning=True)
    reader = ContentStops(parser, ["x"], {7})
    assert reader.passes(7)
    assert reader.feed("x</think>") is None
    assert not reader.passes(7)
    assert reader.feed("a x") == "x"


def test_arguments_stay_json_whatever_stops():
    """With every letter of its arguments a stop string the call is whole."""
    letters = sorted(set(json.dumps({"text": "city END x"})))
    found, stop, _ = stopped(form("hermes"), CALL, letters[:16])
    assert (found.ended, stop) == ([0], None)
    assert json.loads(found.calls[0][1]) == {"text": "city END x"}
