"""What is not to be trusted is found by nobody, nor what anybody computed from there on."""

from radiance_core.engine.pages import Held, StateCache, Text
from radiance_core.plan.budget import KvPlan

from .fake_model import plan
from .recurrent import STATE, group_of


def cache_of(plans: dict[str, KvPlan]) -> StateCache:
    return StateCache(plans, 8, lambda *_: None, lambda *_: None, make_group=group_of)


def compute(cache: StateCache, ids: list[int]) -> tuple[Held, int, Text]:
    """Enter a text and compute all of it block by block; return what it held and found."""
    text = Text(cache.chain(""), list(ids), len(ids) + 30)
    got = cache.enter(text, reuse=True, spare=0)
    assert got is not None
    held, hit = got
    for at in range(hit, len(ids), 4):
        end = min(at + 4, len(ids))
        assert cache.hold(held, at, end)
        cache.seal(held, text, end)
    return held, hit, text


def test_what_another_computed_after_a_condemned_block_is_not_found() -> None:
    """A state kept at ends of blocks needs no earlier one, and yet falls with it."""
    cache = cache_of({STATE: plan(STATE, pages=40, block_size=4)})
    ids = list(range(13))
    bad, hit, _ = compute(cache, ids[:5])
    assert hit == 0
    after, hit, text = compute(cache, ids)
    assert hit == 4, "it goes on from the first one's block"
    cache.condemn(bad)
    # Nor is what it computes from now on, while it runs.
    text.ids.extend(range(13, 21))
    for at in (13, 17):
        assert cache.hold(after, at, at + 4)
        cache.seal(after, text, at + 4)
    assert compute(cache, [*ids, 50])[1] == 0
    cache.leave(after)


def test_a_condemned_text_is_cached_again_once_nobody_holds_it() -> None:
    """Computed afresh when all that came of the bad block is gone, it is found as any other."""
    for plans in (
        {"full": plan("full", pages=40, block_size=4)},
        {STATE: plan(STATE, pages=40, block_size=4)},
    ):
        cache = cache_of(plans)
        ids = list(range(9))
        cache.condemn(compute(cache, ids)[0])
        held, hit, _ = compute(cache, ids)
        assert hit == 0
        cache.leave(held)
        assert compute(cache, ids)[1] == 8
