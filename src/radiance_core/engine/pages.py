"""The state that conversations keep: found, held, extended and given back as a whole."""

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from radiance_core.engine.blocks import CachedBlock, PagePool
from radiance_core.engine.groups import CopyPage, HeldPages, MakeGroup, PagedGroup, StateGroup
from radiance_core.engine.prefix_cache import Chain, PrefixCache
from radiance_core.plan.budget import KvPlan

NEVER = 2**62
"""More tokens than any text has."""


@dataclass(slots=True, eq=False)
class Held:
    """What one sequence has.

    ``pages``: by group. ``blocks``: the cached blocks that its computed tokens are. ``seal_at``:
    computed tokens at which there is another. ``room``: tokens that it has pages for.
    """

    pages: dict[str, HeldPages]
    seal_at: int
    room: int = 0
    blocks: list[CachedBlock] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Text:
    """A sequence's tokens so far, to which more are appended; their keys; how many they may be."""

    chain: Chain
    ids: list[int]
    most_tokens: int


class StateCache:
    """The groups of a model, which a sequence enters and leaves as a whole.

    Args:
        plans: the groups.
        step_tokens: most tokens of one sequence in one step.
        copy_page: copies what a page of a group holds.
        clear_page: overwrites what a page of a group holds with zeros.
        keep: whether what was computed can be found again.
        make_group: makes a group from its extents.
    """

    def __init__(
        self,
        plans: Mapping[str, KvPlan],
        step_tokens: int,
        copy_page: CopyPage,
        clear_page: Callable[[str, int], None],
        *,
        keep: bool = True,
        make_group: MakeGroup = PagedGroup,
    ) -> None:
        self.pools: dict[str, PagePool] = {}
        self._cache = PrefixCache(self.pools)
        for name, plan in plans.items():
            self.pools[name] = PagePool(plan.pages, partial(self._cache.forget, group=name))
        self.groups: list[StateGroup] = [
            make_group(plan, self.pools[name], copy_page, step_tokens)
            for name, plan in plans.items()
        ]
        self._unit = math.lcm(*(plan.block_size for plan in plans.values()))
        self._clear_page = clear_page
        self.keeps = keep
        self._secret = secrets.token_bytes(32)

    def chain(self, salt: str) -> Chain:
        """Return the keys of a text that has not begun."""
        return Chain(salt.encode(errors="surrogatepass"), self._unit, self._secret)

    def needs(self, tokens: int) -> dict[str, int]:
        """Return the pages by group that a sequence of ``tokens`` tokens can hold at once."""
        return {group.name: group.most_pages(tokens) for group in self.groups}

    def next_key(self, text: Text) -> tuple[int, bytes] | None:
        """Return number and key of the first whole block of a text that is not to be found."""
        path = self._find(text)[0] if self.keeps else []
        keys = text.chain.keys
        return (len(path), keys[len(path)]) if len(path) < len(keys) else None

    def enter(self, text: Text, *, reuse: bool, spare: int) -> tuple[Held, int] | None:
        """Hold what a sequence needs for the tokens it has.

        Args:
            text: the sequence's tokens.
            reuse: whether to look for what was computed before.
            spare: pages of each group without a window that must stay free for others to grow.

        Returns:
            What it holds, and of how many tokens the state was found: fewer than it has, for its
            last one must be computed. ``None``, and nothing has changed, when pages are short.
        """
        path, hit = self._find(text) if reuse and self.keeps else ([], 0)
        while not all(self._fits(g, path, hit, len(text.ids), spare) for g in self.groups):
            if hit % self._unit == 0:
                return None
            # The copy of a block of which all but one token was found may be what is too much.
            path = path[: self._hit_blocks(path[:-1], len(text.ids))]
            hit = len(path) * self._unit
        pages = {group.name: group.empty(text.most_tokens) for group in self.groups}
        held = Held(pages, (hit // self._unit + 1) * self._unit if self.keeps else NEVER)
        # All that is shared is held before anything is taken, so that taking does not evict it.
        for group in self.groups:
            group.adopt(pages[group.name], *group.shared(path, self._unit, hit), hit)
        for block in path[: hit // self._unit]:
            block.uses += 1
            held.blocks.append(block)
        for group in self.groups:
            if not group.is_bounded:
                got = group.hold(pages[group.name], hit, len(text.ids))
                assert got, "room was checked before"
        return held, hit

    def _find(self, text: Text) -> tuple[list[CachedBlock], int]:
        """Return the blocks to begin with, and how many tokens are taken over from them."""
        text.chain.reach(text.ids, len(text.ids) // self._unit)
        path = self._cache.path(text.chain)
        hit = min(self._hit_blocks(path, len(text.ids)) * self._unit, len(text.ids) - 1)
        return path[: -(-hit // self._unit)], hit

    def _hit_blocks(self, path: Sequence[CachedBlock], num_tokens: int) -> int:
        """Return how many blocks of the path can be taken over: in all groups or not at all."""
        whole = {g.name: _runs(path, g.name) for g in self.groups}
        for count in range(len(path), 0, -1):
            next_position = min(count * self._unit, num_tokens - 1)
            if all(
                g.can_begin(next_position)
                and whole[g.name][count - 1] >= count - g.first_seen(next_position) // self._unit
                for g in self.groups
            ):
                return count
        return 0

    def _fits(
        self, group: StateGroup, path: Sequence[CachedBlock], hit: int, tokens: int, spare: int
    ) -> bool:
        _, shared = group.shared(path, self._unit, hit)
        copied = hit % group.block_size != 0
        need = max(0, group.most_pages(tokens) - len(shared)) + copied
        room = group.pool.num_available - sum(map(group.pool.is_kept, shared))
        return need + (0 if group.is_bounded else spare) <= room

    def hold(self, held: Held, computed: int, end: int) -> bool:
        """Hold what a step over positions [computed, end) needs; False when pages are short.

        It need not be called before ``end`` is over ``held.room``.
        """
        pages = held.pages
        if not all(group.hold(pages[group.name], computed, end) for group in self.groups):
            return False
        held.room = min(pages[group.name].stop * group.block_size for group in self.groups)
        return True

    def seal(self, held: Held, text: Text, computed: int) -> None:
        """Let the whole blocks of the first ``computed`` tokens be found by others.

        It need not be called before there are ``held.seal_at``.
        """
        if computed < held.seal_at:
            return
        done = computed // self._unit
        held.seal_at = (done + 1) * self._unit
        text.chain.reach(text.ids, done)
        while len(held.blocks) < done:
            index = len(held.blocks)
            parent = held.blocks[-1] if held.blocks else self._cache.root(text.chain)
            block = parent and self._cache.add(text.chain, index, parent)
            if block is None:
                held.seal_at = NEVER
                return
            block.uses += 1
            held.blocks.append(block)
            for group in self.groups:
                pages = group.pages_of(held.pages[group.name], index, self._unit)
                if pages and group.name not in block.pages:
                    block.pages[group.name] = pages
                    for page in pages:
                        group.pool.remember(page, block)

    def leave(self, held: Held) -> dict[str, list[int]]:
        """Give everything back; return by group the pages that hold what can never be found."""
        unused = {g.name: g.leave(held.pages[g.name]) for g in self.groups}
        while held.blocks:
            self._cache.release(held.blocks.pop())
        return unused

    def condemn(self, held: Held) -> None:
        """Give everything back and let nobody find it: what was computed is not to be trusted."""
        self._cache.condemn(held.blocks)
        for name, pages in self.leave(held).items():
            for page in pages:
                self._clear_page(name, page)

    def reset(self) -> bool:
        """Forget all that nobody uses; return whether that was everything."""
        for name, pool in self.pools.items():
            for block in pool.kept_blocks():
                self._cache.forget(block, name)
        return all(pool.num_cached == 0 for pool in self.pools.values())


def _runs(path: Sequence[CachedBlock], group: str) -> list[int]:
    """Return for each block how many blocks up to it have pages of a group without a gap."""
    runs: list[int] = []
    for block in path:
        runs.append((runs[-1] if runs else 0) + 1 if group in block.pages else 0)
    return runs
