"""attn_paged and kv_store against attention written out in float64, one query at a time."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

PAGE = 32
KINDS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Batch:
    """A ragged batch over one cache: operands of attn_paged beside its params."""

    q: np.ndarray
    cache: np.ndarray
    table: np.ndarray
    used: np.ndarray
    cuts: np.ndarray
    params: dict[str, Any]

    def run(self, row: Any, grouping: int = 0) -> np.ndarray:
        out = np.full_like(self.q, 7)
        operands = [self.q, self.cache, self.table, self.used, self.cuts, out]
        assert row(operands, self.params, grouping) == 0
        return out

    def alone(self, seq: int, row: int) -> "Batch":
        """Only query ``row`` of sequence ``seq``: its later tokens are not there yet."""
        count = int(self.cuts[seq + 1] - self.cuts[seq])
        at = int(self.cuts[seq]) + row
        return replace(
            self,
            q=self.q[at : at + 1],
            table=self.table[seq : seq + 1],
            used=np.array([self.used[seq] - count + 1 + row], np.int32),
            cuts=np.array([0, 1], np.int32),
        )


def draw_batch(
    rng: np.random.Generator,
    sequences: list[tuple[int, int]],
    head_dim: int,
    heads: tuple[int, int],
    kind: str = "f32",
    **params: Any,
) -> Batch:
    """Sequences are (query rows, keys); pages lie anywhere, what is unused is NaN."""
    n_head, n_kv = heads
    pages = [-(-length // PAGE) for _, length in sequences]
    total = sum(pages) + 3
    order = rng.permutation(total)
    table = np.full((len(sequences), max(pages) + 1), total - 1, np.int32)
    cache = np.full((total, n_kv, PAGE, 2 * head_dim), np.nan, np.float32)
    taken = 0
    for s, (_, length) in enumerate(sequences):
        table[s, : pages[s]] = order[taken : taken + pages[s]]
        taken += pages[s]
        for j in range(length):
            cache[table[s, j // PAGE], :, j % PAGE] = rng.normal(size=(n_kv, 2 * head_dim)) * 1.5
    cuts = np.cumsum([0, *(rows for rows, _ in sequences)]).astype(np.int32)
    q = rng.normal(size=(int(cuts[-1]), n_head * head_dim)).astype(np.float32) * 1.5
    full = {
        "q_len": max(rows for rows, _ in sequences), "head_dim": head_dim, "n_head": n_head,
        "n_head_kv": n_kv, "block_size": PAGE, "causal": 1, "window": 0, "dtype": "f32",
        "kv_dtype": kind, **params,
    }  # fmt: skip
    used = np.array([length for _, length in sequences], np.int32)
    return Batch(q, cache.astype(KINDS[kind]), table, used, cuts, full)


def oracle(batch: Batch) -> np.ndarray:
    """softmax(scale * q . K) V over the visible keys, in float64."""
    p = batch.params
    hd, n_head, n_kv = p["head_dim"], p["n_head"], p["n_head_kv"]
    scale, cap, window = p.get("scale", hd**-0.5), p.get("softcap", 0.0), p["window"]
    out = np.full(batch.q.shape, 7.0)
    for s, length in enumerate(batch.used.tolist()):
        lo, hi = int(batch.cuts[s]), int(batch.cuts[s + 1])
        for at in range(lo, hi):
            pos = length - (hi - lo) + at - lo
            keys = [
                j for j in range(length)
                if (not p["causal"] or j <= pos)
                and (not window or abs(pos - j) < window)
                and batch.table[s, j // PAGE] >= 0
            ]  # fmt: skip
            rows = [batch.cache[batch.table[s, j // PAGE], :, j % PAGE] for j in keys]
            both = np.array(rows, np.float64).reshape(len(keys), n_kv, 2 * hd)
            for h in range(n_head):
                kv = both[:, h // (n_head // n_kv)]
                logits = kv[:, :hd] @ batch.q[at, h * hd : (h + 1) * hd].astype(np.float64) * scale
                logits = cap * np.tanh(logits / cap) if cap else logits
                weights = np.exp(logits - logits.max()) if keys else logits
                out[at, h * hd : (h + 1) * hd] = (
                    weights @ kv[:, hd:] / weights.sum() if keys else 0.0
                )
    return out


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert np.abs(got - want).max() <= 2e-6 * max(np.abs(want).max(), 1e-3)


SHAPES = [
    (64, (9, 3)), (256, (4, 1)), (128, (14, 2)), (8, (8, 8)), (24, (6, 2)), (72, (8, 1)),
    (80, (2, 2)), (40, (5, 1)), (16, (40, 1)), (96, (12, 2)), (120, (7, 7)), (192, (3, 3)),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("head_dim", "heads"), SHAPES)
def test_matches_the_definition(levels: Any, head_dim: int, heads: Any, kind: str) -> None:
    """Decode and prefill rows mixed, over pages in any order, agree with float64 for all caches."""
    rng = np.random.default_rng()
    some = [(1, int(rng.integers(1, 300))), (int(rng.integers(2, 50)), 90), (1, 33), (5, 5)]
    batch = draw_batch(rng, some, head_dim, heads, kind)
    want = oracle(batch)
    for level in levels:
        close(batch.run(level.row("attn_paged")), want)


@pytest.mark.parametrize(
    "extra",
    [
        {"window": 1}, {"window": 37}, {"window": 64, "softcap": 3.0}, {"softcap": 20.0},
        {"causal": 0}, {"causal": 0, "window": 20}, {"scale": 0.3}, {"window": 700},
    ],
    ids=str,
)  # fmt: skip
def test_masks_caps_and_scales(levels: Any, extra: dict[str, Any]) -> None:
    """Windows, two-sided attention, caps and scales follow the definition at any length."""
    rng = np.random.default_rng()
    batch = draw_batch(rng, [(1, 600), (40, 130), (3, 40), (17, 17)], 32, (4, 2), **extra)
    want = oracle(batch)
    for level in levels:
        close(batch.run(level.row("attn_paged")), want)


def test_long_contexts_in_splits(best: Any) -> None:
    """Many splits, with pages missing in between and rows that see nothing, agree with float64."""
    rng = np.random.default_rng()
    batch = draw_batch(rng, [(1, 2600), (2, 1025), (1, 512), (4, 2)], 16, (2, 1))
    batch.table[0, 3] = batch.table[1, 0] = -1
    batch.table[0, 32:48] = -1  # a whole split
    want = oracle(batch)
    close(batch.run(best.row("attn_paged"), 3), want)
    assert not want[-4:-2].any(), "two of the last sequence's rows precede its first key"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extra", [{}, {"window": 100}, {"softcap": 5.0}], ids=str)
def test_a_row_does_not_know_its_batch(levels: Any, kind: str, extra: dict[str, Any]) -> None:
    """Each row alone gives the bits it gives in the batch, at every level and grouping."""
    rng = np.random.default_rng()
    heads = ((6, 2), (7, 1), (4, 4))[int(rng.integers(3))]
    some = [(1, 1300), (70, 600), (3, 70), (1, 1), (33, 33)]
    batch = draw_batch(rng, some, 48, heads, kind, **extra)
    whole = batch.run(levels[0].row("attn_paged"))
    assert np.isfinite(whole).all()
    for level in levels:
        row = level.row("attn_paged")
        for grouping in (0, 1, 5):
            assert batch.run(row, grouping).tobytes() == whole.tobytes()
        for seq, index in ((0, 0), (1, 0), (1, 31), (1, 69), (2, 1), (3, 0), (4, 20), (4, 32)):
            got = batch.alone(seq, index).run(row)
            assert got.tobytes() == whole[batch.cuts[seq] + index].tobytes()


def _every_nth(row: Any, call: Any, pieces: int, workers: int, worker: int) -> int:
    return sum(row.c.run(call, t, t + 1, worker) for t in range(worker, pieces, workers))


def test_splits_as_pieces_change_nothing(levels: Any) -> None:
    """Splits run by several threads at once, or as one piece without state, give the same bits."""
    rng = np.random.default_rng()
    batch = draw_batch(rng, [(1, 6000), (2, 700)], 64, (3, 1), "f16")
    for level in levels:
        row = level.row("attn_paged")
        whole = batch.run(row, 1)
        for threads in (0, 4):
            state = row.ffi.new("void **")
            assert not threads or row.c.init(row.ffi.NULL, state) == 0
            out = np.full_like(batch.q, 7)
            operands = [batch.q, batch.cache, batch.table, batch.used, batch.cuts, out]
            call, _kept = row.bind(operands, batch.params, state[0], workers=max(threads, 1))
            for _ in range(5):
                out[:] = 7
                pieces = row.c.tiles(call)
                assert pieces == (14 if threads else 2)
                with ThreadPoolExecutor(max(threads, 1)) as pool:
                    workers = range(max(threads, 1))
                    share = partial(_every_nth, row, call, pieces, len(workers))
                    assert not any(pool.map(share, workers))
                assert out.tobytes() == whole.tobytes()
            if threads:
                row.c.fini(state[0])


def test_strided_operands(levels: Any) -> None:
    """Queries that are columns of a fused row, and outputs with gaps, work and gaps stay."""
    rng = np.random.default_rng()
    batch = draw_batch(rng, [(1, 70), (9, 40)], 64, (4, 2))
    whole = batch.run(levels[0].row("attn_paged"))
    fused = np.full((10, 700), np.nan, np.float32)
    fused[:, 100:356] = batch.q
    for level in levels:
        out = np.full((10, 300), 5, np.float32)
        operands = [
            fused[:, 100:356],
            batch.cache,
            batch.table,
            batch.used,
            batch.cuts,
            out[:, 7:263],
        ]
        assert level.row("attn_paged")(operands, batch.params) == 0
        assert out[:, 7:263].tobytes() == whole.tobytes()
        assert (out[:, :7] == 5).all()
        assert (out[:, 263:] == 5).all()


@pytest.mark.parametrize(
    ("field", "change", "status"),
    [
        ("table", lambda a: np.full_like(a, 10_000), -12),
        ("table", lambda a: a[:, :1], -1),
        ("table", lambda a: a.astype(np.int64), -2),
        ("used", lambda a: -a, -1),
        ("cuts", lambda a: a[::-1].copy(), -1),
        ("cuts", lambda a: a + 1, -1),
        ("cuts", lambda a: a[:-1], -1),
        ("q", lambda a: a[:, :-1], -1),
        ("q", np.asfortranarray, -4),
        ("cache", lambda a: a[:, :, :16], -1),
        ("cache", lambda a: a.astype(np.float64), -2),
        ("cache", lambda a: a[0], -1),
    ],
)
def test_refuses_what_it_cannot_read(levels: Any, field: str, change: Any, status: int) -> None:
    """Extents, types, page numbers or strides that do not fit are a status, never a crash."""
    batch = draw_batch(np.random.default_rng(), [(1, 70), (9, 40)], 64, (4, 2))
    broken = replace(batch, **{field: change(getattr(batch, field))})
    for level in levels:
        out = np.zeros_like(batch.q)
        operands = [broken.q, broken.cache, broken.table, broken.used, broken.cuts, out]
        assert level.row("attn_paged")(operands, batch.params) == status


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("head_dim", "block"), [(64, 32), (24, 32), (8, 16)])
def test_store(levels: Any, kind: str, head_dim: int, block: int) -> None:
    """Keys and values reach their slots rounded to nearest even; negative slots are skipped."""
    rng = np.random.default_rng()
    tokens, n_kv, pages = 21, 3, 5
    fused = (rng.normal(size=(tokens, 400)) * 10.0 ** rng.integers(-6, 4, (tokens, 1))).astype(
        np.float32
    )
    width = n_kv * head_dim
    k, v = fused[:, 3 : 3 + width], fused[:, 200 : 200 + width]
    slots = rng.permutation(pages * block)[:tokens].astype(np.int32)
    slots[::5] = -1
    params = {
        "M": tokens, "head_dim": head_dim, "n_head_kv": n_kv, "block_size": block,
        "kv_dtype": kind, "dtype": "f32",
    }  # fmt: skip
    want = np.full((pages, n_kv, block, 2 * head_dim), 3, KINDS[kind])
    for t, slot in enumerate(slots):
        if slot >= 0:
            both = [x[t].reshape(n_kv, head_dim) for x in (k, v)]
            with np.errstate(over="ignore"):
                want[slot // block, :, slot % block] = np.concatenate(both, 1).astype(KINDS[kind])
    for level in levels:
        cache = np.full_like(want, 3)
        assert level.row("kv_store")([k, v, slots, cache], params, 2) == 0
        assert cache.tobytes() == want.tobytes()
    slots[1] = pages * block
    assert levels[0].row("kv_store")([k, v, slots, np.zeros_like(want)], params) == -12


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("step", [-0.01, 0.001, 0.01], ids=str)
def test_scores_that_rise_or_fall(levels: Any, rows: int, step: float) -> None:
    """Weights are right whether pages raise the maximum now and then, hardly or never."""
    rng = np.random.default_rng()
    batch = draw_batch(rng, [(rows, 1100)], 16, (3, 1))
    batch.q[:, ::16] = 4.0
    for j in range(1100):
        batch.cache[batch.table[0, j // PAGE], 0, j % PAGE, 0] = step * j
    want = oracle(batch)
    for level in levels:  # as scores are large, so is their rounding
        assert np.abs(batch.run(level.row("attn_paged")) - want).max() <= 2e-5 * np.abs(want).max()
