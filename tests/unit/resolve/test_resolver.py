"""Choosing kernels: order of libraries, priority inside one, layouts, and why nothing serves."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiance_abi import Constraint, KernelLibrary, affine, div, eq, ge, le, plain
from radiance_abi.kernels import AS_IS
from radiance_core.resolve.report import graph_text, misses_text, selection_text
from radiance_core.resolve.resolver import Resolver
from radiance_core.resolve.result import Miss, ResolvedNode

from .nodes import PLAIN, gives, kernel, library, node

LARGEST = {"TOKENS": 32}
Q8 = affine("i8", ("f16", 1, 32))


def table(r: ResolvedNode) -> list[tuple[int, int, str]]:
    """Bands as (lower, upper, library.kernel)."""
    return [(b.lower, b.upper, f"{b.library.name}.{b.kernel.name}") for b in r.bands]


def resolve(*libraries: KernelLibrary, **given: object) -> tuple[ResolvedNode, list[Miss]]:
    return Resolver(libraries, LARGEST).resolve(node(**given))  # type: ignore[arg-type]


def reasons(misses: list[Miss]) -> list[str]:
    return [f"{r.library}.{r.kernel}: {r.reason}" for m in misses for r in m.refusals]


def test_the_first_library_that_serves_wins() -> None:
    """Order of libraries goes before priority and before order of rows."""
    a = library("a", kernel("slow", priority=-5))
    b = library("b", kernel("fast", priority=100))
    assert table(resolve(a, b)[0]) == [(1, 32, "a.slow")]
    assert table(resolve(b, a)[0]) == [(1, 32, "b.fast")]


def test_priority_ranks_inside_a_library() -> None:
    """The highest priority goes first, and equal ones in the order of declaration."""
    a = library("a", kernel("one"), kernel("two", priority=2), kernel("three", priority=2))
    assert table(resolve(a)[0]) == [(1, 32, "a.two")]


def test_bands_may_have_different_libraries() -> None:
    """A library that serves few rows leaves the others to the next one."""
    a = library("a", kernel("few", le("M", 4)), kernel("one", eq("M", 1), priority=1))
    b = library("b", kernel("any"))
    assert table(resolve(a, b)[0]) == [(1, 1, "a.one"), (2, 4, "a.few"), (5, 32, "b.any")]


def test_a_reference_is_no_answer_beside_fast_libraries() -> None:
    """An architecture is told of a fusion only when a fast library has it, or none is there."""
    slow = library("slow", kernel("any"), reference=True)
    few, other = library("few", kernel("k", le("M", 4))), library("other", kernel("k", op="rope"))
    assert Resolver([library("a", kernel("any")), slow], LARGEST).serves(node())
    assert Resolver([slow], LARGEST).serves(node())
    assert not Resolver([other, slow], LARGEST).serves(node())
    assert not Resolver([few, slow], LARGEST).serves(node())
    assert not Resolver([few], LARGEST).serves(node())


rows = st.builds(
    lambda c, p: (c, p),
    st.lists(
        st.builds(
            Constraint, st.just("M"), st.sampled_from(["eq", "le", "ge"]), st.integers(1, 32)
        ),
        max_size=2,
    ),
    st.integers(-2, 2),
)
libraries = st.lists(st.lists(rows, max_size=4), max_size=3)


def made(spec: list[list[tuple[list[Constraint], int]]]) -> list[KernelLibrary]:
    return [
        library(
            f"lib{i}",
            *(kernel(f"k{j}", *c, priority=p) for j, (c, p) in enumerate(mine)),
        )
        for i, mine in enumerate(spec)
    ]


@given(libraries)
def test_each_value_gets_the_first_row_that_takes_it(
    spec: list[list[tuple[list[Constraint], int]]],
) -> None:
    """For every row count the table names the row that a plain search in order would find."""
    libs = made(spec)
    resolved, misses = resolve(*libs)
    served = {v: k for low, high, k in table(resolved) for v in range(low, high + 1)}
    missed = {v for m in misses for v in range(m.lower, m.upper + 1)}
    for value in range(1, 33):
        expected = None
        for lib in libs:
            ranked = sorted(lib.kernels, key=lambda k: -k.priority)
            fit = next((k for k in ranked if all(c.holds(value) for c in k.where)), None)
            if fit is not None:
                expected = f"{lib.name}.{fit.name}"
                break
        assert served.get(value) == expected
        assert (value in missed) == (expected is None)


@given(libraries, st.randoms(use_true_random=False))
def test_a_second_run_resolves_alike(
    spec: list[list[tuple[list[Constraint], int]]], shuffle: random.Random
) -> None:
    """Which library was installed or made first does not matter, only the order that is asked."""
    order = list(range(len(spec)))
    shuffle.shuffle(order)
    late: dict[int, KernelLibrary] = {}
    for i in order:
        late[i] = made(spec)[i]
    again = [late[i] for i in range(len(spec))]
    assert table(resolve(*made(spec))[0]) == table(resolve(*again)[0])


def test_answers_are_kept() -> None:
    """One geometry is searched once, and each node gets its own name in a miss."""
    asked = []

    def layout(*args: object) -> object:
        asked.append(args)
        return gives("own")()

    resolver = Resolver([library("a", kernel("k", layout=layout))], LARGEST)  # type: ignore[arg-type]
    first = resolver.resolve(node(weight=PLAIN, name="one"))[0]
    second = resolver.resolve(node(weight=PLAIN, name="two"))[0]
    assert len(asked) == 1
    assert (first.node.name, second.node.name) == ("one", "two")
    assert Resolver([], LARGEST).serves(node()) is False
    assert resolver.serves(node(weight=PLAIN)) is True


def test_encodings_are_asked_for() -> None:
    """A row without a layout hook reads plain weights; one that declines is no candidate."""
    _, misses = resolve(
        library("a", kernel("plain_only")),
        library("b", kernel("declines", layout=lambda *_: None)),
        weight=Q8,
    )
    assert reasons(misses) == [
        f"a.plain_only: reads plain weights only, w is {Q8}",
        f"b.declines: does not read encoding {Q8}",
    ]
    resolved, misses = resolve(library("a", kernel("k", layout=gives(AS_IS))), weight=PLAIN)
    assert not misses
    assert resolved.bands[0].layouts == {1: None}
    assert resolve(library("a", kernel("k", layout=gives(AS_IS))), weight=Q8)[1]


def test_a_layout_hook_that_raises_refuses_its_row_only() -> None:
    """A fault in one row's hook is a refusal with its cause; the next candidate serves."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("by design")

    resolved, misses = resolve(
        library("a", kernel("bad", layout=broken), kernel("good", layout=gives("own"))), weight=Q8
    )
    assert not misses
    assert table(resolved) == [(1, 32, "a.good")]
    _, misses = resolve(library("a", kernel("bad", layout=broken)), weight=Q8)
    assert reasons(misses) == ["a.bad: layout of w failed: ZeroDivisionError: by design"]


