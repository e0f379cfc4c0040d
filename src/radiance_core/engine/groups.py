"""One group of states that the cache keeps for a sequence: of which kind, in which pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from radiance_core.engine.blocks import CachedBlock, PagePool
from radiance_core.plan.budget import KvPlan

GroupKind = Literal["full", "window", "linear", "conv"]
CopyPage = Callable[[str, int, int], None]
"""Copies a group's page: (group, from, to)."""


@dataclass(slots=True, eq=False)
class HeldPages:
    """What one sequence has of one group: the pages of blocks [first, stop).

    ``table`` has the page of every block that the sequence can come to, -1 where none is held;
    ``changes`` counts how often it has changed. ``is_borrowed``: the last page is of the cache and
    has room, so that it must be copied before a token is written there.
    """

    table: np.ndarray
    first: int = 0
    stop: int = 0
    changes: int = 0
    is_borrowed: bool = False

    @property
    def pages(self) -> list[int]:
        """The held pages in order of their blocks."""
        pages: list[int] = self.table[self.first : self.stop].tolist()
        return pages


class StateGroup(Protocol):
    """What the cache asks of a group; recurrent states are to be groups of other kinds.

    ``block_size``: tokens of a page. ``is_bounded``: the pages of a sequence do not grow with its
    text for ever, so that nobody needs some to spare.
    """

    name: str
    kind: GroupKind
    pool: PagePool
    block_size: int

    @property
    def is_bounded(self) -> bool:
        """Whether ``most_pages`` has a limit however long a text is."""

    def most_pages(self, tokens: int) -> int:
        """Return the pages that a sequence of ``tokens`` tokens can hold at once."""

    def first_seen(self, position: int) -> int:
        """Return the first position whose state the row at ``position`` needs."""

    def can_begin(self, position: int) -> bool:
        """Return whether a row at ``position`` can go on from cached pages of what it needs."""

    def empty(self, most_tokens: int) -> HeldPages:
        """Return what a sequence has before it begins."""

    def shared(self, path: Sequence[CachedBlock], unit: int, hit: int) -> tuple[int, list[int]]:
        """Return the first block, and the pages from there on, that a hit of ``hit`` tokens needs.

        Args:
            path: cached blocks of ``unit`` tokens that cover the hit and hold what it needs.
        """

    def adopt(self, mine: HeldPages, first: int, pages: Sequence[int], hit: int) -> None:
        """Begin with pages of the cache that hold the state of ``hit`` tokens."""

    def hold(self, mine: HeldPages, computed: int, end: int) -> bool:
        """Hold what a step over positions [computed, end) needs; False when there is not enough.

        What was taken until then stays held, so that the call can be repeated.
        """

    def pages_of(self, mine: HeldPages, index: int, unit: int) -> tuple[int, ...]:
        """Return the pages of cached block ``index`` of ``unit`` tokens, none unless all."""

    def leave(self, mine: HeldPages) -> list[int]:
        """Give everything back; return what nobody has any more, which may be cleared."""


MakeGroup = Callable[[KvPlan, PagePool, CopyPage, int], StateGroup]
"""Makes a group: (extents, pages, copies what a page holds, most tokens of a step)."""


