"""Qwen3: llama's graph with norms on the heads of q and k, and windows on the upper layers."""

from collections.abc import Mapping
from dataclasses import dataclass

from radiance_abi import Context, Graph, Limits, Raw, Source
from radiance_arch_blocks import (
    HF_LAYER,
    QK_NORM,
    Attention,
    Dimensions,
    Rope,
    attention,
    decoder_names,
    embed,
    embedding,
    gated,
    gguf_dimensions,
    gguf_rope,
    hf_dimensions,
    hf_rope,
    hf_windows,
    kv_groups,
    linear_into,
    logits,
    rotary,
)

_BIASED = ("attn_q", "attn_k", "attn_v", "attn_output")


@dataclass(frozen=True, slots=True)
class Config:
    """A model of the family. ``windows``: keys that each layer sees, 0 for all."""

    dims: Dimensions
    rope: Rope
    windows: tuple[int, ...]
    tied: bool
    bias: bool


class Qwen3:
    """Qwen3, dense."""

    id, quant = "qwen3", ""

    def read(self, raw: Raw) -> Config:
        """Read a GGUF's or a transformers checkpoint's configuration."""
        return _read_gguf(raw, self.id) if raw.format == "gguf" else _read_hf(raw)

    def names(self, cfg: Config, raw: Raw) -> Mapping[str, Source]:
        """Map weights to checkpoint tensors."""
        return decoder_names(
            raw,
            cfg.dims.n_layer,
            modules=HF_LAYER | QK_NORM,
            biased=_BIASED if cfg.bias else (),
            tied=cfg.tied,
        )

    def limits(self, cfg: Config) -> Limits:
        """Return sizes and the longest context."""
        return cfg.dims.limits(cfg.rope.limit(cfg.dims.max_context))

    def build(self, g: Graph, cfg: Config, ctx: Context) -> None:
        """Declare the graph."""
        d = cfg.dims
        heads = Attention(d.n_head, d.n_head_kv, d.head_dim, bias=cfg.bias, qk_norm=True, eps=d.eps)
        rope = rotary(g, cfg.rope, ctx.max_context)
        pools = kv_groups(g, n_head_kv=d.n_head_kv, head_dim=d.head_dim, windows=cfg.windows)
        x = embed(g, ctx, embedding(g, d.n_vocab, d.n_embd), eps=d.eps)
        for i, pool in enumerate(pools):
            y = x.norm(f"blk.{i}.attn_norm.weight")
            y = attention(y, heads, rope, pool, i, cfg.windows[i])
            linear_into(x, y, f"blk.{i}.attn_output", bias=cfg.bias)
            y = gated(x.norm(f"blk.{i}.ffn_norm.weight"), i, d.n_ff, act="silu")
            linear_into(x, y, f"blk.{i}.ffn_down")
        logits(x, d.n_vocab)


def _read_gguf(raw: Raw, arch: str) -> Config:
    dims = gguf_dimensions(raw, arch)
    rope = gguf_rope(raw, arch, head_dim=dims.head_dim, max_context=dims.max_context, mode="neox")
    return Config(
        dims=dims,
        rope=rope,
        windows=(0,) * dims.n_layer,
        tied=raw.tensor("output.weight") is None,
        bias=raw.tensor("blk.0.attn_q.bias") is not None,
    )


def _read_hf(raw: Raw) -> Config:
    dims = hf_dimensions(raw, {"head_dim": 128})
    rope = hf_rope(raw, head_dim=dims.head_dim, max_context=dims.max_context)
    raw.expect("hidden_act", "silu")
    window, first = 0, dims.n_layer
    if raw.get("use_sliding_window", bool, False):
        window = raw.need("sliding_window", int)
        first = raw.need("max_window_layers", int)
    # Without use_sliding_window these two say nothing; layer_types wins over the second.
    raw.ignore("sliding_window", "max_window_layers")
    windows = hf_windows(raw, dims.n_layer, window)
    if windows is None:
        windows = tuple(window if i >= first else 0 for i in range(dims.n_layer))
    return Config(
        dims=dims,
        rope=rope,
        windows=windows,
        tied=raw.get("tie_word_embeddings", bool, False),
        bias=raw.get("attention_bias", bool, False),
    )
