"""The search over a bench that answers as it is told: what wins, what is kept, what is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import SimpleNamespace
from typing import Any

from radiance_abi import Axis, Kernel, KernelLibrary, le
from radiance_abi.kernels import Layout
from radiance_core.resolve.resolver import Resolver
from radiance_core.tune.places import Place, find_places, rows_within
from radiance_core.tune.report import found_lines, place_lines, summary
from radiance_core.tune.search import search

from ..resolve.nodes import PLAIN, library, node

AXES = (Axis("ahead", (1, 2, 4), 2), Axis("piece", (8, 16), 8))
ROUNDS = 12


def kernel(name: str, *where: Any, layout: Any = None) -> Kernel:
    return Kernel(op="mine", name=name, run=lambda _: None, where=where, axes=AXES, layout=layout)


def places(libraries: Sequence[KernelLibrary], weight: Any = None) -> list[Place]:
    largest = {"TOKENS": 64}
    nodes = [Resolver(libraries, largest).resolve(node(weight=weight))[0] for _ in range(3)]
    return find_places(nodes, largest)


@dataclass
class Told:
    """A bench in which a node takes ``cost(rows, values)``, the first race with luck for some."""

    cost: Any
    luck: Mapping[int, float] | None = None
    races: int = 0

    def scene(self, place: Place, rows: int) -> Any:
        if rows == 63:
            return None
        return SimpleNamespace(rows=rows, seconds=3e-5, num_nodes=3)

    def race(
        self, scene: Any, base: Mapping[str, int], others: Sequence[Mapping[str, int]], rounds: int
    ) -> list[list[float]]:
        self.races += 1
        luck = self.luck if self.luck and self.races <= 3 else {}
        found = []
        for values in others:
            lucky = luck.get(values["ahead"], 1.0)
            found.append([lucky * self.cost(scene.rows, base) / self.cost(scene.rows, values)])
        return [ratio * rounds for ratio in found]


def run(told: Told) -> Any:
    [place] = places([library("a", kernel("k"))])
    return search(told, place, ROUNDS, lambda _: None)  # type: ignore[arg-type]


def test_places_are_nodes_alike_by_band() -> None:
    """Three nodes of two bands are two places; rows lie inside each band."""
    found = places([library("a", kernel("few", le("M", 4)), kernel("k"))])
    assert [(p.band.kernel.name, p.rows, p.is_last, p.indices) for p in found] == [
        ("few", (1, 4), False, [0, 1, 2]),
        ("k", (5, 8, 64), True, [0, 1, 2]),
    ]
    assert rows_within(1, 1) == (1,)
    assert rows_within(9, 40) == (9, 40)
    today = date.today()
    assert found[0].choice({"ahead": 4, "piece": 8}, 1.5, today).values == {"ahead": 4}
    assert [p.choice({}, 1, today).band for p in found] == [(1, 4), (5, None)]


def test_kernels_without_axes_have_no_place() -> None:
    """There is nothing to measure of them."""
    plain = Kernel(op="mine", name="k", run=lambda _: None)
    assert places([library("a", plain)]) == []


def test_the_best_value_of_each_axis_is_found() -> None:
    """An axis at a time, the second from the best of the first; the gain is of all together."""
    found = run(Told(lambda _, v: 1 + abs(v["ahead"] - 4) + (v["piece"] == 8)))
    assert dict(found.values) == {"ahead": 4, "piece": 16}
    assert found.gain == 4.0
    assert [(m.axis, m.value) for m in found.measured] == [
        ("ahead", 1),
        ("ahead", 4),
        ("piece", 16),
    ]
    assert found.seconds == dict.fromkeys((1, 8, 64), 1e-5)
    text = "\n".join([*place_lines(found.place), *found_lines(found)])
    assert "mine x3  a.k  M 1.. n=8" in text
    assert "    ahead: 1 [2] 4" in text
    assert "    one node with the defaults: M=1 10.0 µs, M=8 10.0 µs, M=64 10.0 µs" in text
    assert "    ahead: 1 0.800x 0.800x 0.800x; 4 2.000x 2.000x 2.000x" in text
    assert "    kept: ahead=4 piece=16, 4.000x" in text
    assert summary([found]) == "1 measured, 1 faster with other values than the defaults: 4.00x"


def test_nothing_better_keeps_the_defaults() -> None:
    """Equal times keep what is there, and so does a value that loses elsewhere."""
    for told in (Told(lambda *_: 1.0), Told(lambda rows, v: 1 + (rows == 8) * (v["ahead"] == 4) - (
        rows == 1) * (v["ahead"] == 4) / 2)):  # fmt: skip
        found = run(told)
        assert (dict(found.values), found.gain) == ({"ahead": 2, "piece": 8}, 1.0)
        assert list(found_lines(found))[-1] == "    kept: defaults"
        assert summary([found]).endswith("nothing is faster than the defaults by more than noise")


def test_luck_does_not_last() -> None:
    """A value that won once and does not win again is not kept."""
    found = run(Told(lambda *_: 1.0, luck={4: 1.3}))
    assert (dict(found.values), found.gain) == ({"ahead": 2, "piece": 8}, 1.0)


def test_a_value_that_stores_weights_otherwise_is_not_run() -> None:
    """Weights lie as the default has them, so such a value is named and left out."""

    def layout(_e: object, _s: object, geometry: Mapping[str, int], _o: int) -> Layout:
        return Layout(f"l{geometry['piece']}", "f32", (8,))

    [place] = places([library("a", kernel("k", layout=layout))], PLAIN)
    found = search(Told(lambda *_: 1.0), place, ROUNDS, lambda _: None)  # type: ignore[arg-type]
    assert [m.ratios == {} for m in found.measured] == [False, False, True]
    assert "piece: 16 stores weights otherwise, not measured" in "\n".join(found_lines(found))
    assert place.stores_alike({"ahead": 4, "piece": 8})
    assert "w:f32" in next(iter(place_lines(place)))
