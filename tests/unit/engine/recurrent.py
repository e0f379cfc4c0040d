"""A group of a third kind: a state that is overwritten token by token, kept at ends of blocks."""

from collections.abc import Sequence

import numpy as np

from radiance_core.engine.blocks import CachedBlock, PagePool
from radiance_core.engine.groups import CopyPage, GroupKind, HeldPages, PagedGroup, StateGroup
from radiance_core.plan.budget import KvPlan


class Recurrent:
    """Page n of a sequence holds its state after the last token computed of block n.

    Nothing is kept of the tokens in between, so that one can go on only from ends of blocks; all
    that a token needs is the state after the one before it.
    """

    def __init__(self, plan: KvPlan, pool: PagePool, _copy: CopyPage, step_tokens: int) -> None:
        self.name = plan.name
        self.kind: GroupKind = "linear"
        self.pool = pool
        self.block_size = plan.block_size
        self._step_tokens = step_tokens

    @property
    def is_bounded(self) -> bool:
        return True

    def most_pages(self, tokens: int) -> int:
        return -(-min(tokens, self._step_tokens + 2 * self.block_size) // self.block_size)

    def first_seen(self, position: int) -> int:
        return max(0, position - 1)

    def can_begin(self, position: int) -> bool:
        return position % self.block_size == 0

    def empty(self, most_tokens: int) -> HeldPages:
        return HeldPages(np.full(-(-most_tokens // self.block_size), -1, np.int32))

    def shared(self, path: Sequence[CachedBlock], unit: int, hit: int) -> tuple[int, list[int]]:
        assert hit % unit == 0
        if not hit:
            return 0, []
        return hit // self.block_size - 1, [path[hit // unit - 1].pages[self.name][-1]]

    def adopt(self, mine: HeldPages, first: int, pages: Sequence[int], hit: int) -> None:
        for page in pages:
            self.pool.share(page)
        mine.first, mine.stop = first, first + len(pages)
        mine.table[mine.first : mine.stop] = pages

    def hold(self, mine: HeldPages, computed: int, end: int) -> bool:
        while mine.first < self.first_seen(computed) // self.block_size:
            self.pool.give(int(mine.table[mine.first]))
            mine.table[mine.first] = -1
            mine.first += 1
            mine.changes += 1
        while mine.stop * self.block_size < end:
            page = self.pool.take()
            if page is None:
                return False
            mine.table[mine.stop] = page
            mine.stop += 1
            mine.changes += 1
        return True

    def pages_of(self, mine: HeldPages, index: int, unit: int) -> tuple[int, ...]:
        last = (index + 1) * unit // self.block_size - 1
        return (int(mine.table[last]),) if mine.first <= last < mine.stop else ()

    def leave(self, mine: HeldPages) -> list[int]:
        unused = [page for page in mine.pages if self.pool.is_own(page)]
        for page in reversed(mine.pages):
            self.pool.give(page)
        mine.table[mine.first : mine.stop] = -1
        mine.first = mine.stop = 0
        return unused


STATE = "state"
"""The name of such a group in a mix of groups."""


def group_of(plan: KvPlan, pool: PagePool, copy: CopyPage, step_tokens: int) -> StateGroup:
    """Make the kind of group that a plan's name asks for."""
    kind = Recurrent if plan.name == STATE else PagedGroup
    return kind(plan, pool, copy, step_tokens)
