"""Params: given, inferred from extents, defaulted; and what contradicts."""

import re

import pytest

from radiance_core.graph.errors import DeclareError

from .building import builder, f32

WEIGHTS = {"wte": f32(10, 8), "w": f32(6, 8), "norm": f32(8), "norm4": f32(4)}
MINE = [
    "needs(M~, n, k, eps:f, word:s, dtype:s) x[M,n] -> y[M,n]",
    "split(M~, n, group) x[M,n]:f32 -> y[M,n/group]:f32",
    "pairs(M~, a, b) x[M,a*b]:f32 -> y[M,a]:f32",
    "unknown(M~) x[M,_]:f32 -> y[M,_]:f32",
    "pool(M~, block_size) x[M,_]:f32 -> y[M,block_size]:f32",
]


def test_extents_give_params() -> None:
    """A param that equals an operand's extent need not be given; products are solved."""
    g = builder(WEIGHTS, schemas=MINE)
    x = g.op("embed_lookup", g.step.tokens, g.weight("wte", (10, 8)))
    y = g.op("gemm_nt", x, g.weight("w", (6, 8)))
    assert y.shape == ("TOKENS", 6)
    assert g.op("pairs", x, a=2).shape == ("TOKENS", 2)
    assert g.op("split", x, group=4).shape == ("TOKENS", 2)
    # silu_mul's operand has 2*n columns.
    assert g.op("silu_mul", x).shape == ("TOKENS", 4)


@pytest.mark.parametrize(
    ("op", "params", "says"),
    [
        ("needs", {"k": 1, "eps": 1.0}, "needs: param word is required and was not given"),
        ("needs", {"eps": 1.0, "word": "a"}, "needs: param k is required and was not given"),
        (
            "needs",
            {"k": 1, "eps": 1.0, "word": "a", "z": 1},
            "needs: unknown param 'z'; it has M, n, k, eps, word, dtype",
        ),
        ("needs", {"k": 1.5, "eps": 1.0, "word": "a"}, "needs: param k: expected int, got 1.5"),
        ("needs", {"k": 1, "eps": "x", "word": "a"}, "needs: param eps: expected float, got 'x'"),
        ("needs", {"k": 1, "eps": 1.0, "word": 3}, "needs: param word: expected str, got 3"),
        (
            "needs",
            {"n": 7, "k": 1, "eps": 1.0, "word": "a"},
            "needs: operand x: expected n = 7, got 8 in ['TOKENS', 8]",
        ),
        ("split", {"group": 3}, "split: output y: extent n/group: 8 is not a multiple of group=3"),
        ("pairs", {"a": 3}, "pairs: param b is required and was not given"),
        ("pairs", {}, "pairs: param a is required and was not given"),
        ("pairs", {"a": 2, "b": 3}, "pairs: operand x: expected a*b = 6, got 8"),
        ("unknown", {}, "unknown: extent _ of output y is unknown"),
        ("pool", {}, "pool: param block_size is required and was not given"),
    ],
)
def test_what_contradicts_is_refused(op: str, params: dict, says: str) -> None:
    """Missing, unknown, mistyped and contradicting params are named."""
    g = builder(WEIGHTS, schemas=MINE)
    x = g.op("embed_lookup", g.step.tokens, g.weight("wte", (10, 8)))
    with pytest.raises(DeclareError, match=re.escape(says)):
        g.op(op, x, **params)


def test_numbers_take_the_kind_of_their_param() -> None:
    """An int for a float and a bool for an int become what the schema says."""
    g = builder(WEIGHTS, schemas=MINE)
    x = g.op("embed_lookup", g.step.tokens, g.weight("wte", (10, 8)))
    g.op("needs", x, k=True, eps=1, word="a")
    g.logits(g.rows(x, "OUT"))
    params = g.finish().nodes[1].params
    assert type(params["k"]) is int
    assert type(params["eps"]) is float


def test_a_weight_of_other_extents_is_refused() -> None:
    """A weight that does not fit its op is refused with both numbers."""
    g = builder(WEIGHTS)
    x = g.op("embed_lookup", g.step.tokens, g.weight("wte", (10, 8)))
    with pytest.raises(DeclareError, match="operand w: expected n = 8, got 4 in"):
        g.op("rmsnorm", x, g.weight("norm4", (4,)), eps=1e-5)


def test_a_cache_fixes_its_heads() -> None:
    """Heads come from the group, and others than the group's are refused."""
    g = builder(WEIGHTS)
    x = g.op("embed_lookup", g.step.tokens, g.weight("wte", (10, 8)))
    group = g.kv_group("full", n_head_kv=2, head_dim=4, layers=[0])
    assert g.op("kv_store", x, x, group.slot_mapping, group.layer(0)) is None
    says = "kv_store: param head_dim: expected 4 as kv group full has, got 8"
    with pytest.raises(DeclareError, match=says):
        g.op("kv_store", x, x, group.slot_mapping, group.layer(0), n_head_kv=2, head_dim=8)
