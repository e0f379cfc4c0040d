"""Bands: edges where constraints name values, one answer inside, nothing left over."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from radiance_abi import Constraint, div, eq, ge, isin, le
from radiance_core.resolve.bands import cut, fill_derived, refusal

ranged = st.builds(
    Constraint, st.just("M"), st.sampled_from(["eq", "le", "ge", "div"]), st.integers(0, 40)
)


@given(st.lists(ranged, max_size=6), st.integers(1, 40))
def test_bands_cover_the_range_and_have_one_answer(where: list[Constraint], largest: int) -> None:
    """Bands ascend without gaps from 1 to the largest; inside one, eq, le and ge do not change."""
    bands = cut(where, "M", largest)
    assert [v for low, high in bands for v in range(low, high + 1)] == list(range(1, largest + 1))
    for low, high in bands:
        for c in where:
            if c.op != "div":
                assert len({c.holds(v) for v in range(low, high + 1)}) == 1


@given(st.lists(ranged, max_size=6), st.integers(1, 40))
def test_no_edge_without_a_reason(where: list[Constraint], largest: int) -> None:
    """Two neighbouring bands differ in the answer of some constraint; div makes no edge."""
    bands = cut(where, "M", largest)
    for (_, high), (low, _) in pairwise(bands):
        assert any(c.op != "div" and c.holds(high) != c.holds(low) for c in where)


def test_edges() -> None:
    """Eq makes a band of its own value, le one that ends at it, ge one that begins at it."""
    assert cut([eq("M", 4)], "M", 9) == [(1, 3), (4, 4), (5, 9)]
    assert cut([le("M", 4)], "M", 9) == [(1, 4), (5, 9)]
    assert cut([ge("M", 4)], "M", 9) == [(1, 3), (4, 9)]
    assert cut([eq("M", 1)], "M", 1) == [(1, 1)]
    assert cut([eq("M", 40), le("M", 9), div("M", 4)], "M", 9) == [(1, 9)]
    assert cut([isin("M", "a"), eq("n", 4)], "M", 9) == [(1, 9)]
    assert cut([eq("M", 4)], None, 1) == [(1, 1)]


def test_refusals_say_which_constraint() -> None:
    """The first that does not hold is named with the value that it met."""
    none: frozenset[str] = frozenset()
    assert refusal([eq("n", 8)], {"n": 8}, "M", (1, 4), none) is None
    assert refusal([eq("n", 8), eq("n", 4)], {"n": 8}, "M", (1, 4), none) == "n=4 not met by n=8"
    assert refusal([le("M", 3)], {}, "M", (4, 9), none) == "M<=3 not met by M 4..9"
    assert refusal([div("n", 3)], {"n": 8}, "M", (1, 1), none) == "n multiple of 3 not met by n=8"
    assert refusal([isin("w", "a b")], {"w": "c"}, "M", (1, 1), none) == "w in {a,b} not met by w=c"


def test_an_absent_key_never_matches() -> None:
    """A constraint on a param that the node lacks refuses, whatever it says; floats never match."""
    for c in (eq("k", 0), le("k", 9), ge("k", 0), div("k", 1), isin("k", "a")):
        assert refusal([c], {"n": 8}, "M", (1, 1), frozenset()) == f"{c} not met by k=absent"
    assert refusal([eq("eps", 1)], {"eps": 1.0}, "M", (1, 1), frozenset()) is not None


def test_a_multiple_holds_only_for_one_value() -> None:
    """A multiple of the ranged param cannot be promised for a band of several values."""
    assert refusal([div("M", 4)], {}, "M", (4, 8), frozenset()) is not None
    assert refusal([div("M", 4)], {}, "M", (8, 8), frozenset()) is None


def test_derived_params_are_filled_in() -> None:
    """What the caller leaves open is taken from the winner: eq's value, in's first word."""
    derived = frozenset({"size", "kind"})
    where = [eq("size", 32), isin("kind", "bf16 f32")]
    assert refusal(where, {"n": 1}, "M", (1, 1), derived) is None
    assert fill_derived(where, {"n": 1}, derived) == {"n": 1, "size": 32, "kind": "bf16"}
    assert fill_derived(where, {"size": 16}, derived) == {"size": 16, "kind": "bf16"}
    assert refusal(where, {"size": 16}, "M", (1, 1), derived) == "size=32 not met by size=16"