def test_a_layout_is_asked_with_the_band_and_the_operand() -> None:
    """The hook sees the encoding, the extents, the upper bound of the band, and which operand."""
    asked = []

    def layout(*args: object) -> object:
        asked.append(args)
        return gives("own")()

    resolve(
        library("a", kernel("k", le("M", 4), layout=layout), kernel("l", layout=layout)), weight=Q8
    )  # type: ignore[arg-type]
    assert asked == [(Q8, (8,), {"n": 8, "M": m}, 1) for m in (4, 32)]


def test_bands_agree_on_what_is_stored() -> None:
    """A weight is stored once a node: a band that wants another arrangement is refused."""
    low = kernel("low", le("M", 4), layout=gives("rows"))
    _, misses = resolve(library("a", low, kernel("high", layout=gives("cols"))), weight=Q8)
    assert reasons(misses) == [
        "a.low: M<=4 not met by M 5..32",
        "a.high: asks for layout a.cols of w, a lower band for layout a.rows",
    ]
    _, misses = resolve(
        library("a", low), library("b", kernel("k", layout=gives("rows"))), weight=Q8
    )
    assert reasons(misses)[1] == "b.k: asks for layout b.rows of w, a lower band for layout a.rows"
    _, misses = resolve(library("a", low), library("b", kernel("k")), weight=PLAIN)
    assert reasons(misses)[1] == (
        "b.k: asks for the plane as it is of w, a lower band for layout a.rows"
    )
    other = kernel("high", layout=gives("rows", (4, 2)))
    _, misses = resolve(library("a", low, other), weight=Q8)
    assert (
        reasons(misses)[1] == "a.high: gives layout rows of w other extents than a lower band does"
    )
    resolved, misses = resolve(library("a", low, kernel("high", layout=gives("rows"))), weight=Q8)
    assert not misses
    assert table(resolved) == [(1, 4, "a.low"), (5, 32, "a.high")]
    plain_too = [library("a", kernel("low", le("M", 4))), library("b", kernel("k"))]
    assert not resolve(*plain_too, weight=PLAIN)[1]


