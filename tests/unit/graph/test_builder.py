"""Declaring a graph: what is recorded, and everything that is refused before anything runs."""

import re

import numpy as np
import pytest

from radiance_abi import plain
from radiance_core.graph.builder import GraphBuilder
from radiance_core.graph.errors import DeclareError
from radiance_core.graph.ir import GraphIR, GraphValue, GraphWeight, Node
from radiance_core.graph.sampler import declare_sampler

from .building import Facts, builder, f32

EMBED = {"wte": f32(10, 8), "norm": f32(8)}


def embedded(g: GraphBuilder) -> GraphValue:
    """Embeddings of the step's tokens, [TOKENS, 8]."""
    value: GraphValue = g.op("embed_lookup", g.step.tokens, g.weight("wte", (10, 8)))
    return value


def finished(g: GraphBuilder) -> GraphIR:
    """The graph, after declaring logits if there are none."""
    g.logits(g.op("cast", g.rows(embedded(g), "OUT"), **{"from": "f32", "to": "f32"}))
    return g.finish()


def refused(text: str) -> "pytest.RaisesExc[DeclareError]":
    return pytest.raises(DeclareError, match=re.escape(text))


def test_a_whole_graph_is_recorded() -> None:
    """Nodes, weights, inputs and outputs come back as data, in order, with rows and bands."""
    g = builder(EMBED)
    ir = finished(g)
    assert [n.schema.op for n in ir.nodes] == ["embed_lookup", "gather_rows", "cast"]
    assert [n.rows for n in ir.nodes] == ["TOKENS", "OUT_ROWS", "OUT_ROWS"]
    assert [n.ranged for n in ir.nodes] == ["TOKENS", "OUT_ROWS", "OUT_ROWS"]
    assert ir.nodes[0].params == {"n_embd": 8, "n_vocab": 10, "dtype": "f32", "wscale": 1.0}
    assert [w.name for w in ir.weights] == ["wte"]
    assert {"tokens", "positions", "cu_seqlens", "out_ids"} <= set(ir.step_inputs)
    assert ir.outputs["logits"].shape == ("OUT_ROWS", 8)


def test_results_come_as_the_contract_says() -> None:
    """New versions of inout operands come first, then outputs; an op without either gives None."""
    g = builder(EMBED)
    x = embedded(g)
    y, residual = g.op("rmsnorm_add", x, x, g.weight("norm", (8,)), eps=1e-5)
    assert (y.shape, residual.shape) == (("TOKENS", 8), ("TOKENS", 8))
    turned = g.op("rope", x, g.step.positions, None, head_dim=4, n_head=1, n_head_kv=1, theta=1e4)
    assert turned.storage == x.storage
    group = g.kv_group("full", n_head_kv=2, head_dim=4, layers=[3])
    assert g.op("kv_store", turned, turned, group.slot_mapping, group.layer(3)) is None


def test_a_value_is_stale_once_it_was_overwritten() -> None:
    """Reading a value after an op has written over it is refused, however it is reached."""
    g = builder(EMBED)
    x = embedded(g)
    view = g.columns(x, 4, 8)
    fresh = g.op("rope", x, g.step.positions, None, head_dim=4, n_head=1, n_head_kv=1, theta=1e4)
    text = "was overwritten by a later op; use the value which that op returned"
    with refused(f"silu: operand x: {x.name} {text}"):
        g.op("silu", x)
    with refused(f"silu: operand x: {view.name} {text}"):
        g.op("silu", view)
    with refused(f"join: {x.name} {text}"):
        g.join(x)
    assert g.op("silu", g.columns(fresh, 4, 8)).shape == ("TOKENS", 4)


def test_only_the_columns_that_were_written_are_stale() -> None:
    """Writing over some columns leaves views of the others readable."""
    g = builder(EMBED)
    x = embedded(g)
    left, right = g.columns(x, 0, 4), g.columns(x, 4, 8)
    g.op("rope", left, g.step.positions, None, head_dim=4, n_head=1, n_head_kv=0, theta=1e4)
    assert g.op("silu", right).shape == ("TOKENS", 4)
    with refused("silu: operand x: embed_lookup wte.x[0:4] was overwritten"):
        g.op("silu", left)
    with refused("was overwritten"):
        g.op("silu", x)


