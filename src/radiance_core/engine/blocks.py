"""Pages of one cache group: free, held by sequences, or kept for a prompt that may come again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Optional


@dataclass(slots=True, eq=False)
class CachedBlock:
    """Tokens whose state can be found again: a node of the tree of all that was computed.

    Args:
        key: chained content hash; who knows it must still have the same tokens to hit.
        parent: the block before; ``None`` for a root, which stands for a salt.
        tokens: ids of the block's tokens, i32 as bytes; of a root, the salt.
        pages: pages that hold its state, by group, where they are still there.
        uses: blocks after it and running sequences that came through it; it stays while there are.
        is_condemned: what it holds is not to be trusted, nor what was computed from there on.
    """

    key: bytes
    parent: Optional["CachedBlock"]
    tokens: bytes
    pages: dict[str, tuple[int, ...]] = field(default_factory=dict)
    uses: int = 0
    is_condemned: bool = False


class PagePool:
    """Pages 0..num_pages-1, each of which is free, held by sequences, or only kept by the cache.

    What the cache keeps is room: when no page is free, the one that nobody has held for longest is
    taken from it.

    Args:
        num_pages: pages.
        evict: makes the cache forget a block's pages of this pool, through ``forget``.
    """

    def __init__(self, num_pages: int, evict: Callable[[CachedBlock], None]) -> None:
        self.num_pages = num_pages
        self.num_evicted = 0
        self._evict = evict
        self._free = list(range(num_pages - 1, -1, -1))
        self._holders = [0] * num_pages
        self._block: list[CachedBlock | None] = [None] * num_pages
        # Pages that only the cache has, the one left longest ago first.
        self._kept: dict[int, None] = {}

    @property
    def num_available(self) -> int:
        """Pages that can be taken."""
        return len(self._free) + len(self._kept)

    @property
    def num_used(self) -> int:
        """Pages that sequences hold."""
        return self.num_pages - len(self._free) - len(self._kept)

    @property
    def num_kept(self) -> int:
        """Pages that only the cache has."""
        return len(self._kept)

    def take(self) -> int | None:
        """Hand out a page for writing; ``None`` when sequences hold all of them."""
        if not self._free:
            if not self._kept:
                return None
            block = self._block[next(iter(self._kept))]
            assert block is not None, "what is kept belongs to a block"
            self.num_evicted += 1
            self._evict(block)
        page = self._free.pop()
        self._holders[page] = 1
        return page

    def share(self, page: int) -> None:
        """Let one more sequence hold a page of the cache."""
        assert self._block[page] is not None, "only what is cached is shared"
        self._holders[page] += 1
        self._kept.pop(page, None)

    def give(self, page: int) -> None:
        """Take a page back from one that holds it."""
        assert self._holders[page] > 0, "a page is given back once by each that holds it"
        self._holders[page] -= 1
        if self._holders[page] == 0:
            if self._block[page] is None:
                self._free.append(page)
            else:
                self._kept[page] = None

    def remember(self, page: int, block: CachedBlock) -> None:
        """Note that a held page is a block's, so that it can be found again."""
        assert self._block[page] is None, "a page belongs to one block"
        assert self._holders[page] > 0, "a page is written by one that holds it"
        self._block[page] = block

    def forget(self, page: int) -> None:
        """Note that a page cannot be found any more; those who hold it keep it."""
        self._block[page] = None
        if self._holders[page] == 0:
            del self._kept[page]
            self._free.append(page)

    def is_own(self, page: int) -> bool:
        """Return whether its one holder may write to a page."""
        return self._holders[page] == 1 and self._block[page] is None

    def is_kept(self, page: int) -> bool:
        """Return whether only the cache has a page."""
        return page in self._kept

    def kept_blocks(self) -> list[CachedBlock]:
        """Return the blocks of all pages that only the cache has."""
        return [block for page in self._kept if (block := self._block[page]) is not None]

    @property
    def num_cached(self) -> int:
        """Pages that can be found again, held or not."""
        return sum(block is not None for block in self._block)
