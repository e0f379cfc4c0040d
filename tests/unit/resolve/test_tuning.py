"""Choices for axes: which apply to what, which do not fit, and what resolving makes of them."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from radiance_abi import Axis, Kernel, KernelLibrary, Layout, le, plain
from radiance_abi.kernels import ABI_VERSION
from radiance_core.plan.sites import find_sites
from radiance_core.resolve.facts import graph_facts, tuning_facts
from radiance_core.resolve.report import graph_text, selection_text
from radiance_core.resolve.resolver import Resolver
from radiance_core.resolve.stage import Resolution
from radiance_core.resolve.tuning import (
    UNTUNED,
    Choice,
    Machine,
    Tuning,
    age_text,
    axes_of,
    facts,
    fit,
)

from .nodes import PLAIN, library, node

FILE = Path("/t/a.txt")
AXES = (Axis("ahead", (1, 2, 4), 2), Axis("piece", (8, 16), 8))
HERE = Machine("A Fast One", 2, {"a": "1.0"})
DAY = date(2026, 11, 30)


def tuned_kernel(name: str = "k", *where: Any, layout: Any = None) -> Kernel:
    return Kernel(op="mine", name=name, run=lambda _: None, where=where, axes=AXES, layout=layout)


def choice(**changed: Any) -> Choice:
    given: dict[str, Any] = {
        "row": ("mine", "a", "k"), "geometry": frozenset({"n=8"}), "ranged": "M",
        "band": (1, None), "values": {"ahead": 4}, "gain": 1.25, "day": DAY, "line": 7,
    } | changed  # fmt: skip
    return Choice(**given)


def tuning(*choices: Choice) -> Tuning:
    return Tuning(FILE, {("mine", "a", "k"): choices})


def resolver(made: Tuning, *kernels: Kernel) -> Resolver:
    return Resolver([library("a", *kernels)], {"TOKENS": 64}, made)


def test_a_band_takes_what_was_chosen_for_it() -> None:
    """The chosen value of one axis and the default of the other; without a choice, all defaults."""
    found, _ = resolver(tuning(choice()), tuned_kernel()).resolve(node())
    assert found.bands[0].axes == {"ahead": 4, "piece": 8}
    assert found.bands[0].choice == choice()
    found, _ = resolver(UNTUNED, tuned_kernel()).resolve(node())
    assert (found.bands[0].axes, found.bands[0].choice) == ({"ahead": 2, "piece": 8}, None)


@pytest.mark.parametrize(
    "other",
    [
        {"geometry": frozenset({"n=9"})},
        {"geometry": frozenset({"n=8", "eps=1e-05"})},
        {"geometry": frozenset({"n=8", "w:f32"})},
        {"band": (2, None)},
        {"band": (1, 63)},
    ],
)
def test_a_choice_for_something_else_is_not_taken(other: dict[str, Any]) -> None:
    """Params, encodings and a band that it covers whole have to be those of the node."""
    found, _ = resolver(tuning(choice(**other)), tuned_kernel()).resolve(node())
    assert found.bands[0].choice is None


def test_each_band_has_its_own_choice() -> None:
    """Two rows of one op, two choices: the band up to 4 and the rest."""
    made = Tuning(FILE, {
        ("mine", "a", "few"): [choice(row=("mine", "a", "few"), band=(1, 4))],
        ("mine", "a", "k"): [choice(band=(5, None), values={"piece": 16})],
    })  # fmt: skip
    found, _ = resolver(made, tuned_kernel("few", le("M", 4)), tuned_kernel()).resolve(node())
    assert [b.axes for b in found.bands] == [{"ahead": 4, "piece": 8}, {"ahead": 2, "piece": 16}]


def test_facts_are_params_and_encodings() -> None:
    """Floats are spelt so that they read back; a weight is named with its encoding."""
    one = node({"n": 8, "eps": 1e-5, "word": "neox"}, PLAIN)
    assert facts(one, one.params) == {"n=8", "eps=1e-05", "word=neox", "w:f32"}


def test_hooks_that_lay_weights_out_see_the_values() -> None:
    """The layout hook at resolve, and what relayout gets of a site, have every axis."""
    seen = []

    def layout(_e: object, _s: object, geometry: dict[str, Any], _o: int) -> Layout:
        seen.append(geometry)
        return Layout("mine", "f32", (8,))

    given = choice(geometry=frozenset({"n=8", "w:f32"}))
    made = resolver(tuning(given), tuned_kernel(layout=layout))
    found, _ = made.resolve(node(weight=PLAIN))
    assert seen == [{"n": 8, "M": 64, "ahead": 4, "piece": 8}]
    [site] = find_sites(Resolution(None, (found,), {})).values()  # type: ignore[arg-type]
    assert site.geometry == seen[0]


def test_reports_show_values_and_age() -> None:
    """The texts and the facts of the graph say the values, since when, and how much they gain."""
    day = date.today() - timedelta(days=3)
    found, _ = resolver(tuning(choice(day=day)), tuned_kernel()).resolve(node())
    for text in (graph_text([found]), selection_text([found])):
        assert "a.k  ahead=4 piece=8 (tuned 3 days ago, 1.25x)" in text
    [band] = graph_facts([found])["selections"][0]["bands"]  # type: ignore[index]
    assert (band["axes"], band["tuned"]) == ({"ahead": 4, "piece": 8}, day.isoformat())
    found, _ = resolver(UNTUNED, tuned_kernel()).resolve(node())
    assert graph_text([found]).endswith("a.k  ahead=2 piece=8 (defaults)")
    [band] = graph_facts([found])["selections"][0]["bands"]  # type: ignore[index]
    assert band["tuned"] is None


def test_nodes_with_other_values_are_told_apart() -> None:
    """Weights of another encoding may have another choice: /graph shows both."""
    given = choice(geometry=frozenset({"n=8", "w:f32"}))
    made = resolver(tuning(given), tuned_kernel())
    nodes = [made.resolve(node(weight=encoding))[0] for encoding in (PLAIN, plain("bf16"), PLAIN)]
    told = graph_facts(nodes)
    assert [n["selection"] for n in told["nodes"]] == [0, 1, 0]  # type: ignore[attr-defined]
    bands = [s["bands"][0] for s in told["selections"]]  # type: ignore[attr-defined]
    assert [band["axes"]["ahead"] for band in bands] == [4, 2]


def test_ages() -> None:
    """Days are counted; a day that has not come yet is told as one."""
    texts = [age_text(DAY, DAY + timedelta(days=n)) for n in (-1, 0, 1, 2, 400)]
    told = f"{DAY.isoformat()}, which has not come yet"
    assert texts == [told, "today", "1 day ago", "2 days ago", "400 days ago"]


def libraries(version: str = "1.0") -> list[KernelLibrary]:
    return [KernelLibrary("a", version=version, kernels=[tuned_kernel()])]


def test_what_fits_is_used() -> None:
    """Same machine, version and axes: no warning."""
    made = fit(HERE, [choice()], HERE, libraries(), FILE)
    assert (made.source, made.warnings) == (FILE, ())
    assert made.choices == {("mine", "a", "k"): [choice()]}
    assert axes_of(tuned_kernel(), made.of(("mine", "a", "k"), frozenset({"n=8"}), (1, 9))) == {
        "ahead": 4,
        "piece": 8,
    }


@pytest.mark.parametrize(
    ("here", "says"),
    [
        (
            Machine("Another", 2, {"a": "1.0"}),
            "/t/a.txt: made for processor A Fast One, this is Another; its 1 choice is not used. "
            "Run rad-tune here.",
        ),
        (
            Machine("A Fast One", 8, {"a": "1.0"}),
            "/t/a.txt: made for threads 2, this is 8; its 1 choice is not used. Run rad-tune here.",
        ),
        (
            Machine("A Fast One", 2, {"a": "1.0"}, ABI_VERSION + 1),
            f"/t/a.txt: made for abi {ABI_VERSION}, this is {ABI_VERSION + 1}; its 1 choice is "
            "not used. Run rad-tune here.",
        ),
        (
            Machine("A Fast One", 2, {"a": "1.1"}),
            "/t/a.txt: made with a 1.0, this is a 1.1; its 1 choice is not used. Run rad-tune "
            "again.",
        ),
    ],
)
def test_another_machine_or_version_is_named(here: Machine, says: str) -> None:
    """Nothing of the file is used, and the warning names what differs."""
    made = fit(HERE, [choice()], here, libraries(here.libraries["a"]), FILE)
    assert (dict(made.choices), made.warnings) == ({}, (says,))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"row": ("mine", "a", "gone")}, "a has no kernel gone for mine"),
        ({"values": {"behind": 1}}, "mine a.k has no axis behind"),
        ({"values": {"ahead": 3}}, "axis ahead of mine a.k: expected one of 1, 2, 4, got 3"),
    ],
)
def test_a_line_that_does_not_fit_is_named(other: dict[str, Any], says: str) -> None:
    """The other lines are used; this one is named with its number."""
    made = fit(HERE, [choice(**other), choice()], HERE, libraries(), FILE)
    assert made.warnings == (f"/t/a.txt:7: {says}; the line is not used.",)
    assert made.choices == {("mine", "a", "k"): [choice()]}


def test_libraries_that_are_not_loaded_are_passed_over() -> None:
    """Choices for a library that --kernels leaves out, or that is not there, are only counted."""
    made_for = Machine("A Fast One", 2, {"a": "1.0", "b": "2"})
    others = [choice(row=("mine", name, "k")) for name in ("c", "b", "c")]
    made = fit(made_for, others, HERE, libraries(), FILE)
    assert (dict(made.choices), made.warnings) == ({}, ())
    assert list(made.passed_over.items()) == [("b", 1), ("c", 2)]


def test_facts_of_choices_are_those_in_force() -> None:
    """The file by its name, each choice that serves once, and what of the file does not serve."""
    given = choice()
    unused = choice(geometry=frozenset({"n=9"}))
    made = Tuning(FILE, {given.row: [unused, given]}, ("w",), {"b": 2})
    nodes = [resolver(made, tuned_kernel()).resolve(node())[0] for _ in range(2)]
    told = tuning_facts(made, nodes)
    assert (told["file"], told["passed_over"], told["num_warnings"]) == ("a.txt", {"b": 2}, 1)
    assert told["choices"] == [
        {
            "op": "mine", "library": "a", "kernel": "k", "ranged": "M", "lower": 1, "upper": None,
            "geometry": ["n=8"], "axes": {"ahead": 4}, "gain": 1.25, "tuned": DAY.isoformat(),
        }
    ]  # fmt: skip
    none = resolver(UNTUNED, tuned_kernel()).resolve(node())[0]
    told = tuning_facts(UNTUNED, [none])
    assert (told["file"], told["choices"]) == (None, [])
