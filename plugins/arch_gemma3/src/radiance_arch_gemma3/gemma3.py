"""Gemma 3: norms on both sides of each block, local and global layers, gains stored around zero."""

import math
from collections.abc import Mapping

from radiance_abi import Context, Encoding, Graph, Limits, Raw, Source, plain
from radiance_arch_blocks import (
    HF_LAYER,
    QK_NORM,
    Attention,
    Dimensions,
    attention,
    decoder_names,
    embed,
    embedding,
    gated,
    kv_groups,
    linear,
    logits,
    norm,
    rotary,
)
from radiance_arch_gemma3.reading import Text, read_gguf, read_hf

_MODULES = {
    **HF_LAYER,
    **QK_NORM,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_BIASED = ("attn_q", "attn_k", "attn_v", "attn_output")


class Gemma3:
    """The family under one of its ids."""

    quant = ""

    def __init__(self, id: str) -> None:  # noqa: A002 - the contract's name
        self.id = id

    def read(self, raw: Raw) -> Text:
        """Read a GGUF's or a transformers checkpoint's configuration."""
        return read_gguf(raw) if raw.format == "gguf" else read_hf(raw)

    def names(self, cfg: Text, raw: Raw) -> Mapping[str, Source]:
        """Map weights to checkpoint tensors; the text part of a larger model has a prefix."""
        trunk, head = "model.", "lm_head.weight"
        for prefix in ("model.language_model.", "language_model.model."):
            if raw.tensor(f"{prefix}embed_tokens.weight") is not None:
                trunk = prefix
        if trunk == "language_model.model.":
            head = "language_model.lm_head.weight"
        biased = _BIASED if cfg.bias else ()
        return decoder_names(
            raw,
            cfg.dims.n_layer,
            modules=_MODULES,
            biased=biased,
            tied=cfg.tied,
            trunk=trunk,
            head=head,
        )

    def limits(self, cfg: Text) -> Limits:
        """Return sizes and the longest context."""
        return cfg.dims.limits(cfg.rope.limit(cfg.local_rope.limit(cfg.dims.max_context)))

    def build(self, g: Graph, cfg: Text, ctx: Context) -> None:
        """Declare the graph."""
        d, wadd = cfg.dims, cfg.wadd
        heads = Attention(
            d.n_head,
            d.n_head_kv,
            d.head_dim,
            bias=cfg.bias,
            qk_norm=True,
            eps=d.eps,
            wadd=wadd,
            scale=cfg.scale,
            softcap=cfg.score_cap,
        )
        ropes = {
            False: rotary(g, cfg.rope, ctx.max_context),
            True: rotary(g, cfg.local_rope, ctx.max_context),
        }
        pools = kv_groups(g, n_head_kv=d.n_head_kv, head_dim=d.head_dim, windows=cfg.windows)
        table = embedding(g, d.n_vocab, d.n_embd)
        factor = _embedding_factor(d, table.encoding, exact=cfg.exact_factor)
        x = embed(g, ctx, table, eps=d.eps, wadd=wadd, factor=factor)
        for i, (pool, window) in enumerate(zip(pools, cfg.windows, strict=True)):
            y = x.norm(f"blk.{i}.attn_norm.weight")
            y = attention(y, heads, ropes[cfg.local[i]], pool, i, window)
            out = linear(y, f"blk.{i}.attn_output", d.n_embd, bias=cfg.bias, shard="col")
            x.add(norm(x, out, f"blk.{i}.post_attention_norm.weight"))
            y = gated(x.norm(f"blk.{i}.ffn_norm.weight"), i, d.n_ff, act="gelu_tanh")
            out = linear(y, f"blk.{i}.ffn_down", d.n_embd, shard="col")
            x.add(norm(x, out, f"blk.{i}.post_ffw_norm.weight"))
        logits(x, d.n_vocab, softcap=cfg.logit_cap)


def _embedding_factor(dims: Dimensions, stored: Encoding, *, exact: bool) -> float:
    """Return the square root of the width, in the precision of the embedding it multiplies.

    The models were trained with it in bf16, and transformers rounds it to the dtype of the weights;
    GGUF files are made for an engine that does not.
    """
    factor = math.sqrt(dims.n_embd)
    if exact or stored not in (plain("bf16"), plain("f16")):
        return factor
    digits = 8 if stored == plain("bf16") else 11
    unit = 2.0 ** (math.floor(math.log2(factor)) + 1 - digits)
    return round(factor / unit) * unit