def test_joining_keeps_what_is_known_of_the_parts() -> None:
    """What was overwritten before a join is still stale behind it; the other part is not."""
    g = builder(EMBED)
    x, y = embedded(g), embedded(g)
    old = g.columns(x, 0, 4)
    fresh = g.op("rope", x, g.step.positions, None, head_dim=4, n_head=1, n_head_kv=1, theta=1e4)
    whole = g.join(y, fresh)
    assert whole.shape == ("TOKENS", 16)
    with refused("was overwritten"):
        g.op("silu", old)
    g.op("silu", y)
    g.op("silu", fresh)
    again = g.op("rope", whole, g.step.positions, None, head_dim=4, n_head=3, n_head_kv=1, theta=1)
    with refused("was overwritten"):
        g.op("silu", y)
    g.op("silu", again)


def test_join_lays_parts_side_by_side() -> None:
    """Each part's storage becomes a window of the joined one, in order."""
    g = builder(EMBED)
    x, y = embedded(g), embedded(g)
    whole = g.join(x, y)
    g.op("silu", whole)
    finished(g)
    ir = g.finish()
    assert ir.root(x.storage) == (whole.storage, 0)
    assert ir.root(y.storage) == (whole.storage, 8)
    assert ir.storages[whole.storage].columns == 16


def test_join_takes_whole_fresh_results_once() -> None:
    """Views, inputs, constants, the same value twice and unlike parts are refused."""
    g = builder(EMBED, schemas=["two(M~, n) x[M,n]:f32 -> y[M,n]:i8"])
    x, y = embedded(g), embedded(g)
    whole = "expected the whole result of an op, not joined before"
    with refused("join: expected one value or more, got none"):
        g.join()
    with refused(f"join: {x.name}[0:4]: {whole}"):
        g.join(g.columns(x, 0, 4))
    with refused(f"join: tokens: {whole}"):
        g.join(g.step.tokens)
    with refused(f"join: constant 0: {whole}"):
        g.join(g.constant(np.ones((2, 2), np.float32)))
    with refused(f"join: {x.name}: {whole}"):
        g.join(x, x)
    with refused("join: two.y: expected f32 with TOKENS rows, got i8 with TOKENS"):
        g.join(x, g.op("two", x))
    with refused("expected f32 with TOKENS rows, got f32 with OUT_ROWS"):
        g.join(x, g.rows(y, "OUT"))
    g.join(x, y)
    with refused(f"join: {x.name}: {whole}"):
        g.join(x)


def test_columns_are_bounded() -> None:
    """A view lies inside its matrix and has a column."""
    g = builder(EMBED)
    x = embedded(g)
    for start, stop in ((-1, 3), (3, 3), (5, 4), (0, 9)):
        with refused(f"columns: expected 0 <= start < stop <= 8 of a matrix, got [{start},{stop})"):
            g.columns(x, start, stop)
    with refused("of a matrix"):
        g.columns(g.step.tokens, 0, 1)
    inner = g.columns(g.columns(x, 2, 8), 1, 3)
    assert (inner.column, inner.shape) == (3, ("TOKENS", 2))


def test_what_ops_may_overwrite() -> None:
    """An inout operand is an op's result, and no other operand reads inside it."""
    g = builder(EMBED, schemas=["mix(M~, n) inout a[M,n]:f32, b[M,_]:f32 ->"])
    x = embedded(g)
    turn = {"head_dim": 4, "n_head": 1, "n_head_kv": 1, "theta": 1.0}
    with refused(
        "mix: operand a: expected the result of an op, which may be overwritten, got the "
        "constant constant 0"
    ):
        g.op("mix", g.constant(np.ones((2, 8), np.float32)), x)
    with refused(
        "rope: operand qkv: expected the result of an op, which may be overwritten, got "
        "the step input tokens"
    ):
        g.op("rope", g.step.tokens, g.step.positions, None, **turn)
    with refused(f"mix: operand a: {x.name}[0:4] is overwritten while operand b reads {x.name} in"):
        g.op("mix", g.columns(x, 0, 4), x)
    g.op("mix", g.columns(x, 0, 4), g.columns(x, 4, 8))


