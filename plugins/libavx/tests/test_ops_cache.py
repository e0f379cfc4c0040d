"""Packed caches: every level stores the bytes that the contract names, and reads what they mean."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from radiance_abi.kv_cache import cache_dtype
from radiance_abi.testing.formulas import kv_rows

from .test_ops_attention import Batch, close, draw_batch, oracle

PAGE = 32
IN_WORDS = ("int8", "k8_v4")
FORMS = ("fp8", "fp8_v4", "k6_v4", *IN_WORDS)
SHAPES = [(64, 3), (128, 1), (32, 5), (256, 2), (96, 2)]
FP8_SHAPES = [(8, 4), (24, 2), (40, 1), (80, 3), (16, 1)]
CASES = [(f, *s) for f in FORMS for s in SHAPES] + [("fp8", *s) for s in FP8_SHAPES]


def hard_rows(rng: np.random.Generator, tokens: int, heads: int, head_dim: int) -> np.ndarray:
    """Rows of every size, some with outliers, zeros, denormals, what is beyond f16, or NaN."""
    rows = rng.normal(size=(tokens, heads, head_dim)) * 10.0 ** rng.integers(-9, 5, (tokens, 1, 1))
    rows = rows.astype(np.float32)
    rows[0] = 0
    rows[1, 0, 3] = -0.0
    rows[2, 0, :8] = [3e38, -3e38, 65504, 65520, 1e-45, -1e-38, np.inf, -np.inf]
    rows[3, -1, 5] = np.nan
    rows[4, :, 2] *= 400
    rows[5] = np.float32(2.0) ** rng.integers(-20, 10, (heads, head_dim))  # ties and exact powers
    rows[6, 0] = 1e-40
    return rows


def packed(batch: Batch, form: str, rows: np.ndarray) -> Batch:
    """The batch over a cache of one form, filled with rows f32 [P, K, PAGE, 2 * head_dim]."""
    pages, heads, _, both = rows.shape
    cache = np.full((pages, heads, PAGE, cache_dtype(form).row(both // 2)), 0xA5, np.uint8)
    for half, part in enumerate(kv_rows.parts(cache, form, both // 2)):
        for page, offset in np.ndindex(pages, PAGE):
            found = rows[page, :, offset, half * both // 2 : (half + 1) * both // 2]
            if np.isfinite(found).all():
                kv_rows.write(part, page, offset, found)
    return replace(batch, cache=cache, params={**batch.params, "kv_dtype": form})


def meant(batch: Batch) -> np.ndarray:
    """What the slots of a packed batch stand for, f64 [pages, heads, PAGE, 2 * head_dim]."""
    halves = kv_rows.parts(batch.cache, batch.params["kv_dtype"], batch.params["head_dim"])
    return np.concatenate([kv_rows.read(part)[0] for part in halves], axis=-1)


@pytest.mark.parametrize(("form", "head_dim", "heads"), CASES)
def test_all_levels_store_the_bytes_of_the_contract(
    levels: Any, form: str, head_dim: int, heads: int
) -> None:
    """Whatever the numbers, in pieces of any size; slots that no token goes to stay as they are."""
    rng = np.random.default_rng()
    tokens, pages, block = 20, 4, int(rng.choice([8, 16, 32]))
    k, v = (hard_rows(rng, tokens, heads, head_dim) for _ in range(2))
    slots = rng.permutation(pages * block)[:tokens].astype(np.int32)
    slots[7] = -1
    blank = np.full((pages, heads, block, cache_dtype(form).row(head_dim)), 0xA5, np.uint8)
    want = blank.copy()
    for part, rows in zip(kv_rows.parts(want, form, head_dim), (k, v), strict=True):
        for token, slot in enumerate(slots):
            if slot >= 0:
                kv_rows.write(part, slot // block, slot % block, rows[token])
    params = {"M": tokens, "head_dim": head_dim, "n_head_kv": heads, "block_size": block,
              "kv_dtype": form, "dtype": "f32"}  # fmt: skip
    flat = [x.reshape(tokens, -1) for x in (k, v)]
    for level in levels:
        got = blank.copy()
        assert level.row("kv_store")([*flat, slots, got], params, int(rng.integers(3))) == 0
        assert np.argwhere(got != want).tolist() == []


@pytest.mark.parametrize("form", IN_WORDS)
def test_tokens_of_one_step_may_share_bytes(levels: Any, form: str) -> None:
    """Neighbours in a word are written by one step or by several, in any order, to the same."""
    rng = np.random.default_rng()
    tokens, heads, head_dim = 64, 3, 64
    k, v = (rng.normal(size=(tokens, heads * head_dim)).astype(np.float32) for _ in range(2))
    shape = (2, heads, PAGE, cache_dtype(form).row(head_dim))
    params = {"head_dim": head_dim, "n_head_kv": heads, "block_size": PAGE, "kv_dtype": form,
              "dtype": "f32"}  # fmt: skip
    for level in levels:
        whole, apart = (np.zeros(shape, np.uint8) for _ in range(2))
        order = rng.permutation(tokens).astype(np.int32)
        row = level.row("kv_store")
        assert row([k[order], v[order], order, whole], {**params, "M": tokens}) == 0
        for cut in np.split(rng.permutation(tokens).astype(np.int32), [1, 2, 9, 40]):
            assert row([k[cut], v[cut], cut, apart], {**params, "M": len(cut)}, 1) == 0
        assert apart.tobytes() == whole.tobytes()
    none = np.zeros((0, heads * head_dim), np.float32)
    before = whole.copy()
    assert row([none, none, order[:0], whole], {**params, "M": 0}) == 0
    assert row([k[:1], v[:1], order[:1] * 0 - 1, whole], {**params, "M": 1}) == 0
    assert whole.tobytes() == before.tobytes()
    assert row([k[:1], v[:1], order[:1] * 0 + tokens, whole], {**params, "M": 1}) == -12
    odd = np.zeros((2, heads, 12, shape[3]), np.uint8)
    assert row([k[:1], v[:1], order[:1], odd], {**params, "M": 1, "block_size": 12}) == -1


@pytest.mark.parametrize("form", IN_WORDS)
def test_tiles_of_a_step_write_bytes_of_their_own(levels: Any, form: str) -> None:
    """Whatever shares a byte belongs to one tile, so threads may run all tiles at once."""
    rng = np.random.default_rng()
    tokens, heads, head_dim = 1024, 2, 128
    rows = [rng.normal(size=(tokens, heads * head_dim)).astype(np.float32) for _ in range(2)]
    shape = (tokens // PAGE, heads, PAGE, cache_dtype(form).row(head_dim))
    params = {"M": tokens, "head_dim": head_dim, "n_head_kv": heads, "block_size": PAGE,
              "kv_dtype": form, "dtype": "f32"}  # fmt: skip
    slots = rng.permutation(tokens).astype(np.int32)
    row = levels[0].row("kv_store")
    written = np.zeros(shape, np.int64)
    blank = [np.full(shape, fill, np.uint8) for fill in (0x00, 0xFF)]
    caches = [b.copy() for b in blank]
    calls = [row.bind([*rows, slots, c], params) for c in caches]
    tiles = row.c.tiles(calls[0][0])
    assert tiles > 1
    for tile in range(tiles):
        for cache, fresh, (call, _kept) in zip(caches, blank, calls, strict=True):
            cache[...] = fresh
            assert row.c.run(call, tile, tile + 1, 0) == 0
        # No byte is as it was in both.
        written += (caches[0] != blank[0]) | (caches[1] != blank[1])
    assert (written == 1).all()


@pytest.mark.parametrize(("form", "head_dim", "heads"), CASES)
@pytest.mark.parametrize("extra", [{}, {"window": 40}, {"softcap": 5.0}, {"causal": 0}], ids=str)
def test_attention_reads_what_slots_stand_for(
    levels: Any, form: str, head_dim: int, heads: int, extra: dict[str, Any]
) -> None:
    """At every level, for decode and prompts, with shared key heads; unused slots do not matter."""
    rng = np.random.default_rng()
    plain = draw_batch(rng, [(1, 70), (9, 33), (2, 600)], head_dim, (heads * 3, heads), **extra)
    batch = packed(plain, form, plain.cache)
    want = oracle(replace(batch, cache=meant(batch)))
    whole = batch.run(levels[0].row("attn_paged"))
    close(whole / 4, want / 4)
    for level in levels[1:]:
        assert batch.run(level.row("attn_paged"), 1).tobytes() == whole.tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_a_row_of_a_packed_cache_does_not_know_its_batch(levels: Any, form: str) -> None:
    """Each row alone gives the bits it gives in the batch, however many queries share a page."""
    rng = np.random.default_rng()
    plain = draw_batch(rng, [(1, 1300), (70, 600), (1, 1), (33, 33)], 64, (6, 2))
    batch = packed(plain, form, plain.cache)
    whole = batch.run(levels[0].row("attn_paged"))
    assert np.isfinite(whole).all()
    for level in levels:
        row = level.row("attn_paged")
        for seq, index in ((0, 0), (1, 0), (1, 31), (1, 69), (2, 0), (3, 20), (3, 32)):
            got = batch.alone(seq, index).run(row)
            assert got.tobytes() == whole[batch.cuts[seq] + index].tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_huge_numbers_saturate_and_no_number_stays_none(best: Any, form: str) -> None:
    """A slot beyond every range gives finite answers; one of NaN spoils only who sees it."""
    rng = np.random.default_rng()
    plain = draw_batch(rng, [(40, 40)], 64, (2, 1))
    plain.cache[np.isfinite(plain.cache)] *= 1e30
    batch = packed(plain, form, plain.cache)
    assert np.isfinite(batch.run(best.row("attn_paged"))).all()
    for part in kv_rows.parts(batch.cache, form, 64):
        lost = np.full((1, 64), np.nan, np.float32)
        kv_rows.write(part, int(batch.table[0, 0]), 17, lost)
    out = batch.run(best.row("attn_paged"))
    assert np.isfinite(out[:17]).all()
    assert np.isnan(out[17:]).all()


@pytest.mark.parametrize(
    ("form", "head_dim", "change", "status"),
    [
        ("fp8", 64, lambda a: a[..., :-1], -1),
        ("fp8", 64, lambda a: a.astype(np.float32), -2),
        ("k6_v4", 64, lambda a: a[:, :, ::2], -1),
        ("k6_v4", 64, lambda a: np.repeat(a, 2, 2)[:, :, ::2], -4),
        ("k6_v4", 64, lambda a: a[0], -1),
        ("fp8_v4", 40, lambda a: a, -1),
        ("fp8", 12, lambda a: a, -1),
        ("int8", 64, lambda a: a[..., :-1], -1),
        ("k8_v4", 40, lambda a: a, -1),
    ],
)
def test_refuses_pools_of_another_form(
    best: Any, form: str, head_dim: int, change: Any, status: int
) -> None:
    """A pool of another width, type or stride, or a head that scales do not divide, is a status."""
    batch = draw_batch(np.random.default_rng(), [(1, 70)], 64, (4, 2))
    pages = len(batch.cache)
    cache = change(np.zeros((pages, 2, PAGE, cache_dtype(form).row(64)), np.uint8))
    params = {**batch.params, "kv_dtype": form, "head_dim": head_dim}
    q = np.zeros((1, 4 * head_dim), np.float32)
    out = np.zeros_like(q)
    operands = [q, cache, batch.table, batch.used, batch.cuts, out]
    assert best.row("attn_paged")(operands, params) == status
    rows = np.zeros((1, 2 * head_dim), np.float32)
    store = {"M": 1, "head_dim": head_dim, "n_head_kv": 2, "block_size": PAGE, "kv_dtype": form,
             "dtype": "f32"}  # fmt: skip
    assert best.row("kv_store")([rows, rows, np.zeros(1, np.int32), cache], store) == status
