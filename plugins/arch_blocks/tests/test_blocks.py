"""Blocks ask which fusions are served and spell the rest out."""

import pytest

from radiance_abi import Context, Encoding, affine, plain
from radiance_arch_blocks import (
    Activation,
    Stream,
    embed,
    embedding,
    gated,
    linear,
    linear_into,
    logits,
    norm,
)
from radiance_arch_blocks import plain as as_plain
from radiance_arch_blocks.testing import FakeValue, RecordingGraph

Q4 = affine(codes="u4", scale=("f16", 1, 32), min=("f16", 1, 32))
WIDTH = 64


def everything(op: str, weight: object) -> bool:
    return True


def nothing(op: str, weight: object) -> bool:
    return False


def stream_of(g: RecordingGraph) -> Stream:
    value = FakeValue("x", ("TOKENS", WIDTH))
    return Stream(g, value, width=WIDTH, dtype="f32", eps=1e-5, planes=2)


def values(g: RecordingGraph, name: str, width: int) -> Activation:
    return as_plain(g, FakeValue(name, ("TOKENS", width)), width, "f32", 2)


def test_readers_of_integer_weights_share_one_fused_norm():
    """Two integer products behind a norm take its codes; the plain norm is never declared."""
    g = RecordingGraph(serves=everything, encodings={"*": Q4})
    x = stream_of(g).norm("n.weight")
    linear(x, "a", 32)
    linear(x, "b", 96)
    assert g.ops() == ["rmsnorm_quant_i8", "gemm_nt_q", "gemm_nt_q"]
    first, second = g.named("gemm_nt_q")
    assert first.operands[:3] == second.operands[:3] == g.issued[0].results


def test_weights_that_are_numbers_meet_numbers_except_mxfp4():
    """A float's codes take plain activations, those of e2m1 count as integers."""
    for text, op in (
        ("bf16", "gemm_nt"),
        ("fp8_e4m3*bf16[128x128]", "gemm_nt"),
        ("fp4_e2m1*e8m0[1x32]", "gemm_nt_q"),
        ("i8*f16[1x32]", "gemm_nt_q"),
    ):
        g = RecordingGraph(serves=everything, encodings={"*": Encoding.parse(text)})
        linear(values(g, "x", WIDTH), "a", 32)
        assert g.ops()[-1] == op


def test_without_the_fused_norm_one_quantisation_is_shared():
    """The chain is spelt out when the fusion is not served, with one quantisation for all."""
    served = {"gemm_nt_q"}
    g = RecordingGraph(serves=lambda op, weight: op in served, encodings={"*": Q4})
    x = stream_of(g).norm("n.weight")
    linear(x, "a", 32)
    linear(x, "b", 96)
    assert g.ops() == ["rmsnorm", "quant_act_i8", "gemm_nt_q", "gemm_nt_q"]


def test_activations_have_the_planes_that_are_wanted_and_served():
    """As many planes as wanted, else fewer, in the fused norm, the gate and every product alike."""
    for wanted, served, planes in ((2, (1, 2), 2), (1, (1, 2), 1), (2, (1,), 1), (2, (2,), 2)):
        g = RecordingGraph(serves=everything, encodings={"*": Q4}, planes=served)
        ctx = Context("gguf", 8, 1, 8, activation_planes=wanted)
        stream = embed(g, ctx, embedding(g, 51, WIDTH), eps=1e-5)
        linear_into(stream, gated(stream.norm("n.weight"), 0, 96, act="silu"), "o")
        linear_into(stream, stream.norm("m.weight"), "p", bias=True)
        linear(stream.norm("l.weight"), "q", 32)
        logits(stream, 51)
        issued = [i for i in g.issued if "planes" in i.params]
        assert {i.op for i in issued} == {
            *("rmsnorm_quant_i8", "gemm_nt_q", "gated_quant_i8", "gemm_nt_q_add"),
            *("gemm_nt_q_bias", "rmsnorm_add_quant_i8", "logits_gemm_q"),
        }
        assert {i.params["planes"] for i in issued} == {planes}
        assert g.named("gated_quant_i8")[0].results[0].shape == ("TOKENS", planes * 96)
    assert Context("gguf", 8, 1, 8).activation_planes == 2


