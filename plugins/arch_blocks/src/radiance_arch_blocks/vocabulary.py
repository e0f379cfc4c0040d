"""Both ends of a language model: token embedding and logits."""

from radiance_abi.architectures import Context, Graph, Value, Weight
from radiance_arch_blocks.activation import Activation, Stream, plain
from radiance_arch_blocks.issuing import one
from radiance_arch_blocks.linear import int8_planes, takes_bf16, times_int8

EMBEDDING = "token_embd.weight"
HEAD = "output.weight"


def embedding(g: Graph, n_vocab: int, n_embd: int) -> Weight:
    """Declare the token embedding."""
    return g.weight(EMBEDDING, (n_vocab, n_embd), access="vocabulary")


def embed(
    g: Graph,
    ctx: Context,
    table: Weight,
    *,
    eps: float,
    wadd: float = 0.0,
    factor: float = 1.0,
) -> Stream:
    """Return the residual stream that begins as the tokens' rows of ``table`` times ``factor``."""
    n_vocab, n_embd = table.shape
    x = one(
        g,
        "embed_lookup",
        g.step.tokens,
        table,
        n_embd=n_embd,
        n_vocab=n_vocab,
        dtype=ctx.dtype,
        wscale=factor,
    )
    return Stream(
        g,
        x,
        width=n_embd,
        dtype=ctx.dtype,
        eps=eps,
        wadd=wadd,
        planes=ctx.activation_planes,
    )


def logits(stream: Stream, n_vocab: int, *, factor: float = 1.0, softcap: float = 0.0) -> None:
    """Name the wanted rows' logits: norm, ``factor``, head, bound ``softcap`` (0 for none)."""
    g = stream.g
    x = stream.rows("OUT").norm("output_norm.weight")
    if factor != 1.0:
        scaled = one(g, "scale", x.value, n=x.width, factor=factor, dtype=x.dtype)
        x = plain(g, scaled, x.width, x.dtype, x.planes)
    y = _head(x, n_vocab)
    if softcap:
        y = one(g, "softcap", y, n=n_vocab, cap=softcap, dtype="f32")
    g.logits(y)


def _head(x: Activation, n_vocab: int) -> Value:
    g = x.g
    head = g.weight(HEAD, (n_vocab, x.width), access="vocabulary", shard="row")
    if planes := int8_planes(g, "logits_gemm_q", head, x):
        return times_int8(g, "logits_gemm_q", planes, head, x)
    if takes_bf16(g, "logits_gemm_bf16", head, x):
        return one(g, "logits_gemm_bf16", x.bf16, head, dtype=x.dtype)
    return one(g, "logits_gemm", x.value, head, dtype=x.dtype)