class PagedGroup:
    """A group of full or windowed attention, whose pages hold ``block_size`` tokens each.

    Args:
        plan: its extents.
        pool: its pages.
        copy_page: copies what a page holds.
        step_tokens: most tokens of one sequence in one step.
    """

    def __init__(self, plan: KvPlan, pool: PagePool, copy_page: CopyPage, step_tokens: int) -> None:
        self.name = plan.name
        self.kind: GroupKind = "window" if plan.window else "full"
        self.pool = pool
        # Positions that a row sees, itself included; 0 for all.
        self.window = plan.window
        self.block_size = plan.block_size
        self._copy_page = copy_page
        self._step_tokens = step_tokens

    def most_pages(self, tokens: int) -> int:
        """Return the pages that a sequence of ``tokens`` tokens can hold at once."""
        if self.window:
            tokens = min(tokens, self.window + self._step_tokens + self.block_size)
        return -(-tokens // self.block_size)

    def first_seen(self, position: int) -> int:
        """Return the first position that the row at ``position`` sees."""
        return max(0, position - self.window + 1) if self.window else 0

    @property
    def is_bounded(self) -> bool:
        """Whether pages are given back as the text goes on."""
        return self.window > 0

    def can_begin(self, _position: int) -> bool:
        """Return that any will do: keys and values are there for each position."""
        return True

    def empty(self, most_tokens: int) -> HeldPages:
        """Return what a sequence has before it begins."""
        return HeldPages(np.full(-(-most_tokens // self.block_size), -1, np.int32))

    def shared(self, path: Sequence[CachedBlock], unit: int, hit: int) -> tuple[int, list[int]]:
        """Return the first block, and the pages from there on, that a hit of ``hit`` tokens needs.

        Args:
            path: cached blocks of ``unit`` tokens that cover the hit and hold what it needs.
        """
        size = self.block_size
        first, stop, each = self.first_seen(hit) // size, -(-hit // size), unit // size
        pages = [p for block in path[first // each :] for p in block.pages[self.name]]
        return first, pages[first % each :][: stop - first]

    def adopt(self, mine: HeldPages, first: int, pages: Sequence[int], hit: int) -> None:
        """Begin with pages of the cache that hold the state of ``hit`` tokens."""
        for page in pages:
            self.pool.share(page)
        mine.first, mine.stop = first, first + len(pages)
        mine.table[mine.first : mine.stop] = pages
        mine.is_borrowed = hit < mine.stop * self.block_size

    def hold(self, mine: HeldPages, computed: int, end: int) -> bool:
        """Hold the pages for tokens up to ``end``; let go of blocks that a window has passed.

        block   0     1     2     3     4     5
              ┌─────┬─────┬─────┬─────┬─────┬─────┐
              │ gone│ gone│ held│ held│ new │     │
              └─────┴─────┴─────┴─────┴─────┴─────┘
                          ↑ first key that the row at ``computed`` sees
        """
        size = self.block_size
        if self.window:
            self._pass(mine, self.first_seen(computed) // size)
        if mine.is_borrowed and not self._copy_last(mine):
            return False
        stop = -(-end // size)
        while mine.stop < stop:
            page = self.pool.take()
            if page is None:
                return False
            mine.table[mine.stop] = page
            mine.stop += 1
            mine.changes += 1
        return True

    def _pass(self, mine: HeldPages, keep: int) -> None:
        while mine.first < keep:
            self.pool.give(int(mine.table[mine.first]))
            mine.table[mine.first] = -1
            mine.first += 1
            mine.changes += 1

    def _copy_last(self, mine: HeldPages) -> bool:
        """Copy the last page, so that a token can be written there; False when pages are short."""
        copy = self.pool.take()
        if copy is None:
            return False
        page = int(mine.table[mine.stop - 1])
        self._copy_page(self.name, page, copy)
        self.pool.give(page)
        mine.table[mine.stop - 1] = copy
        mine.changes += 1
        mine.is_borrowed = False
        return True

    def pages_of(self, mine: HeldPages, index: int, unit: int) -> tuple[int, ...]:
        """Return the pages of cached block ``index`` of ``unit`` tokens, none unless all."""
        each = unit // self.block_size
        if index * each < mine.first or (index + 1) * each > mine.stop:
            return ()
        return tuple(mine.table[index * each : (index + 1) * each].tolist())

    def leave(self, mine: HeldPages) -> list[int]:
        """Give every page back, the last first: of a text its beginning is what comes again."""
        unused = []
        for page in reversed(mine.pages):
            if self.pool.is_own(page):
                unused.append(page)
            self.pool.give(page)
        mine.table[mine.first : mine.stop] = -1
        mine.first = mine.stop = 0
        mine.is_borrowed = False
        return unused