def test_rows_of_one_op_are_one_part_of_the_step() -> None:
    """Operands of different parts of the step do not mix, and fixed rows run nothing."""
    g = builder(EMBED)
    x = embedded(g)
    out = g.rows(x, "OUT")
    with refused("add: operand b: expected TOKENS rows as a has, got OUT_ROWS (gather_rows.y)"):
        g.op("add", x, out)
    fixed = g.constant(np.ones((3, 8), np.float32))
    with refused("silu: operand x: expected rows that each step counts (TOKENS, SEQS"):
        g.op("silu", fixed)
    assert g.op("mul", x, fixed).shape == ("TOKENS", 8)


@pytest.mark.parametrize(
    ("issue", "says"),
    [
        (
            lambda g, x: g.op("slu", x),
            "op 'slu': no loaded library and no standard op has that name; did you mean 'silu'?",
        ),
        (lambda g, x: g.op("silu", x, x), "silu: expected 1 operands, got 2"),
        (lambda g, x: g.op("silu"), "silu: operand x: expected a value, got nothing"),
        (lambda g, x: g.op("silu", 3), "silu: operand x: expected a value, got int"),
        (
            lambda g, x: g.op("silu", g.weight("norm", (8,))),
            "silu: operand x: expected a value, got GraphWeight norm",
        ),
        (
            lambda g, x: g.op("rmsnorm", x, x, eps=1e-5),
            "rmsnorm: operand w: expected a weight, got GraphValue",
        ),
        (
            lambda g, x: g.op("embed_lookup", x, g.weight("wte", (10, 8))),
            "embed_lookup: operand tokens: expected 1 dimensions [M], got ['TOKENS', 8]",
        ),
        (
            lambda g, x: g.op("gather_rows", x, g.step.out_ids, dtype="bf16"),
            "gather_rows: operand x: expected bf16, got f32 (embed_lookup wte.x)",
        ),
        (lambda g, x: g.rows(x, "DECODE"), "rows: expected part OUT, got 'DECODE'"),
        (lambda g, x: g.logits(x), "logits: expected f32 [OUT_ROWS, V], got f32 ['TOKENS', 8]"),
        (
            lambda g, x: g.weight("norm", (8,)) and g.weight("norm", (2, 4)),
            "weight norm: declared as [8] and again as [2, 4]",
        ),
        (
            lambda g, x: g.constant(np.ones(3)),
            "constant: expected float32 or int32 of one dimension",
        ),
        (
            lambda g, x: g.constant(np.float32(3) * np.ones((), np.float32)),
            "constant: expected float32 or int32 of one dimension or more, got float32 []",
        ),
    ],
)
def test_what_is_refused(issue, says: str) -> None:
    """Each misuse has its own text, which names the op and the operand."""
    g = builder(EMBED)
    x = embedded(g)
    with refused(says):
        issue(g, x)


def test_kv_groups() -> None:
    """A group has one name, sane extents, and gives only its own layers."""
    g = builder(EMBED)
    group = g.kv_group("full", n_head_kv=2, head_dim=4, layers=[1, 5])
    assert group.layer(5).position == 1
    with refused("kv group full: declared twice"):
        g.kv_group("full", n_head_kv=2, head_dim=4, layers=[2])
    with refused("kv group full: expected one of its layers [1, 5], got 2"):
        group.layer(2)
    with refused("kv group odd: expected 1 or more heads, elements of a head and layers"):
        g.kv_group("odd", n_head_kv=2, head_dim=4, layers=[])
    with refused("no negative window, got n_head_kv=2 head_dim=4 layers=[0] window=-1"):
        g.kv_group("odd", n_head_kv=2, head_dim=4, layers=[0], window=-1)


def test_logits_are_declared_once() -> None:
    """A graph names its logits exactly once."""
    g = builder(EMBED)
    with refused("graph: expected a call of g.logits, got none"):
        g.finish()
    out = g.rows(embedded(g), "OUT")
    g.logits(out)
    with refused("logits: expected one call of g.logits, got a second"):
        g.logits(out)