def test_precision_comes_before_fusion():
    """Two planes and an addition of its own are preferred to a fused product of one plane."""
    g = RecordingGraph(encodings={"*": Q4})
    asked = g.has

    def has(op: str, *operands: object, **params: object) -> bool:
        _ = asked(op, *operands, **params)
        return (op, params.get("planes")) in {("gemm_nt_q", 2), ("gemm_nt_q_add", 1)}

    g.has = has
    stream = stream_of(g)
    linear_into(stream, values(g, "y", 32), "o")
    _ = stream.value
    assert g.ops() == ["quant_act_i8", "gemm_nt_q", "add"]


def test_readers_of_different_planes_each_get_theirs():
    """A weight that is served for one plane only does not take the second from its neighbour."""
    g = RecordingGraph(encodings={"*": Q4})
    g.has = lambda op, *operands, **params: (
        (op, operands[3].name, params["planes"])
        in {
            ("gemm_nt_q", "a.weight", 2),
            ("gemm_nt_q", "b.weight", 1),
        }
    )
    x = values(g, "x", WIDTH)
    for name in "aba":
        linear(x, name, 32)
    assert g.ops() == ["quant_act_i8", "gemm_nt_q", "quant_act_i8", "gemm_nt_q", "gemm_nt_q"]
    assert [i.params["planes"] for i in g.issued] == [2, 2, 1, 1, 2]


def test_plain_weights_never_meet_codes():
    """Weights stored as numbers take plain activations even where a library offers codes."""
    for encoding in (
        plain("f32"),
        plain("bf16"),
        affine(codes="fp8_e4m3", scale=("f32", 128, 128)),
    ):
        g = RecordingGraph(serves=everything, encodings={"*.weight": encoding})
        x = values(g, "x", WIDTH)
        linear(x, "a", 32)
        linear(x, "b", 32, bias=True)
        assert g.ops() == ["gemm_nt", "gemm_nt_bias"]


def test_bf16_weights_take_bf16_activations_where_one_plane_is_wanted():
    """One plane says that 8 bits will do; the narrowed form is made once, for these alone."""
    for wanted, kind, ops in (
        (1, "bf16", ["cast", "gemm_nt_bf16", "gemm_nt_bf16", "gemm_nt_bf16_add"]),
        (2, "bf16", ["gemm_nt", "gemm_nt", "gemm_nt_add"]),
        (1, "f32", ["gemm_nt", "gemm_nt", "gemm_nt_add"]),
    ):
        g = RecordingGraph(serves=everything, encodings={"*.weight": plain(kind)})
        x = as_plain(g, FakeValue("x", ("TOKENS", WIDTH)), WIDTH, "f32", wanted)
        linear(x, "a", 32)
        linear(x, "b", 32)
        linear_into(stream_of(g), x, "o")
        assert g.ops() == ops


def test_a_width_that_groups_do_not_divide_stays_plain():
    """Codes come in groups; a width of other size is multiplied as it is."""
    g = RecordingGraph(serves=everything, encodings={"*": Q4})
    x = values(g, "x", 40)
    linear(x, "a", 32)
    assert g.ops() == ["gemm_nt"]


@pytest.mark.parametrize(
    ("serves", "encoding", "ops"),
    [
        (everything, Q4, ["quant_act_i8", "gemm_nt_q_add"]),
        (everything, plain("f32"), ["gemm_nt_add"]),
        (nothing, plain("f32"), ["gemm_nt", "add"]),
        (lambda op, weight: op == "gemm_nt_q", Q4, ["quant_act_i8", "gemm_nt_q", "add"]),
    ],
)
def test_what_a_block_adds_is_fused_where_served(serves, encoding, ops: list[str]):
    """The product and its addition to the stream are one op or two; the stream is their result."""
    g = RecordingGraph(serves=serves, encodings={"*": encoding})
    stream = stream_of(g)
    linear_into(stream, values(g, "y", 32), "o")
    value = stream.value
    assert g.ops() == ops
    assert value == g.issued[-1].results[0]
    assert stream.value == value
    assert len(g.issued) == len(ops)


