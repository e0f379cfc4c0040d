"""The budget: what the conversation cache may take once everything else is paid for."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from radiance_abi.kv_cache import cache_dtype
from radiance_core.graph.errors import BudgetError
from radiance_core.graph.ir import GraphKvGroup
from radiance_core.resolve.stage import KvFormat

MIB = 2**20


@dataclass(frozen=True, slots=True)
class KvPlan:
    """The pool of one group: ``pages`` blocks of ``block_size`` tokens in each of its layers.

    ``dtype``: a word of ``--kv-cache-dtype``, which need not be a dtype of arrays.
    """

    name: str
    pages: int
    block_size: int
    dtype: str
    num_layers: int
    n_head_kv: int
    head_dim: int
    window: int
    page_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole pool."""
        return self.pages * self.page_bytes

    @property
    def key_value_bytes(self) -> tuple[int, int]:
        """Bytes that one token's keys, and its values, take in all layers of the group."""
        key, value = cache_dtype(self.dtype).row_bytes(self.head_dim)
        heads = self.num_layers * self.n_head_kv
        return heads * key, heads * value

    def line(self) -> str:
        """Say what a token of context costs in this group."""
        key, value = self.key_value_bytes
        kept = f" for the last {self.window:,} tokens" if self.window else ""
        return (
            f"  {self.name} ({self.dtype}): {key + value:,} bytes a token{kept}, keys {key:,} and "
            f"values {value:,}"
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """The receipt. All in bytes but the token counts; ``claimable`` is what the cache may take."""

    source: str
    card: int
    weights: int
    activations: int
    staging: int
    headroom: int
    claimable: int
    groups: tuple[KvPlan, ...]
    token_bytes: int
    capacity_tokens: int
    max_context: int
    max_seqs: int

    @property
    def cache_bytes(self) -> int:
        """Bytes of all pools."""
        return sum(g.total_bytes for g in self.groups)

    def lines(self) -> list[tuple[str, int]]:
        """Return the receipt as (text, bytes), in the order of the subtraction."""
        full = self.capacity_tokens / self.max_context
        share = self.capacity_tokens / (self.max_context * self.max_seqs)
        return [
            (self.source, self.card),
            ("  weights, as the kernels lay them out", -self.weights),
            ("  activations", -self.activations),
            ("  step staging", -self.staging),
            ("  headroom (--gpu-headroom-mib)", -self.headroom),
            ("  claimable by the conversation cache", self.claimable),
            (
                "conversation cache, a ceiling that is touched only as it is used: "
                f"{self.token_bytes / 1024:.1f} KiB a token, "
                f"{self.capacity_tokens:,} tokens, {full:.1f} full-length conversations, backs "
                f"{min(share, 1):.0%} of the worst case",
                self.cache_bytes,
            ),
            *((g.line(), g.total_bytes) for g in self.groups),
        ]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server may serve at once: sequences, tokens a step, context tokens of one sequence."""

    max_seqs: int
    max_tokens: int
    max_context: int


def window_pages(group: GraphKvGroup, fmt: KvFormat, limits: Limits) -> int:
    """Return the pages that one sequence of a windowed group can hold at once."""
    held = group.window + limits.max_tokens + fmt.block_size
    return -(-min(held, limits.max_context + fmt.block_size) // fmt.block_size)


def page_bytes(group: GraphKvGroup, fmt: KvFormat) -> int:
    """Return the bytes of one page over all layers of a group: K and V of block_size tokens."""
    slot = sum(cache_dtype(fmt.dtype).row_bytes(group.head_dim))
    return len(group.layers) * group.n_head_kv * fmt.block_size * slot


def plan_budget(
    source: tuple[str, int],
    paid: Mapping[str, int],
    groups: Sequence[GraphKvGroup],
    formats: Mapping[str, KvFormat],
    limits: Limits,
) -> Budget:
    """Divide the card: fixed terms first, the rest to the cache, no more than the worst case needs.

    Args:
        source: what stands for the card, in words, and its bytes.
        paid: bytes of "weights", "activations", "staging" and "headroom".
        groups, formats: the declared pools and their resolved arrangement.
        limits: what is to be served.

    Raises:
        BudgetError: one full-length sequence does not fit; both numbers and what to change.
    """
    card = source[1]
    claimable = card - sum(paid.values())
    full = [g for g in groups if not g.window]
    pages = {
        g.name: window_pages(g, formats[g.name], limits) * limits.max_seqs
        for g in groups
        if g.window
    }
    fixed_bytes = sum(pages[g.name] * page_bytes(g, formats[g.name]) for g in groups if g.window)
    # Pools of full attention grow together, in steps that are whole pages of each of them.
    unit = math.lcm(*(formats[g.name].block_size for g in full))
    unit_bytes = sum(
        page_bytes(g, formats[g.name]) * (unit // formats[g.name].block_size) for g in full
    )
    least = -(-limits.max_context // unit)
    room = claimable - fixed_bytes
    worst = limits.max_seqs * least
    units = worst if unit_bytes == 0 else min(worst, max(room, 0) // unit_bytes)
    if units < least or room < 0:
        need = fixed_bytes + least * unit_bytes
        raise BudgetError(
            f"memory: one conversation of {limits.max_context} tokens needs {need / MIB:.0f} MiB "
            f"of cache, and {max(claimable, 0) / MIB:.0f} MiB are left of {card / MIB:.0f} MiB "
            f"({source[0]}) after weights {paid['weights'] / MIB:.0f}, activations "
            f"{paid['activations'] / MIB:.0f}, staging {paid['staging'] / MIB:.0f} and headroom "
            f"{paid['headroom'] / MIB:.0f} MiB. Lower --max-model-len, --max-num-seqs or "
            "--max-num-batched-tokens, or give more memory."
        )
    for g in full:
        pages[g.name] = units * (unit // formats[g.name].block_size)
    return Budget(
        source[0],
        card,
        paid["weights"],
        paid["activations"],
        paid["staging"],
        paid["headroom"],
        claimable,
        tuple(_plan(g, formats[g.name], pages[g.name]) for g in groups),
        unit_bytes // unit,
        units * unit,
        limits.max_context,
        limits.max_seqs,
    )


def _plan(g: GraphKvGroup, fmt: KvFormat, pages: int) -> KvPlan:
    return KvPlan(
        g.name,
        pages,
        fmt.block_size,
        fmt.dtype,
        len(g.layers),
        g.n_head_kv,
        g.head_dim,
        g.window,
        page_bytes(g, fmt),
    )
