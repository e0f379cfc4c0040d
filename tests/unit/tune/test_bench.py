"""Nodes of a tiny model are run with other values of their axes, over what a step gives them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from radiance_abi import Axis, Call
from radiance_core.build import BuildSettings, Plan
from radiance_core.execute.program import SYMBOLS
from radiance_core.hardware import Machine, Memory
from radiance_core.plan.arena import pack
from radiance_core.plan.budget import Limits, plan_budget
from radiance_core.plan.sites import find_sites
from radiance_core.resolve.resolver import Resolver
from radiance_core.resolve.stage import resolve
from radiance_core.runtime import StepShape
from radiance_core.tune.bench import Bench
from radiance_core.tune.places import Place, find_places
from radiance_core.tune.steps import fill, has_rows, shape_of

from ..test_bind import LARGEST, LIBRARY_, checkpoint, gemm_tiles, graph

AXIS = Axis("nap", (0, 1, 2), 1)
seen: list[tuple[int, int, np.ndarray, np.ndarray]] = []


def gemm(call: Call, first: int, last: int, worker: int) -> None:
    """Remember the value, the rows, the weight and the activations of each call."""
    a, b, y = call.arrays()
    seen.append((call.params["nap"], len(a), b.copy(), a.copy()))
    assert not y.any() or not np.shares_memory(a, y)
    gemm_tiles(call, first, last, worker)


@pytest.fixture(scope="module")
def plan() -> Plan:
    rows = [replace(k, run=gemm, axes=(AXIS,)) if k.name == "many" else k for k in LIBRARY_.kernels]
    resolution = resolve(graph(), Resolver([replace(LIBRARY_, kernels=rows)], LARGEST))
    fixed = dict.fromkeys(("weights", "activations", "staging", "headroom"), 0)
    limits = Limits(3, 6, 16)
    budget = plan_budget(("card", 10**6), fixed, resolution.graph.kv_groups, resolution.kv, limits)
    memory = SimpleNamespace(checkpoint=checkpoint(7))
    machine = Machine("A Fast One", (), 1, Memory(1, 1, None))
    return Plan(
        BuildSettings(Path("x"), threads=2), None, memory, resolution, find_sites(resolution),  # type: ignore[arg-type]
        pack(resolution.graph, LARGEST), budget, LARGEST, machine,
    )  # fmt: skip


@pytest.fixture
def bench(plan: Plan) -> Iterator[Bench]:
    made = Bench(plan)
    seen.clear()
    yield made
    made.close()


def places(plan: Plan) -> list[Place]:
    return find_places(plan.resolution.nodes, LARGEST)


def test_places_of_the_model(plan: Plan) -> None:
    """Two products of unlike shape, in the band above two rows; the head is like one of them."""
    assert [(p.indices, p.rows) for p in places(plan)] == [([1], (3, 6)), ([2], (3, 6))]


def test_a_scene_runs_with_each_value(bench: Bench, plan: Plan) -> None:
    """Every value is run once a round and once before, on the same activations as in a step."""
    place = places(plan)[1]
    scene = bench.scene(place, 3)
    assert scene is not None
    _, _, own, first = seen[-1]
    assert first.any(), "activations are those of a step"
    seen.clear()
    ratios = bench.race(scene, {"nap": 1}, [{"nap": 0}, {"nap": 2}], 5)
    assert np.shape(ratios) == (2, 15)
    assert min(map(min, ratios)) > 0
    timed = [one for one in seen if np.array_equal(one[2], own)]
    assert [sum(one[0] == value for one in timed) for value in (0, 1, 2)] == [16, 16, 16]
    assert all(rows == 3 and np.array_equal(a, first) for _, rows, _, a in timed)
    assert {one[0] for one in seen if not np.array_equal(one[2], own)} == {1}, "the rest of a step"


def test_a_scene_that_no_step_has_is_none(bench: Bench, plan: Plan) -> None:
    """Rows beyond the capacity of a step are left out."""
    assert bench.scene(places(plan)[0], 7) is None
    head = places(plan)[1]
    head.node = plan.resolution.nodes[-2]
    assert head.node.node.ranged == "OUT_ROWS"
    assert bench.scene(head, 4) is None


@pytest.mark.parametrize(
    ("ranged", "rows", "shape"),
    [
        ("TOKENS", 1, StepShape(1, 1, 1, 1, 1, 1)),
        ("TOKENS", 8, StepShape(8, 8, 8, 1, 8, 8)),
        ("TOKENS", 512, StepShape(512, 1, 1, 512)),
        ("OUT_ROWS", 32, StepShape(32, 32, 32, 1, 32, 32)),
        ("MAX_Q_LEN", 1, StepShape(1, 1, 1, 1, 1, 1)),
        ("MAX_Q_LEN", 8, StepShape(8, 1, 1, 8)),
        ("PREFILL_TOKENS", 1, StepShape(1, 1, 1, 1)),
        ("DECODE_SEQS", 16, StepShape(16, 16, 16, 1, 16, 16)),
        (None, 1, StepShape(1, 1, 1, 1, 1, 1)),
    ],
)
def test_steps_have_the_rows_that_are_asked_for(
    ranged: str | None, rows: int, shape: StepShape
) -> None:
    """A few rows are conversations that go on, many a prompt; the symbol has that value."""
    assert shape_of(ranged, rows) == shape
    assert has_rows(shape, ranged, rows)
    assert not has_rows(shape, "TOKENS", shape.tokens + 1)
    assert len(SYMBOLS) == 8


@pytest.mark.parametrize("rows", [1, 3, 6])
def test_what_is_filled_in_is_a_step(plan: Plan, rows: int) -> None:
    """Slots are those of pages in the tables, positions follow the past, ids are the model's."""
    group = plan.budget.groups[0]
    size, name = group.block_size, group.name
    inputs: dict[str, Any] = {
        "tokens": np.full(6, -1, np.int32), "positions": np.zeros(6, np.int32),
        "cu_seqlens": np.zeros(7, np.int32), "out_ids": np.full(6, -1, np.int32),
        "sampling": np.ones((6, 96), np.uint8), f"{name}.block_table": np.zeros((6, 4), np.int32),
        f"{name}.slot_mapping": np.zeros(6, np.int32), f"{name}.seqused": np.zeros(6, np.int32),
    }  # fmt: skip
    shape = shape_of("TOKENS" if rows < 6 else "MAX_Q_LEN", rows)
    fill(inputs, {name: group}, shape, 16, 12)
    each = shape.tokens // shape.seqs
    past = 16 - each
    assert 0 <= inputs["tokens"][:rows].min() <= inputs["tokens"][:rows].max() < 12
    assert inputs["cu_seqlens"][: shape.seqs + 1].tolist() == [
        each * i for i in range(shape.seqs + 1)
    ]
    assert inputs["out_ids"][: shape.out_rows].tolist() == [
        each * (i + 1) - 1 for i in range(shape.out_rows)
    ]
    for row in range(rows):
        position = past + row % each
        assert inputs["positions"][row] == position
        page = inputs[f"{name}.block_table"][row // each, position // size]
        assert 0 <= page < group.pages
        assert inputs[f"{name}.slot_mapping"][row] == page * size + position % size
    assert (inputs[f"{name}.seqused"][: shape.seqs] == 16).all()
