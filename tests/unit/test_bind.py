"""A declared graph becomes numbers: a tiny model of Python kernels, run by both executors."""

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from radiance_abi import Call, Kernel, KernelLibrary, Layout, eq, isin, le
from radiance_core.bind import Bound, bind, pool_of
from radiance_core.execute.executor import LIBRARY, StepExecutor
from radiance_core.execute.program import SYMBOLS, Executor
from radiance_core.execute.twin import TwinExecutor
from radiance_core.graph.ir import GraphIR
from radiance_core.load.loading import Loading
from radiance_core.load.memory import HUGE_BYTES
from radiance_core.plan.arena import pack
from radiance_core.plan.budget import Budget, KvPlan, Limits, plan_budget
from radiance_core.plan.sites import find_sites
from radiance_core.resolve.resolver import Resolver
from radiance_core.resolve.stage import Resolution, resolve
from radiance_core.runtime import StepModel, StepShape

from .graph.building import builder, f32
from .load.test_weights import Memory

V, D, HEADS, SIZE = 12, 8, 2, 4
LARGEST = {name: 6 if "TOKENS" in name or name == "MAX_Q_LEN" else 3 for name in SYMBOLS}
OPS = [
    "spread(M~, n, k) x[M,n]:f32 -> y[M,n]:f32, z[M,k]:f32",
    "shift(M~, n, by:f, dtype:s) inout x[M,n]:f32, freqs?[_]:f32 ->",
]


def graph() -> GraphIR:
    """Embeds, joins two products, moves some columns, stores and attends, and gives logits."""
    g = builder({"wte": f32(V, D), "a": f32(4, D), "b": f32(12, D), "head": f32(V, D)}, schemas=OPS)
    x = g.op("embed_lookup", g.step.tokens, g.weight("wte", (V, D)))
    whole = g.join(
        g.op("gemm_nt", x, g.weight("a", (4, D))), g.op("gemm_nt", x, g.weight("b", (12, D)))
    )
    g.op("shift", g.columns(whole, 2, 10), g.constant(np.float32([0.5, 0.25])), by=1)
    k = g.op("shift", g.columns(whole, 10, 14), None, by=2)
    group = g.kv_group("full", n_head_kv=1, head_dim=4, layers=[0])
    g.op("kv_store", k, k, group.slot_mapping, group.layer(0))
    out = g.op("attn_paged", x, group.layer(0), group.block_table, group.seqused,
               g.step.cu_seqlens, n_head=HEADS, causal=1, window=0)  # fmt: skip
    y, _ = g.op("spread", out, k=3)
    g.logits(g.op("gemm_nt", g.rows(y, "OUT"), g.weight("head", (V, D))))
    logits = g.finish().outputs["logits"]
    g.output("token", g.op("cast", logits, **{"from": "f32", "to": "i32"}))
    for told in ("logprob", "rank", "top_idx", "top_val"):
        g.output(told, logits)  # a step model wants to know where they are; nothing here reads them
    return g.finish()


def embed(call: Call) -> None:
    tokens, table, x = call.arrays()
    x[...] = table[tokens]


def gemm(call: Call) -> None:
    a, b, y = call.arrays()
    y[...] = a @ b.T


def gemm_laid_out(call: Call) -> None:
    """Reads the weight transposed, in tiles of one row."""
    a, b, y = call.arrays()
    assert call.layouts[1].name == "cols"
    y[...] = a @ b


def gemm_tiles(call: Call, first: int, last: int, worker: int) -> None:
    a, b, y = call.arrays()
    for i in range(first, last):
        y[i] = a[i] @ b


def shift(call: Call) -> None:
    x, freqs = call.arrays()
    x += call.params["by"] + (0 if freqs is None else freqs.sum())


