"""Put a conversation cache into pages of another size, and take it out again."""

import numpy as np

from radiance_abi.kernels import Kernel
from radiance_abi.kv_cache import cache_dtype
from radiance_abi.testing.case import Array, Case
from radiance_abi.testing.formulas import kv_rows
from radiance_abi.testing.independence import holds
from radiance_core.kbench.plan import PAGE

_SPARE = 2


def block_size(kernel: Kernel) -> int:
    """Return the block size that a row demands, else the one that caches are drawn in."""
    return next((c.value for c in kernel.where if (c.key, c.op) == ("block_size", "eq")), PAGE)


def serves(kernel: Kernel, case: Case) -> bool:
    """Return whether all constraints of a row hold of a case, in blocks of its own size."""
    sized = {"block_size": block_size(kernel)} if "block_size" in case.params else {}
    return holds(kernel, {**case.params, **sized})


def paged(case: Case, block: int) -> Case:
    """Return a case with its cache in blocks of another size.

    What is stored by slot number stays at its number; sequences get other blocks, in reverse order.
    """
    if "block_size" not in case.params or block == case.params["block_size"]:
        return case
    cache, name, head_dim = case.array("kv_cache"), case.word("kv_dtype"), case.integer("head_dim")
    slots = _slots(cache, name, head_dim)
    if "block_table" not in case.operands:
        made = _empty(-(-len(slots) // block), block, cache)
        _write(made, slots, name, head_dim)
        return case.with_operands(kv_cache=made).with_params(block_size=block)
    used, table = case.array("seqused"), case.array("block_table")
    counts = [-(-int(u) // block) for u in used]
    made = _empty(sum(counts) + _SPARE, block, cache)
    moved = _slots(made, name, head_dim)
    new = np.full((len(used), max(counts) + 1), -1, np.int32)
    free = list(range(len(made)))
    for s, length in enumerate(used.tolist()):
        new[s, : counts[s]] = [free.pop() for _ in range(counts[s])]
        at = np.arange(length)
        old_slots = table[s, at // PAGE].astype(np.int64) * PAGE + at % PAGE
        new_slots = new[s, at // block].astype(np.int64) * block + at % block
        moved[new_slots] = slots[old_slots]
    _write(made, moved, name, head_dim)
    return case.with_operands(kv_cache=made, block_table=new).with_params(block_size=block)


def unpaged(results: dict[str, Array], case: Case, slots: int) -> dict[str, Array]:
    """Return results with a written cache as its slots in order, cut to the first ``slots``.

    A cache that is only read is left out.
    """
    if case.schema.op != "kv_store":
        return {name: array for name, array in results.items() if name != "kv_cache"}
    stored = _slots(results["kv_cache"], case.word("kv_dtype"), case.integer("head_dim"))
    return {**results, "kv_cache": stored[:slots]}


def num_slots(case: Case) -> int:
    """Return the slots of a case's cache as it was drawn; 0 without one."""
    return len(case.array("kv_cache")) * PAGE if "kv_cache" in case.operands else 0


def _empty(pages: int, block: int, like: Array) -> Array:
    """Return pages full of what is no number in any form: what nobody owns may hold anything."""
    shape = (pages, like.shape[1], block, like.shape[3])
    made = np.empty(shape, like.dtype)
    made.view(np.uint8)[...] = 0xFF
    return made


def _slots(cache: Array, name: str, head_dim: int) -> Array:
    """Return what a cache holds by slot number: [slots, heads, n], plain numbers or bytes."""
    if not cache_dtype(name).packed:
        return _flat(cache)
    both = kv_rows.parts(cache, name, head_dim)
    return np.concatenate([_flat(a) for p in both for a in (p.slots(), _bytes(p.scales))], axis=2)


def _write(cache: Array, slots: Array, name: str, head_dim: int) -> None:
    """Put slots, in the form of ``_slots``, into the pages of a cache."""
    pages, heads, block, width = cache.shape
    packed = cache_dtype(name).packed
    halves = kv_rows.parts(cache, name, head_dim) if packed else []
    width = sum(p.place.shape[1] + _bytes(p.scales).shape[3] for p in halves) if packed else width
    taken = np.zeros((pages * block, heads, width), slots.dtype)
    taken[: len(slots)] = slots[: len(taken)]
    rows = taken.reshape(pages, block, heads, width)
    if not packed:
        cache[...] = rows.swapaxes(1, 2)
    start = 0
    for part in halves:
        middle = start + part.place.shape[1]
        stop = middle + _bytes(part.scales).shape[3]
        for offset in range(block):
            one = rows[:, offset]
            part.put(slice(None), offset, one[..., start:middle])
            scales = np.ascontiguousarray(one[..., middle:stop])
            part.scales[:, :, offset] = scales.view(part.scales.dtype)
        start = stop


def _flat(part: Array) -> Array:
    """Return [pages, heads, block, n] as [slots, heads, n]."""
    return part.swapaxes(1, 2).reshape(-1, part.shape[1], part.shape[3])


def _bytes(part: Array) -> Array:
    return np.ascontiguousarray(part).view(np.uint8)
