"""Stop strings: the stream is the text cut at the earliest stop, with no more held than needed."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radiance_core.text.errors import StopError
from radiance_core.text.stop import StopMatcher

LETTERS = st.text("abX\u00e9", max_size=40)
STOPS = st.lists(st.text("abX\u00e9", min_size=1, max_size=5), max_size=4)


def cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Cut a complete text at the stop that begins first; the shorter of two that begin there."""
    for begin in range(len(text)):
        for stop in sorted(stops, key=len):
            if text.startswith(stop, begin):
                return text[:begin], stop
    return text, None


@settings(max_examples=1500, deadline=None)
@given(LETTERS, STOPS, st.lists(st.integers(0, 40), max_size=12))
def test_any_chunking_gives_the_cut(text: str, stops: list[str], places: list[int]) -> None:
    """However a text arrives, what is sent is the text cut at its earliest stop string."""
    bounds = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    matcher = StopMatcher(stops)
    sent, matched = "", None
    for begin, end in itertools.pairwise(bounds):
        fed = matcher.feed(text[begin:end])
        sent, matched = sent + fed.text, matched or fed.stop
    last = matcher.flush()
    assert (sent + last.text, matched or last.stop) == cut(text, stops)


@settings(max_examples=1000, deadline=None)
@given(LETTERS, STOPS)
def test_holds_back_only_what_may_become_a_stop(text: str, stops: list[str]) -> None:
    """Fed letter by letter, what is held is the longest end that begins some stop string."""
    matcher = StopMatcher(stops)
    sent = ""
    for index, letter in enumerate(text, 1):
        fed = matcher.feed(letter)
        sent += fed.text
        if fed.stop is not None:
            break
        ends = [text[begin:index] for begin in range(index)]
        held = [end for end in ends if any(stop.startswith(end) and stop != end for stop in stops)]
        assert len(sent) == index - max(map(len, held), default=0)


def test_no_stops_hold_nothing() -> None:
    """Without stop strings every delta passes at once."""
    assert StopMatcher([]).feed("abc").text == "abc"


def test_nothing_comes_after_a_match() -> None:
    """After a match every further delta is dropped, and the match is still known."""
    matcher = StopMatcher(["</s>", "END"])
    assert matcher.feed("x EN").text == "x "
    fed = matcher.feed("D y </s>")
    assert (fed.text, fed.stop) == ("", "END")
    assert matcher.feed("more").text == ""
    assert matcher.flush().text == ""
    assert matcher.matched == "END"


def test_waits_for_the_one_that_begins_earlier() -> None:
    """A complete stop string waits while another that begins before it may still come about."""
    matcher = StopMatcher(["bc", "abcd"])
    assert matcher.feed("xabc").text == "x"
    assert matcher.feed("d").stop == "abcd"
    matcher = StopMatcher(["bc", "abcd"])
    assert matcher.feed("xabc").text == "x"
    fed = matcher.feed("e")
    assert (fed.text, fed.stop) == ("a", "bc")


@pytest.mark.parametrize(
    ("stops", "text"),
    [
        (["a"] * 17, "stop: expected at most 16 strings, got 17; send fewer."),
        (["a", ""], r"stop\[1\]: expected 1 to 256 characters, got 0; leave it out"),
        (["b" * 257], r"stop\[0\]: expected 1 to 256 characters, got 257"),
    ],
)
def test_unusable_lists(stops: list[str], text: str) -> None:
    """An empty or too long entry, or too many, is refused with its place and size."""
    with pytest.raises(StopError, match=text):
        StopMatcher(stops)
