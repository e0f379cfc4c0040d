"""The paged cache of keys and values, and attention over it.

A page holds ``block_size`` tokens, as ``kv_cache`` reads and writes them. Keys are visited in
blocks at fixed absolute positions and rows in blocks of fixed size, so a row's result depends
neither on how a prompt was cut nor on what else is in the step::

    key blocks   |0 ...... 63|64 ..... 127|128 ...   scores, then weights and sums, block by block
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from radiance_abi import Call, KernelError
from radiance_libref import kv_cache
from radiance_libref.views import INVAL, in_groups, integer, number, operands, store

KEY_BLOCK = 64
ROW_BLOCK = 16


def kv_store(call: Call) -> None:
    """Write token i's key and value at slot_mapping[i] = page * block_size + offset.

    A negative slot skips its token.
    """
    keys, values, slots, cache = operands(call)
    pages, _, block_size, _ = cache.shape
    kept = slots >= 0
    slots = slots[kept].to(torch.int64)
    if not len(slots):
        return
    if int(slots.max()) >= pages * block_size:
        raise KernelError(
            f"kv_store: expected slots below {pages * block_size}, got {int(slots.max())}", INVAL
        )
    size = integer(call, "head_dim")
    both = [in_groups(x[kept].to(torch.float32), size) for x in (keys, values)]
    where = slots // block_size, slots % block_size
    kv_cache.write(cache, str(call.params["kv_dtype"]), where, *both)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Which keys a query sees, and how a dot product becomes a logit."""

    causal: bool
    window: int
    scale: float
    cap: float

    def visible(self, position: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """Return [rows, keys]: query at ``position`` sees the key at ``key``."""
        behind = position[:, None] - key[None, :]
        seen = behind >= 0 if self.causal else torch.ones_like(behind, dtype=torch.bool)
        return seen & (behind.abs() < self.window) if self.window > 0 else seen

    def logits(self, dots: torch.Tensor) -> torch.Tensor:
        """Scale, and cap where a cap is set."""
        scaled = dots * self.scale
        return self.cap * torch.tanh(scaled / self.cap) if self.cap > 0 else scaled


def attn_paged(call: Call) -> None:
    """Compute out = softmax(scale * q . K^T) . V for every query of a ragged batch."""
    queries, cache, table, used, bounds, out = operands(call)
    head_dim = integer(call, "head_dim")
    rule = _Rule(
        bool(call.params["causal"]),
        integer(call, "window"),
        number(call, "scale") or head_dim**-0.5,
        number(call, "softcap"),
    )
    cuts = bounds.tolist()
    for s, length in enumerate(used.tolist()):
        rows = slice(cuts[s], cuts[s + 1])
        if rows.start < rows.stop:
            keys, present = _gather(cache, table[s], length, call)
            heads = in_groups(queries[rows].to(torch.float64), head_dim)
            store(out[rows], _attend(heads, keys, present, length, rule).flatten(1))


def _gather(
    cache: torch.Tensor, table: torch.Tensor, length: int, call: Call
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one sequence's cache f64 [n_head_kv, keys, 2*head_dim] and which keys exist.

    Keys are padded to whole blocks; absent ones are zeros, so unused memory does not matter.
    """
    block_size = cache.shape[2]
    count = -(-length // block_size)
    if count > len(table):
        raise KernelError(
            f"attn_paged: expected a block table of at least {count} pages for {length} tokens, "
            f"got {len(table)}",
            INVAL,
        )
    pages = table[:count].to(torch.int64)
    padded = -(-length // KEY_BLOCK) * KEY_BLOCK
    present = torch.zeros(padded, dtype=torch.bool)
    present[:length] = (pages >= 0).repeat_interleave(block_size)[:length]
    head_dim = integer(call, "head_dim")
    both = kv_cache.read(cache, str(call.params["kv_dtype"]), pages.clamp(min=0), head_dim)
    keys = torch.zeros(cache.shape[1], padded, 2 * head_dim, dtype=torch.float64)
    keys[:, :length] = torch.cat(both, dim=3).transpose(0, 1).flatten(1, 2)[:, :length]
    keys[:, ~present] = 0
    return keys, present


def _attend(
    queries: torch.Tensor, keys: torch.Tensor, present: torch.Tensor, length: int, rule: _Rule
) -> torch.Tensor:
    """Return [Q, n_head, head_dim] for the last Q tokens of a sequence of ``length`` tokens."""
    count, n_head, head_dim = queries.shape
    n_kv = len(keys)
    out = torch.empty_like(queries)
    for first in range(0, count, ROW_BLOCK):
        block = queries[first : first + ROW_BLOCK]
        padded = torch.zeros(ROW_BLOCK, n_head, head_dim, dtype=torch.float64)
        padded[: len(block)] = block
        # Consecutive query heads share a key head: [n_kv, heads per kv * rows, head_dim].
        stacked = (
            padded.view(ROW_BLOCK, n_kv, -1, head_dim)
            .permute(1, 2, 0, 3)
            .reshape(n_kv, -1, head_dim)
        )
        position = length - count + first + torch.arange(ROW_BLOCK)
        result = _attend_rows(stacked, position, len(block), keys, present, rule)
        result = result.reshape(n_kv, -1, ROW_BLOCK, head_dim).permute(2, 0, 1, 3).flatten(1, 2)
        out[first : first + len(block)] = result[: len(block)]
    return out


def _key_blocks(
    position: torch.Tensor, rows: int, total: int, rule: _Rule
) -> Iterator[tuple[int, int]]:
    """Yield the key blocks that some of the first ``rows`` rows may see, ascending."""
    low, high = int(position[0]), int(position[rows - 1])
    first = max(0, low - rule.window + 1) if rule.window > 0 else 0
    last = min(total, high + 1) if rule.causal else total
    for start in range(first // KEY_BLOCK * KEY_BLOCK, last, KEY_BLOCK):
        yield start, start + KEY_BLOCK


def _attend_rows(
    queries: torch.Tensor,
    position: torch.Tensor,
    rows: int,
    keys: torch.Tensor,
    present: torch.Tensor,
    rule: _Rule,
) -> torch.Tensor:
    """Return [n_kv, heads per kv * rows, head_dim] for one block of rows, in two passes."""
    head_dim = queries.shape[2]
    repeats = queries.shape[1] // ROW_BLOCK
    blocks = list(_key_blocks(position, rows, len(present), rule))
    logits = []
    for start, stop in blocks:
        seen = rule.visible(position, torch.arange(start, stop)) & present[start:stop]
        dots = rule.logits(queries @ keys[:, start:stop, :head_dim].transpose(1, 2))
        logits.append(dots.masked_fill(~seen.repeat(repeats, 1), -torch.inf))
    total = torch.zeros(*queries.shape[:2], 1, dtype=torch.float64)
    out = torch.zeros_like(queries)
    if not logits:
        return out
    top = torch.stack([x.amax(dim=2) for x in logits]).amax(dim=0).unsqueeze(2)
    top = torch.where(torch.isneginf(top), torch.zeros_like(top), top)
    for (start, stop), x in zip(blocks, logits, strict=True):
        weights = torch.exp(x - top)
        total = total + weights.sum(dim=2, keepdim=True)
        out = out + weights @ keys[:, start:stop, head_dim:]
    # A row that sees no key is a row of zeros.
    return torch.where(total == 0, torch.zeros_like(out), out / total)
