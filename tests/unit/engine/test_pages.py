"""Cached pages against a model of dicts: none lost, none handed out twice, no stale hit."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from radiance_core.engine.blocks import CachedBlock, PagePool
from radiance_core.engine.pages import Held, StateCache, Text
from radiance_core.plan.budget import KvPlan

from .fake_model import plan
from .recurrent import STATE, group_of

STEP = 7
MIXES = [
    {"full": plan("full", pages=24, block_size=4)},
    {"full": plan("full", pages=24, block_size=4), "near": plan("near", 16, 4, window=6)},
    {"near": plan("near", pages=16, block_size=4, window=9), "one": plan("one", 60, 1, window=1)},
    {"full": plan("full", pages=24, block_size=4), "big": plan("big", 12, 8)},
    {"tiny": plan("tiny", pages=60, block_size=1), "wide": plan("wide", 14, 4, window=3)},
    {STATE: plan(STATE, pages=14, block_size=4)},
    {"full": plan("full", pages=24, block_size=4), STATE: plan(STATE, pages=9, block_size=8)},
    {"near": plan("near", 12, 8, window=6), STATE: plan(STATE, pages=20, block_size=4)},
]


@dataclass
class Mine:
    """What the oracle knows of a sequence."""

    text: Text
    salt: str
    held: Held
    computed: int


class Cache(RuleBasedStateMachine):
    """Sequences of few different tokens come, grow, write, end, lose their place and go.

    The oracle keeps what every page holds: for each of its slots the whole text up to there. What a
    sequence holds must be its own text wherever a row of its may look, whatever others did.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, Mine] = {}

    @initialize(plans=st.sampled_from(MIXES))
    def make(self, plans: dict[str, KvPlan]) -> None:
        self.plans = plans
        self.slots: dict[str, dict[int, tuple[Any, ...]]] = {n: {} for n in self.plans}
        self.cache = StateCache(self.plans, STEP, self.copy, self.clear, make_group=group_of)
        self.texts: list[tuple[str, list[int]]] = []
        self.computed_once: set[tuple[Any, ...]] = set()
        self.count = 0

    def copy(self, group: str, source: int, target: int) -> None:
        cells, size = self.slots[group], self.plans[group].block_size
        for i in range(size):
            cells.pop(target * size + i, None)
            if source * size + i in cells:
                cells[target * size + i] = cells[source * size + i]

    def clear(self, group: str, page: int) -> None:
        size = self.plans[group].block_size
        for i in range(size):
            self.slots[group].pop(page * size + i, None)

    sequences = Bundle("sequences")

    @rule(
        target=sequences,
        ids=st.lists(st.integers(0, 1), min_size=1, max_size=40),
        salt=st.sampled_from(["", "t"]),
        reuse=st.sampled_from([True, True, True, False]),
        spare=st.integers(0, 2),
        like=st.integers(0, 4),
        cut=st.integers(1, 40),
    )
    def enter(self, ids: list[int], salt: str, reuse: bool, spare: int, like: int, cut: int) -> int:
        """Come with a new text, or with the beginning of an earlier one and a little more."""
        if like < len(self.texts):
            salt, before = self.texts[-1 - like]
            if len(ids) % 2:
                ids = [*before[:cut], *ids[: len(ids) % 5]][:40]
            else:
                ids = before[: cut // 8 * 8 or cut]  # all of it may be whole blocks
        text = Text(self.cache.chain(salt), list(ids), len(ids) + 30)
        before = {n: (p.num_used, p.num_available) for n, p in self.cache.pools.items()}
        got = self.cache.enter(text, reuse=reuse, spare=spare)
        self.count += 1
        if got is None:
            assert {n: (p.num_used, p.num_available) for n, p in self.cache.pools.items()} == before
            assert self.live or spare, "one sequence alone always fits"
        else:
            held, hit = got
            assert 0 <= hit < len(ids), "the last token is always computed"
            assert hit == 0 or reuse
            assert hit == 0 or (salt, *ids[:hit]) in self.computed_once, "never computed, not found"
            self.texts.append((salt, text.ids))
            self.live[self.count] = Mine(text, salt, held, hit)
            self.readable(self.live[self.count])
        return self.count

    @rule(seq=sequences, count=st.integers(1, STEP), token=st.integers(0, 1))
    def advance(self, seq: int, count: int, token: int) -> None:
        """Run a step of one sequence, as far as it has tokens; then it has one more."""
        mine = self.live.get(seq)
        if mine is None:
            return
        ids = mine.text.ids
        end = min(len(ids), mine.computed + count)
        if not self.cache.hold(mine.held, mine.computed, end):
            assert len(self.live) > 1, "one sequence alone is never short"
            return
        for name in self.plans:
            for at in range(mine.computed, end):
                if name == STATE and at:
                    assert self.slots[name][self.slot(mine, name, at - 1)] == (mine.salt, *ids[:at])
                slot = self.slot(mine, name, at)
                self.slots[name][slot] = (mine.salt, *ids[: at + 1])
                self.computed_once.add((mine.salt, *ids[: at + 1]))
        self.readable(mine, end)
        mine.computed = end
        self.cache.seal(mine.held, mine.text, end)
        if end == len(ids) and len(ids) < mine.text.most_tokens:
            ids.append(token)

    @rule(seq=sequences)
    def read(self, seq: int) -> None:
        """Run as many steps as the whole text takes."""
        mine = self.live.get(seq)
        if mine is not None:
            for _ in range(mine.computed, len(mine.text.ids), STEP):
                self.advance(seq, STEP, 0)

    @rule(target=sequences, seq=sequences)
    def again(self, seq: int) -> int:
        """Come with exactly the whole blocks of what another text has computed."""
        mine = self.live.get(seq)
        if mine is None or mine.computed < 8:
            return seq
        self.read(seq)
        ids = mine.text.ids[: mine.computed // 8 * 8]
        return self.enter(list(ids), mine.salt, True, 0, len(self.texts), 1)

    def slot(self, mine: Mine, name: str, at: int) -> int:
        """Where a text has what its token ``at`` left: of a state, one place for a whole page."""
        size = self.plans[name].block_size
        page = int(mine.held.pages[name].table[at // size])
        return page * size + (0 if name == STATE else at % size)

    def readable(self, mine: Mine, end: int = 0) -> None:
        """All that the rows from ``computed`` on see is what this text computes to."""
        end = max(mine.computed, end)
        for name, p in self.plans.items():
            low = max(0, mine.computed - p.window + 1) if p.window else 0
            if name == STATE:
                low = max(0, end - 1)
            for at in range(low, end):
                slot = self.slot(mine, name, at)
                assert slot >= 0
                assert self.slots[name][slot] == (mine.salt, *mine.text.ids[: at + 1])

    @rule(seq=consumes(sequences))
    def finish(self, seq: int) -> None:
        if seq in self.live:
            self.cache.leave(self.live.pop(seq).held)

    @rule(seq=sequences)
    def preempt(self, seq: int) -> None:
        """Lose everything, and come back if there is room."""
        mine = self.live.get(seq)
        if mine is None:
            return
        self.cache.leave(mine.held)
        got = self.cache.enter(mine.text, reuse=True, spare=0)
        if got is None:
            del self.live[seq]
        else:
            mine.held, mine.computed = got
            self.readable(mine)

    @rule(seq=consumes(sequences))
    def condemn(self, seq: int) -> None:
        """What a sequence computed is found by none that comes later."""
        mine = self.live.pop(seq, None)
        if mine is None:
            return
        ids, has_blocks = mine.text.ids, bool(mine.held.blocks)
        self.cache.condemn(mine.held)
        text = Text(self.cache.chain(mine.salt), [*ids, 0], len(ids) + 1)
        assert not has_blocks or self.cache._find(text) == ([], 0)

    @rule()
    def reset(self) -> None:
        """Afterwards nothing is found but what is in use."""
        everything = self.cache.reset()
        pools = self.cache.pools.values()
        assert all(p.num_kept == 0 for p in pools)
        assert everything == all(block is None for p in pools for block in p._block)
        if not self.live:
            assert everything
            assert len(self.cache._cache) == 0

    @invariant()
    def pages_are_accounted_for(self) -> None:
        for name, pool in self.cache.pools.items():
            holders = [0] * pool.num_pages
            for mine in self.live.values():
                has = mine.held.pages[name]
                assert has.table[: has.first].tolist() == [-1] * has.first
                assert (has.table[has.stop :] == -1).all()
                for page in has.pages:
                    holders[page] += 1
            assert holders == pool._holders
            used = {page for page, count in enumerate(holders) if count}
            assert len(used) == pool.num_used
            free, kept = set(pool._free), set(pool._kept)
            assert len(free) == len(pool._free)
            assert used | free | kept == set(range(pool.num_pages))
            assert len(used) + len(free) + len(kept) == pool.num_pages
            for page, block in enumerate(pool._block):
                assert (block is None) or page in block.pages[name]
                assert block is not None or page not in kept
                assert block is None or page not in free

    @invariant()
    def blocks_are_reachable(self) -> None:
        """Each block is there because of pages, of blocks after it or of sequences, and counted."""
        blocks = self.cache._cache._blocks
        uses: dict[bytes, int] = dict.fromkeys(blocks, 0)
        for block in blocks.values():
            if block.parent is not None:
                assert blocks[block.parent.key] is block.parent
                uses[block.parent.key] += 1
        for mine in self.live.values():
            for block in mine.held.blocks:
                uses[block.key] += 1
        for key, block in blocks.items():
            assert block.uses == uses[key]
            assert block.uses or block.pages


Cache.TestCase.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
test_cache = Cache.TestCase


def pool_of(num_pages: int) -> tuple[PagePool, list[CachedBlock]]:
    """A pool, and the blocks that it evicted."""
    evicted: list[CachedBlock] = []

    def evict(block: CachedBlock) -> None:
        evicted.append(block)
        for page in block.pages.pop("g"):
            pool.forget(page)

    pool = PagePool(num_pages, evict)
    return pool, evicted


def test_the_page_left_longest_ago_makes_room() -> None:
    """Free pages go first, then those of the cache in the order in which they were left."""
    pool, evicted = pool_of(3)
    pages = [pool.take() for _ in range(3)]
    blocks = []
    for page in pages:
        assert page is not None
        block = CachedBlock(b"", None, b"", {"g": (page,)})
        pool.remember(page, block)
        blocks.append(block)
    assert pool.take() is None
    for i in (1, 0, 2):
        pool.give(pages[i])  # type: ignore[arg-type]
    pool.share(pages[1])  # type: ignore[arg-type]
    pool.give(pages[1])  # type: ignore[arg-type]
    assert [pool.take() for _ in range(4)] == [pages[0], pages[2], pages[1], None]
    assert evicted == [blocks[0], blocks[2], blocks[1]]
    assert pool.num_evicted == 3


def test_a_pool_guards_its_books() -> None:
    """Giving back twice, sharing and remembering what is nobody's are our own faults."""
    pool, _ = pool_of(2)
    page = pool.take()
    assert page is not None
    with pytest.raises(AssertionError, match="only what is cached is shared"):
        pool.share(page)
    pool.give(page)
    with pytest.raises(AssertionError, match="a page is given back once by each that holds it"):
        pool.give(page)
    block = CachedBlock(b"", None, b"")
    with pytest.raises(AssertionError, match="a page is written by one that holds it"):
        pool.remember(page, block)
    page = pool.take()
    assert page is not None
    pool.remember(page, block)
    with pytest.raises(AssertionError, match="a page belongs to one block"):
        pool.remember(page, block)


def cache_of(num_pages: int) -> StateCache:
    """A cache of one group with blocks of 4 tokens."""
    return StateCache({"g": plan("g", num_pages, 4)}, 64, lambda *_: None, lambda *_: None)


def compute(cache: StateCache, ids: list[int]) -> tuple[Held, int]:
    """Enter with a text and compute all of it; return what is held and what was found."""
    text = Text(cache.chain(""), list(ids), 64)
    got = cache.enter(text, reuse=True, spare=0)
    assert got is not None
    assert cache.hold(got[0], got[1], len(ids))
    cache.seal(got[0], text, len(ids))
    return got


def test_the_last_page_of_a_hit_is_not_copied_where_there_is_no_room() -> None:
    """A text that fills the pool and comes again computes its last block instead."""
    cache, ids = cache_of(4), list(range(16))
    cache.leave(compute(cache, ids)[0])
    held, hit = compute(cache, ids)
    assert hit == 12
    cache.leave(held)
    roomy = cache_of(5)
    roomy.leave(compute(roomy, ids)[0])
    assert compute(roomy, ids)[1] == 15


def test_a_state_that_is_overwritten_is_found_at_ends_of_blocks_only() -> None:
    """The last token is computed again: from there with pages of keys, else from a block's end."""
    plans = {"full": plan("full", 40, 4), STATE: plan(STATE, 40, 4)}
    for kinds, found in ((["full"], 11), ([STATE], 8), (["full", STATE], 8)):
        cache = StateCache(
            {name: plans[name] for name in kinds},
            64,
            lambda *_: None,
            lambda *_: None,
            make_group=group_of,
        )
        ids = list(range(12))
        cache.leave(compute(cache, ids)[0])
        held, hit = compute(cache, ids)
        assert hit == found
        cache.leave(held)
        # With one more token the whole of the text before it is found, of either kind.
        assert compute(cache, [*ids, 12])[1] == 12


def test_what_is_found_is_no_room_for_the_rest() -> None:
    """Pages of the cache that a text takes over cannot be taken for its other tokens as well."""
    cache = cache_of(6)
    compute(cache, [7] * 12)
    cache.leave(compute(cache, [1] * 8)[0])
    text = Text(cache.chain(""), [1] * 16, 64)
    assert cache.enter(text, reuse=True, spare=0) is None
    assert cache.enter(Text(cache.chain(""), [1] * 12, 64), reuse=True, spare=0) is not None