def store(call: Call) -> None:
    k, v, slots, cache = call.arrays()
    for i, slot in enumerate(slots):
        cache[slot // SIZE, 0, slot % SIZE] = np.concatenate([k[i], v[i]])


def attend(call: Call) -> None:
    """Adds up the first elements of all keys that each row sees."""
    q, cache, table, used, cu, out = call.arrays()
    assert call.params["block_size"] == SIZE
    for s in range(len(used)):
        rows = cu[s + 1] - cu[s]
        for r in range(rows):
            seen = used[s] - rows + r + 1
            keys = [cache[table[s, p // SIZE], 0, p % SIZE] for p in range(seen)]
            out[cu[s] + r] = q[cu[s] + r] + np.sum([k[:2].sum() + k[4:].sum() for k in keys])


def spread(call: Call) -> None:
    x, y, z = call.arrays()
    y[...] = x * 2
    z[...] = 7


def gather(call: Call) -> None:
    x, ids, y = call.arrays()
    y[...] = x[ids]


def to_int(call: Call) -> None:
    x, y = call.arrays()
    y[...] = x


def cols(encoding: object, layout: Layout, planes: dict, stored: np.ndarray,
         first: int, last: int, geometry: object, operand: int) -> None:  # fmt: skip
    stored[:, first:last] = planes["codes"].T


SPECIAL = {
    "relayout": cols,
    "layout": lambda encoding, shape, geometry, operand: Layout("cols", "f32", shape[::-1], 4),
}
LIBRARY_ = KernelLibrary(
    "tiny",
    schemas=OPS,
    kernels=[
        Kernel(op="embed_lookup", name="embed", run=embed),
        Kernel(op="gemm_nt", name="few", run=gemm_laid_out, where=[le("M", 2)], **SPECIAL),
        Kernel(op="gemm_nt", name="many", run=gemm_tiles, tiles=lambda c: len(c.tensors[2].base),
               **SPECIAL),
        Kernel(op="shift", name="shift", run=shift),
        Kernel(op="kv_store", name="store", run=store),
        Kernel(op="attn_paged", name="attend", run=attend,
               where=[eq("block_size", SIZE), isin("kv_dtype", "f32")]),
        Kernel(op="spread", name="spread", run=spread),
        Kernel(op="gather_rows", name="gather", run=gather),
        Kernel(op="cast", name="to_int", run=to_int),
    ],
)  # fmt: skip


def planned() -> tuple[Resolution, Budget]:
    resolution = resolve(graph(), Resolver([LIBRARY_], LARGEST))
    fixed = dict.fromkeys(("weights", "activations", "staging", "headroom"), 0)
    limits = Limits(3, 6, 16)
    return resolution, plan_budget(
        ("card", 10**6), fixed, resolution.graph.kv_groups, resolution.kv, limits
    )


def checkpoint(seed: int) -> Memory:
    rng = np.random.default_rng(seed)
    memory = Memory({"wte": f32(V, D), "a": f32(4, D), "b": f32(12, D), "head": f32(V, D)})
    for planes in memory.planes.values():
        planes["codes"] = rng.integers(-3, 4, planes["codes"].shape).astype(np.float32)
    return memory


def bound(memory: Memory) -> tuple[Bound, Budget]:
    resolution, budget = planned()
    storages = Loading(find_sites(resolution), memory, 1).finish()
    groups = {g.name: g for g in budget.groups}
    arena = pack(resolution.graph, LARGEST)
    return bind(resolution, arena, storages, groups, LARGEST), budget


def model(executor: Executor, memory: Memory) -> StepModel:
    made, budget = bound(memory)
    handle = executor.load(made.program, [LARGEST[s] for s in SYMBOLS])
    return StepModel(made, executor, handle, budget)


def expected(memory: Memory, ids: list[int]) -> np.ndarray:
    """The same in a few lines of float64, for one sequence from its beginning."""
    w = {n: p["codes"].astype(np.float64) for n, p in memory.planes.items()}
    x = w["wte"][ids]
    whole = np.concatenate([x @ w["a"].T, x @ w["b"].T], 1)
    whole[:, 2:10] += 1.75
    whole[:, 10:14] += 2
    k = whole[:, 10:14]
    keys = np.cumsum(k[:, :2].sum(1) + k.sum(1))
    return 2 * (x + keys[:, None]) @ w["head"].T


def run(m: StepModel, parts: list[tuple[list[int], int, list[int]]]) -> np.ndarray:
    """One step over parts (ids of the whole sequence, tokens done, pages); logits of last rows."""
    row, i = 0, m.inputs
    for s, (ids, done, pages) in enumerate(parts):
        count = len(ids) - done
        i["tokens"][row : row + count] = ids[done:]
        i["full.block_table"][s, : len(pages)] = pages
        at = np.arange(done, len(ids))
        i["full.slot_mapping"][row : row + count] = np.array(pages)[at // SIZE] * SIZE + at % SIZE
        i["full.seqused"][s] = len(ids)
        row += count
        i["cu_seqlens"][s + 1] = row
        i["out_ids"][s] = row - 1
    longest = max(len(ids) - done for ids, done, _ in parts)
    m.run(StepShape(row, len(parts), len(parts), longest))
    return m.logits[: len(parts)].copy()


@pytest.fixture(params=["twin", "c"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    import radiance_core.execute as package

    if request.param == "c" and not (Path(package.__file__).parent / LIBRARY).exists():
        pytest.skip("the executor is not built here")
    made: Executor = TwinExecutor() if request.param == "twin" else StepExecutor(2)
    yield made
    made.close()


def test_steps_compute_what_the_graph_says(executor: Executor) -> None:
    """Prefill, decode and mixed steps of three sequences give the logits of the formula."""
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    rng = np.random.default_rng(seed)
    memory = checkpoint(seed)
    m = model(executor, memory)
    assert (m.n_vocab, m.groups["full"].block_size) == (V, SIZE)
    a, b, c = (rng.integers(0, V, 9).tolist() for _ in range(3))
    pages = rng.permutation(m.groups["full"].pages)[:9].reshape(3, 3).tolist()
    steps = [
        [(a[:5], 0, pages[0])],
        [(a[:6], 5, pages[0]), (b[:3], 0, pages[1])],
        [(a[:7], 6, pages[0]), (b[:4], 3, pages[1]), (c[:2], 0, pages[2])],
        [(a[:8], 7, pages[0]), (b[:5], 4, pages[1]), (c[:3], 2, pages[2])],
        [(c[:9], 3, pages[2])],
    ]
    for parts in steps:
        got = run(m, parts)
        want = np.stack([expected(memory, ids)[-1] for ids, _, _ in parts])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3, err_msg=f"seed {seed}")


def test_both_executors_give_equal_bits() -> None:
    """The native executor and its twin leave the same logits."""
    memory = checkpoint(1)
    found = []
    for made in (TwinExecutor(), StepExecutor(2)):
        m = model(made, memory)
        found.append(run(m, [([1, 2, 3, 4, 5], 0, [3, 0])]).tobytes())
        m.close()
    assert found[0] == found[1]


def test_memory_is_where_the_contract_says() -> None:
    """Inputs, pools and weights begin at multiples of 256, activations lie in one arena."""
    made, budget = bound(checkpoint(2))
    for array in (*made.inputs.values(), *made.pools.values(), made.keep[0]):
        assert array.ctypes.data % 256 == 0
    # 64 tokens of context in pages of 4.
    assert made.inputs["full.block_table"].shape == (3, 16)
    assert made.pools["full"].shape == (budget.groups[0].pages, 1, 1, SIZE, 8)
    assert len(made.slots) == made.program.num_slots
    assert made.outputs["logits"].shape == (3, V)
    joined = [n for n in made.program.nodes if n.op == "gemm_nt"][:2]
    assert [n.operands[2].strides for n in joined] == [(16, 1), (16, 1)]
    assert joined[1].operands[2].offset - joined[0].operands[2].offset == 4 * 4


def test_bands_keep_their_bounds_and_the_last_is_open() -> None:
    """Each node has the bands that were resolved; kernels see the upper bound of theirs."""
    made, _ = bound(checkpoint(3))
    gemms = [n for n in made.program.nodes if n.op == "gemm_nt"]
    assert [b.upper for b in gemms[0].bands] == [2, 2**62]
    assert [b.params[0] for b in gemms[0].bands] == [2, 6]
    assert [b.kernel.name for b in gemms[0].bands] == ["few", "many"]
    assert made.program.nodes[0].rows == SYMBOLS.index("TOKENS")
    assert gemms[2].rows == SYMBOLS.index("OUT_ROWS")
    attend_node = next(n for n in made.program.nodes if n.op == "attn_paged")
    assert attend_node.ranged == SYMBOLS.index("MAX_Q_LEN")
    absent = next(n for n in made.program.nodes if n.op == "shift" and n.operands[1].slot < 0)
    assert absent.operands[0].shape == (6, 4)


def test_a_step_tells_every_symbol() -> None:
    """The parts of a step add up to the whole, each in the place of its name."""
    values = dict(zip(SYMBOLS, StepShape(9, 4, 3, 6, 2, 2).symbols().tolist(), strict=True))
    assert values == {
        "TOKENS": 9,
        "SEQS": 4,
        "OUT_ROWS": 3,
        "DECODE_TOKENS": 2,
        "PREFILL_TOKENS": 7,
        "DECODE_SEQS": 2,
        "PREFILL_SEQS": 2,
        "MAX_Q_LEN": 6,
    }


def resident_bytes(array: np.ndarray) -> int:
    """Return how many bytes of an array that begins a page are in memory."""
    pages = np.zeros(-(-array.nbytes // mmap.PAGESIZE), np.uint8)
    at, told = ctypes.c_void_p(array.ctypes.data), ctypes.c_void_p(pages.ctypes.data)
    assert ctypes.CDLL(None).mincore(at, ctypes.c_size_t(array.nbytes), told) == 0
    return int((pages & 1).sum()) * mmap.PAGESIZE


def test_a_pool_takes_the_memory_of_the_pages_that_are_used() -> None:
    """Of a large pool what is resident is what was written, and not a huge page more."""
    plan = KvPlan("full", 200, 32, "f16", 30, 3, 64, 0, 30 * 3 * 32 * 256)
    pool = pool_of(plan)
    assert pool.nbytes == plan.total_bytes
    for page in range(3):
        pool[page] = 1
        used = (page + 1) * plan.page_bytes
        assert used <= resident_bytes(pool) < used + HUGE_BYTES
