"""The arena: what is alive together lies apart, what is not shares bytes."""

import numpy as np
import pytest

from radiance_abi.dtypes import dtype
from radiance_core.graph.ir import GraphIR, GraphValue
from radiance_core.plan.arena import most, pack, storage_bytes

from ..graph.building import builder, f32

LARGEST = {"TOKENS": 19, "SEQS": 4, "OUT_ROWS": 4, "MAX_Q_LEN": 19}
OPS = [
    "make(M~, n) t[M]:i32 -> y[M,n]:f32",
    "make8(M~, n) t[M]:i32 -> y[M,n]:i8",
    "copy(M~, n) x[M,n]:f32 -> y[M,n]:f32",
    "pair(M~, n, k) x[M,n]:f32, z[M,k]:f32 -> y[M,n]:f32, w[M,k]:i8",
    "write(M~, n) inout x[M,n]:f32 ->",
    "read8(M~, n) x[M,n]:i8 -> y[M,n]:f32",
]


def random_graph(rng: np.random.Generator) -> GraphIR:
    """A graph of random ops over random widths, with views, joins and rewriting."""
    g = builder({"wte": f32(10, 8)}, schemas=OPS)
    live: list[GraphValue] = [g.op("make", g.step.tokens, n=int(rng.integers(1, 40)))]
    for _ in range(int(rng.integers(1, 40))):
        choice = rng.integers(0, 7)
        pick = live[int(rng.integers(0, len(live)))]
        if choice == 0:
            live.append(g.op("make", g.step.tokens, n=int(rng.integers(1, 40))))
        elif choice == 1:
            live.append(g.op("read8", g.op("make8", g.step.tokens, n=int(rng.integers(1, 9)))))
        elif choice == 2:
            live.append(g.op("copy", pick))
        elif choice == 3:
            live.append(g.op("pair", pick, live[int(rng.integers(0, len(live)))])[0])
        elif choice == 4 and pick.kind == "node":
            fresh = g.op("write", pick)
            live = [v for v in live if not g._buffers.overlap(v, pick)] + [fresh]
        elif choice == 5:
            width = int(pick.shape[1])
            start = int(rng.integers(0, width))
            live.append(g.columns(pick, start, int(rng.integers(start + 1, width + 1))))
        else:
            parts = [g.op("make", g.step.tokens, n=int(rng.integers(1, 9))) for _ in range(2)]
            live.append(g.join(*parts))
    g.logits(g.rows(live[-1], "OUT"))
    if rng.random() < 0.5:
        g.output("kept", live[int(rng.integers(0, len(live)))])
    return g.finish()


def spans(graph: GraphIR) -> dict[int, tuple[int, int]]:
    """First and last node of each outermost storage, worked out by looking at every node."""
    seen: dict[int, list[int]] = {}
    outside = {v.storage for v in graph.step_inputs.values()}
    for index, n in enumerate(graph.nodes):
        for v in (*n.operands, *n.outputs):
            if isinstance(v, GraphValue) and graph.root(v.storage)[0] not in outside:
                seen.setdefault(graph.root(v.storage)[0], []).append(index)
    for v in graph.outputs.values():
        seen.setdefault(graph.root(v.storage)[0], []).append(len(graph.nodes))
    return {root: (min(found), max(found)) for root, found in seen.items()}


@pytest.mark.parametrize("round_", range(60))
def test_live_storages_never_overlap(round_: int) -> None:
    """Brute force over every pair: alive at one node means bytes apart; outputs live to the end."""
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    graph = random_graph(np.random.default_rng(seed))
    arena = pack(graph, LARGEST)
    lives = spans(graph)
    assert set(arena.offsets) == set(lives)
    sizes = {r: storage_bytes(graph, r, LARGEST) for r in lives}
    for root, (first, last) in lives.items():
        s = graph.storages[root]
        need = LARGEST[str(s.rows)] * s.columns * dtype(s.dtype).bits // 8
        assert sizes[root] >= need
        assert arena.offsets[root] % 64 == 0
        assert arena.offsets[root] + sizes[root] <= arena.total_bytes
        for other, (low, high) in lives.items():
            if other != root and first <= high and low <= last:
                apart = (
                    arena.offsets[root] + sizes[root] <= arena.offsets[other]
                    or arena.offsets[other] + sizes[other] <= arena.offsets[root]
                )
                assert apart, f"seed {seed}: storages {root} and {other}"
    assert arena.total_bytes <= arena.unpacked_bytes == sum(sizes.values())


def test_a_chain_needs_two_buffers() -> None:
    """A long chain of equal steps shares two buffers, whatever its length."""
    g = builder(schemas=OPS)
    x = g.op("make", g.step.tokens, n=32)
    for _ in range(50):
        x = g.op("copy", x)
    g.logits(g.rows(x, "OUT"))
    arena = pack(g.finish(), LARGEST)
    one = -(-19 * 32 * 4 // 64) * 64
    assert arena.total_bytes <= 2 * one + 4 * 32 * 4 + 64
    assert arena.unpacked_bytes > 50 * one


def test_extents_of_symbols() -> None:
    """A symbol is its largest value, with what is added to it."""
    assert (most(7, LARGEST), most("TOKENS", LARGEST), most("SEQS+1", LARGEST)) == (7, 19, 5)