def test_rows_for_a_device_are_no_candidates() -> None:
    """A plan for the host refuses rows that would run elsewhere."""
    _, misses = resolve(library("a", kernel("far", domain="device")))
    assert reasons(misses) == ["a.far: runs on a device, this plan is for the host"]


def test_all_misses_are_told_at_once() -> None:
    """The report has each geometry once with its band, and what refused each candidate there."""
    resolver = Resolver(
        [library("a", kernel("few", le("M", 4), eq("n", 8)), kernel("odd", div("n", 3)))], LARGEST
    )
    misses = [
        m
        for n in (node(name="first"), node(name="second"), node({"n": 6, "word": "x", "eps": 0.5}))
        for m in resolver.resolve(n)[1]
    ]
    lost = Miss("last", "mien", 1, 1, None, {"n": 8}, ())
    text = misses_text([*misses, lost])
    assert text == "\n".join(
        [
            "2 op geometries have no kernel:",
            "  mine: no kernel takes n=8 M 5..32 (first and 1 more)",
            "    a.few: M<=4 not met by M 5..32",
            "    a.odd: n multiple of 3 not met by n=8",
            "  mien: no kernel takes n=8 (last)",
            "    no loaded library has a row for it",
            "Name a library that serves them with --kernels, or install one.",
        ]
    )


def test_what_was_chosen_can_be_read() -> None:
    """The selection and the graph show the row of every band, with its layout."""
    libs = [
        library("a", kernel("few", le("M", 4), layout=gives("own"))),
        library("a2", kernel("never", ge("M", 99))),
    ]
    libs[0] = library("a", *libs[0].kernels, kernel("many", layout=gives("own")))
    resolver = Resolver(libs, LARGEST)
    nodes = [resolver.resolve(node(weight=Q8, name=n))[0] for n in ("one", "two")]
    assert selection_text(nodes).splitlines() == [
        "mine x2  n=8",
        "    M 1..4           a.few  layout own",
        "    M 5..32          a.many  layout own",
    ]
    graph = graph_text(nodes).splitlines()
    assert graph[0] == f"   0 mine(x[TOKENS,8]:f32, w[8]:{Q8})"
    assert graph[1].strip() == "n=8"
    assert graph[4].startswith("   1 mine(")


@pytest.mark.parametrize("encoding", [plain("f32"), plain("bf16"), Q8])
def test_weights_of_other_encodings_are_other_geometries(encoding: object) -> None:
    """An answer for one encoding is not reused for another."""

    def layout(enc: object, *_: object) -> object:
        return gives("own")() if enc == encoding else None

    resolver = Resolver([library("a", kernel("k", layout=layout))], LARGEST)  # type: ignore[arg-type]
    for other in (plain("f32"), plain("bf16"), Q8):
        assert resolver.serves(node(weight=other)) == (other == encoding)


def test_whole_numbers_are_no_weights_as_they_are() -> None:
    """A row without a layout of its own is not handed a type that it never said it reads."""
    _, misses = resolve(library("a", kernel("plain_only")), weight=plain("i64"))
    assert reasons(misses) == [
        "a.plain_only: reads f32, f16, bf16 weights as they are, w is i64",
    ]
