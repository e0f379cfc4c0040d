"""Operands of the ops on a conversation cache: pages, who owns them, and what nobody owns."""

import numpy as np

from radiance_abi.kernels import Geometry
from radiance_abi.kv_cache import cache_dtype
from radiance_abi.testing.case import Array, Weight, numpy_dtype
from radiance_abi.testing.formulas import kv_rows
from radiance_abi.testing.numbers import numbers

Operands = dict[str, Array | Weight | None]

LONG_PAST = 1100
"""Keys before a row that a kernel which splits them by the hundred does not take at once."""

_PASTS = (0, 1, 15, 16, 47, 64, 90, 130)


def kv_store(operands: Operands, params: Geometry, rng: np.random.Generator) -> None:
    """Make a cache and where in it tokens go; some go nowhere."""
    rows, block = int(params["M"]), int(params["block_size"])
    pages = -(-rows // block) + 2
    operands["kv_cache"] = _cache(pages, params, rng)
    slots = rng.permutation(pages * block)[:rows].astype(np.int32)
    slots[rng.random(rows) < 0.15] = -1
    operands["slot_mapping"] = slots


def attention(
    operands: Operands, params: Geometry, rng: np.random.Generator, past: int = 0
) -> None:
    """Make a ragged batch: sequences of 1 to q_len rows, one of q_len, each after some keys.

    ``past``: how many keys that one sequence has before it, and up to 99 more; 0 for a few.
    """
    most, block = int(params["q_len"]), int(params["block_size"])
    lengths = [int(v) for v in rng.integers(1, most + 1, int(rng.integers(1, 5)))]
    longest = int(rng.integers(len(lengths)))
    lengths[longest] = most
    before = [int(v) for v in rng.choice(_PASTS, len(lengths))]
    if past:
        before[longest] = past + int(rng.integers(100))
    used = [a + b for a, b in zip(before, lengths, strict=True)]
    width = max(-(-u // block) for u in used) + 1
    pages = sum(-(-u // block) for u in used) + 2
    table = np.full((len(used), width), -1, np.int32)
    free = list(rng.permutation(pages))
    for s, u in enumerate(used):
        for p in range(-(-u // block)):
            table[s, p] = free.pop()
    heads = int(params["n_head"]) * int(params["head_dim"])
    kind = numpy_dtype(str(params["dtype"]))
    cache = _cache(pages, params, rng)
    # Memory that no sequence owns may hold anything.
    for page in free:
        _spoil(cache, page, 0, params)
    for s, u in enumerate(used):
        if u % block:
            _spoil(cache, table[s, u // block], u % block, params)
    operands["q"] = numbers((sum(lengths), heads), kind, rng)
    operands["kv_cache"] = cache
    operands["block_table"] = table
    operands["seqused"] = np.array(used, np.int32)
    operands["cu_seqlens"] = np.cumsum([0, *lengths]).astype(np.int32)


def _cache(pages: int, params: Geometry, rng: np.random.Generator) -> Array:
    name, head_dim = str(params["kv_dtype"]), int(params["head_dim"])
    block, heads, form = int(params["block_size"]), int(params["n_head_kv"]), cache_dtype(name)
    shape = (pages, heads, block, form.row(head_dim))
    if not form.packed:
        return rng.standard_normal(shape, np.float32).astype(numpy_dtype(name))
    cache = np.zeros(shape, np.uint8)
    for part in kv_rows.parts(cache, name, head_dim):
        for offset in range(block):
            rows = numbers((pages, heads, head_dim), np.dtype("f4"), rng)
            kv_rows.write(part, slice(None), offset, rows)
    return cache


def _spoil(cache: Array, page: int, first: int, params: Geometry) -> None:
    """Put what is no number into the slots of a page from ``first`` on."""
    name = str(params["kv_dtype"])
    if not cache_dtype(name).packed:
        cache[page, :, first:] = np.nan
        return
    for part in kv_rows.parts(cache, name, int(params["head_dim"])):
        for offset in range(first, cache.shape[2]):
            part.put(page, offset, np.full((cache.shape[1], part.place.shape[1]), part.mask))
        part.scales[page, :, first:] = np.nan if part.half.grouped else 0xFF