def test_an_addition_waits_for_the_norm_behind_it():
    """An addition and the norm behind it are one op where served, and its sum is the stream."""
    g = RecordingGraph(serves=everything, encodings={"o.weight": plain("f32"), "a.weight": Q4})
    stream = stream_of(g)
    stream.add(FakeValue("y", ("TOKENS", WIDTH)))
    linear(stream.norm("n.weight"), "a", 32)
    assert g.ops() == ["rmsnorm_add_quant_i8", "gemm_nt_q"]
    assert stream.value == g.issued[0].results[3]
    stream.add(FakeValue("z", ("TOKENS", WIDTH)))
    assert stream.norm("m.weight").value == g.issued[2].results[0]
    assert g.issued[2].op == "rmsnorm_add"
    assert stream.value == g.issued[2].results[1]


def test_two_additions_in_a_row_are_both_made():
    """An addition that waits is made before the next one waits."""
    g = RecordingGraph()
    stream = stream_of(g)
    for name in "yz":
        stream.add(FakeValue(name, ("TOKENS", WIDTH)))
    _ = stream.value
    assert [i.operands[1].name for i in g.named("add")] == ["y", "z"]
    assert g.issued[1].operands[0] == g.issued[0].results[0]


def test_a_factor_comes_before_the_addition():
    """A factored block is scaled, then added, and never fused past the factor."""
    g = RecordingGraph(serves=everything)
    stream = stream_of(g)
    x = values(g, "y", 32)
    linear_into(stream, x, "o", factor=0.25)
    _ = stream.value
    assert g.ops() == ["gemm_nt", "scale", "add"]
    assert g.issued[1].params["factor"] == 0.25


def test_gates_join_where_parts_share_an_encoding():
    """One product for stacked gates; two written side by side when their encodings differ."""
    g = RecordingGraph()
    gated(stream_of(g).norm("n.weight"), 3, 48, act="silu").value  # noqa: B018
    assert g.ops() == ["rmsnorm", "gemm_nt", "silu_mul"]
    assert g.weights["blk.3.ffn_gate_up.weight"].shape == (96, WIDTH)
    g = RecordingGraph(encodings={"*ffn_up.weight": Q4})
    gated(stream_of(g).norm("n.weight"), 3, 48, act="gelu_tanh").value  # noqa: B018
    assert g.ops() == ["rmsnorm", "gemm_nt", "gemm_nt", "gelu_tanh_mul"]
    assert [v.shape for v in g.joined[0]] == [("TOKENS", 48), ("TOKENS", 48)]


def test_gates_give_codes_to_an_integer_down_projection():
    """The gate and the quantisation behind it are one op where served."""
    g = RecordingGraph(serves=everything, encodings={"*": Q4})
    stream = stream_of(g)
    linear_into(stream, gated(stream.norm("n.weight"), 0, 96, act="silu"), "blk.0.ffn_down")
    assert g.ops() == ["rmsnorm_quant_i8", "gemm_nt_q", "gated_quant_i8", "gemm_nt_q_add"]
    assert g.named("gated_quant_i8")[0].params["act"] == "silu"


def test_the_ends_of_a_model():
    """The head reads wanted rows only; factor and bound stand where they belong."""
    g = RecordingGraph()
    ctx = Context("gguf", 8, 1, 8)
    stream = embed(g, ctx, embedding(g, 51, WIDTH), eps=1e-5, factor=3.0)
    logits(stream, 51, factor=0.5, softcap=30.0)
    assert g.ops() == ["embed_lookup", "rmsnorm", "scale", "logits_gemm", "softcap"]
    assert g.issued[0].params["wscale"] == 3.0
    assert g.result == g.issued[-1].results[0]
    assert g.result.shape == ("OUT_ROWS", 51)
    assert g.weights["output.weight"].access == "vocabulary"


def test_a_norm_behind_a_block_is_its_own():
    """The norm of a value that is not the stream leaves the stream alone."""
    g = RecordingGraph(serves=everything)
    stream = stream_of(g)
    before = stream.value
    out = norm(stream, FakeValue("y", ("TOKENS", WIDTH)), "p.weight")
    assert g.ops() == ["rmsnorm"]
    assert out != stream.value == before
