"""The budget: its arithmetic adds up, one conversation always fits, and pools never run short."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiance_core.engine.pages import StateCache, Text
from radiance_core.graph.errors import BudgetError
from radiance_core.graph.ir import GraphKvGroup, GraphValue
from radiance_core.plan.budget import MIB, Budget, Limits, page_bytes, plan_budget
from radiance_core.resolve.stage import KvFormat

VALUE = GraphValue("v", ("TOKENS",), "i32", "step input", 0)


def group(
    name: str, window: int = 0, layers: int = 2, heads: int = 1, dim: int = 8
) -> GraphKvGroup:
    return GraphKvGroup(name, heads, dim, tuple(range(layers)), window, VALUE, VALUE, VALUE)


def paid(weights: int = 10, activations: int = 3, staging: int = 2, headroom: int = 1) -> dict:
    terms = {"weights": weights, "activations": activations, "staging": staging}
    return {k: v * MIB for k, v in (terms | {"headroom": headroom}).items()}


def test_a_page_is_keys_and_values_of_all_layers() -> None:
    """Bytes of a page: layers x heads x tokens x 2 x head_dim x bytes of an element."""
    assert page_bytes(group("g", layers=3, heads=5, dim=64), KvFormat(16, "bf16")) == (
        3 * 5 * 16 * 2 * 64 * 2
    )


def test_a_token_is_what_its_packed_halves_take() -> None:
    """E4M3 is a byte a number and one a head; integers are 4 to 8 bits and 16 for 32 numbers."""
    of = {
        kind: plan_budget(
            ("card", 20 * MIB),
            paid(),
            [group("w", window=40, layers=3, heads=5, dim=64)],
            {"w": KvFormat(32, kind)},
            Limits(1, 8, 100),
        ).groups[0]
        for kind in ("fp8", "fp8_v4", "k6_v4", "int8", "k8_v4")
    }
    fp8, k8, k6, v4 = (3 * 5 * n for n in (65, 64 + 4, 48 + 4, 32 + 4))
    want = [(fp8, fp8), (fp8, v4), (k6, v4), (k8, k8), (k8, v4)]
    assert [g.key_value_bytes for g in of.values()] == want
    assert all(g.page_bytes == 32 * sum(g.key_value_bytes) for g in of.values())
    assert of["k6_v4"].line() == (
        "  w (k6_v4): 1,320 bytes a token for the last 40 tokens, keys 780 and values 540"
    )


def test_the_receipt_adds_up() -> None:
    """What stands for the card less every term is what the cache may claim, and the cache fits."""
    limits = Limits(4, 32, 100)
    b = plan_budget(("card", 20 * MIB), paid(), [group("g")], {"g": KvFormat(16, "f32")}, limits)
    lines = b.lines()
    assert sum(n for _, n in lines[:5]) == lines[5][1] == b.claimable == 4 * MIB
    assert lines[0][0] == "card"
    assert lines[6][1] == b.cache_bytes <= b.claimable
    page = page_bytes(group("g"), KvFormat(16, "f32"))
    assert b.cache_bytes == b.groups[0].pages * page
    # The worst case is 4 sequences of 100 tokens, in whole pages of 16.
    assert b.groups[0].pages == 4 * 7
    assert lines[6][0] == (
        "conversation cache, a ceiling that is touched only as it is used: 0.1 KiB a token, "
        "448 tokens, 4.5 full-length conversations, backs 100% of the worst case"
    )
    assert lines[7:] == [("  g (f32): 128 bytes a token, keys 64 and values 64", b.cache_bytes)]


def test_too_little_memory_says_every_term() -> None:
    """The error has what is needed, what is left, each term, and what to lower."""
    limits = Limits(4, 32, 10**6)
    with pytest.raises(
        BudgetError,
        match=re.escape(
            "memory: one conversation of 1000000 tokens needs 122 MiB of cache, and 4 MiB are left "
            "of 20 MiB (half of it) after weights 10, activations 3, staging 2 and headroom 1 MiB. "
            "Lower --max-model-len, --max-num-seqs or --max-num-batched-tokens, or give more "
            "memory."
        ),
    ):
        plan_budget(
            ("half of it", 20 * MIB), paid(), [group("g")], {"g": KvFormat(16, "f32")}, limits
        )
    with pytest.raises(BudgetError, match="and 0 MiB are left of 5 MiB"):
        plan_budget(
            ("c", 5 * MIB), paid(), [group("g")], {"g": KvFormat(16, "f32")}, Limits(1, 1, 1)
        )
    windowed = [group("w", window=512)]
    with pytest.raises(BudgetError, match=r"needs [1-9]"):
        plan_budget(
            ("c", 16 * MIB + 9), paid(), windowed, {"w": KvFormat(16, "f32")}, Limits(4, 512, 4096)
        )


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[GraphKvGroup], dict[str, KvFormat], Limits, int]:
    sizes = st.sampled_from([1, 4, 8, 16, 24, 32])
    groups, formats = [], {}
    for i in range(draw(st.integers(1, 3))):
        window = draw(st.sampled_from([0, 0, 5, 33]))
        groups.append(group(f"g{i}", window, layers=draw(st.integers(1, 3))))
        formats[f"g{i}"] = KvFormat(draw(sizes), "f32")
    limits = Limits(draw(st.integers(1, 5)), draw(st.integers(1, 40)), draw(st.integers(1, 200)))
    return groups, formats, limits, draw(st.integers(0, 4 * MIB))


def planned(
    case: tuple[list[GraphKvGroup], dict[str, KvFormat], Limits, int],
) -> tuple[Budget | None, Limits]:
    groups, formats, limits, room = case
    fixed = paid(1, 1, 1, 1)
    try:
        return plan_budget(("card", 4 * MIB + room), fixed, groups, formats, limits), limits
    except BudgetError:
        return None, limits


@given(cases())
def test_a_full_conversation_always_fits(
    case: tuple[list[GraphKvGroup], dict[str, KvFormat], Limits, int],
) -> None:
    """Whatever the block sizes, a plan that is granted holds one conversation of full length."""
    budget, limits = planned(case)
    if budget is None:
        return
    assert budget.cache_bytes <= budget.claimable
    cache = pools(budget, limits)
    ids = list(range(limits.max_context))
    assert cache.enter(Text(cache.chain(""), ids, len(ids)), reuse=False, spare=0) is not None
    assert budget.capacity_tokens >= limits.max_context or all(g.window for g in budget.groups)


def pools(budget: Budget, limits: Limits) -> StateCache:
    plans = {g.name: g for g in budget.groups}
    return StateCache(plans, limits.max_tokens, lambda *_: None, lambda *_: None, keep=False)


@given(cases())
def test_a_conversation_alone_never_runs_short(
    case: tuple[list[GraphKvGroup], dict[str, KvFormat], Limits, int],
) -> None:
    """One that begins with a token can run to its end in the largest steps, and gives all back."""
    budget, limits = planned(case)
    if budget is None:
        return
    cache = pools(budget, limits)
    free = {name: pool.num_available for name, pool in cache.pools.items()}
    entered = cache.enter(Text(cache.chain(""), [1], limits.max_context), reuse=False, spare=0)
    assert entered is not None
    held, computed = entered[0], 0
    while computed < limits.max_context:
        end = min(computed + limits.max_tokens, limits.max_context)
        assert cache.hold(held, computed, end)
        computed = end
    cache.leave(held)
    assert free == {name: pool.num_available for name, pool in cache.pools.items()}