def test_asking_leaves_no_trace() -> None:
    """A question changes nothing, served or not, well put or not."""
    asked = []
    g = builder(EMBED, serves=lambda node: asked.append(node) or node.schema.op == "silu")
    x = embedded(g)
    twin = builder(EMBED)
    embedded(twin)
    assert g.has("silu", x)
    assert not g.has("gelu", x)
    assert not g.has("no_such_op", x)
    assert g.has("silu", None, n=8)
    with refused("unknown param 'm'"):
        g.has("silu", x, m=3)
    turn = {"head_dim": 4, "n_head": 1, "n_head_kv": 1, "theta": 1.0}
    assert not g.has("rope", x, g.step.positions, None, **turn)
    assert [n.schema.op for n in asked] == ["silu", "gelu", "silu", "rope"]
    g.op("silu", x)
    twin_value = [*twin._buffers.storages]
    assert g._buffers.storages[: len(twin_value)] == twin_value
    assert [n.schema.op for n in finished(g).nodes][:2] == ["embed_lookup", "silu"]


def test_the_graph_owns_its_constants() -> None:
    """An array that changes after it was declared changes nothing."""
    g = builder(EMBED)
    array = np.arange(4, dtype=np.float32)
    value = g.constant(array)
    array[:] = -1
    ir = finished(g)
    assert ir.constants[value.storage].tolist() == [0, 1, 2, 3]


def test_the_sampler_ends_in_a_token_per_row() -> None:
    """The core's own chain declares without fault and names a token for each row."""
    g = builder(EMBED)
    g.logits(g.rows(embedded(g), "OUT"))
    token = declare_sampler(g, g.finish().outputs["logits"], 256)["token"]
    assert (token.shape, token.dtype) == (("OUT_ROWS", 1), "i32")
    assert g.finish().step_inputs["history"].shape == (256,)
    assert [n.schema.op for n in g.finish().nodes[-2:]] == ["sample_draw", "sample_logprobs"]


def test_a_draw_goes_by_its_stages_where_no_library_has_it_in_one() -> None:
    """Each narrows the candidates of the one before."""
    g = builder(EMBED, serves=lambda node: node.schema.op != "sample_draw")
    g.logits(g.rows(embedded(g), "OUT"))
    declare_sampler(g, g.finish().outputs["logits"], 256)
    ops = [n.schema.op.removeprefix("sample_") for n in g.finish().nodes[-7:]]
    assert ops == ["topk", "topp", "minp", "typical", "xtc", "pick", "logprobs"]


def test_an_op_is_judged_by_all_that_inference_sees_though_one_like_it_was_accepted() -> None:
    """Equal numbers of another kind, other extents and other types are not taken for the first."""
    g = builder(EMBED)
    x = embedded(g)
    g.op("silu", x, n=8)
    with refused("silu: param n: expected int, got 8.0"):
        g.op("silu", x, n=8.0)
    with refused("silu: param n: expected int, got [8]"):
        g.op("silu", x, n=[8])
    with refused("silu: param n: expected int, got {}"):
        g.has("silu", x, n={})  # type: ignore[arg-type]
    with refused("silu: operand x: expected n = 8, got 4"):
        g.op("silu", g.columns(x, 0, 4), n=8)
    with refused("silu: operand x: expected f32, got i32"):
        g.op("silu", g.empty(("TOKENS", 8), "i32"), n=8, dtype="f32")


def test_a_question_is_answered_for_each_encoding_and_asked_once() -> None:
    """Whether an op is served may differ by a weight's encoding; no question is asked twice."""
    asked = []

    def serves(node: Node) -> bool:
        weight = node.operands[1]
        assert isinstance(weight, GraphWeight)
        asked.append(weight.name)
        return weight.encoding == plain("f32")

    names = [f"w{i}" for i in range(3)]
    kinds = dict(zip(names, ("f32", "bf16", "f32"), strict=True))
    tensors = {name: Facts((8, 8), plain(kind)) for name, kind in kinds.items()}
    g = builder(EMBED | tensors, serves=serves)
    x = embedded(g)
    for _ in range(2):
        assert [g.has("gemm_nt", x, g.weight(name, (8, 8))) for name in names] == [
            True, False, True,
        ]  # fmt: skip
    assert asked == ["w0", "w1"]
