"""Joined strings are the list that they stand for."""

from hypothesis import given
from hypothesis import strategies as st

from radiance_core.model_files.joined_strings import JoinedStrings

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
MERGES = st.text("ab é", max_size=4)


def joined(strings: list[str]) -> JoinedStrings:
    return JoinedStrings("".join(f"{s}\0" for s in strings), len(strings))


@given(st.lists(TEXT, max_size=8), st.integers(-9, 9))
def test_it_reads_as_a_list(strings: list[str], at: int) -> None:
    """Length, items, slices, iteration, equality and the longest string are the list's."""
    held = joined(strings)
    assert len(held) == len(strings)
    assert list(held) == strings
    assert held == strings
    assert held == joined(strings)
    assert held != [*strings, "x"]
    assert held[at:] == strings[at:]
    if -len(strings) <= at < len(strings):
        assert held[at] == strings[at]
    assert held.longest_bytes == max((len(s.encode()) for s in strings), default=0)


@given(st.lists(MERGES, max_size=5))
def test_pairs_are_cut_at_the_only_blank(strings: list[str]) -> None:
    """Pairs come where every string has one blank inside; one that has not leaves none."""
    parts = [tuple(s.split(" ")) for s in strings]
    good = all(len(p) == 2 and all(p) for p in parts)
    assert joined(strings).pairs() == (parts if good else None)
