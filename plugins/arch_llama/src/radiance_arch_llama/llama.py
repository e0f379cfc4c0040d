"""Llama's graph, and how its relatives' configurations are read into it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from radiance_abi import Context, Graph, Limits, Raw, Source
from radiance_arch_blocks import (
    HF_LAYER,
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
    kv_groups,
    linear_into,
    logits,
    rotary,
)

_ATTENTION = frozenset({"attn_q", "attn_k", "attn_v"})
_GATES = frozenset({"ffn_gate", "ffn_up"})


@dataclass(frozen=True, slots=True)
class Config:
    """A model of the family.

    ``window``: keys a layer sees, 0 for all. ``biased``: modules of a layer that have a bias.
    The three factors (MiniCPM) multiply embeddings, what a block adds, and the input of the head.
    """

    dims: Dimensions
    rope: Rope
    window: int
    tied: bool
    biased: frozenset[str]
    embedding_factor: float = 1.0
    residual_factor: float = 1.0
    head_factor: float = 1.0


class Llama:
    """The family under one of its ids."""

    quant = ""

    def __init__(self, id: str) -> None:  # noqa: A002 - the contract's name
        self.id = id

    def read(self, raw: Raw) -> Config:
        """Read a GGUF's or a transformers checkpoint's configuration."""
        return _read_gguf(raw, self.id) if raw.format == "gguf" else _read_hf(raw, self.id)

    def names(self, cfg: Config, raw: Raw) -> Mapping[str, Source]:
        """Map weights to checkpoint tensors."""
        return decoder_names(
            raw, cfg.dims.n_layer, modules=HF_LAYER, biased=cfg.biased, tied=cfg.tied
        )

    def limits(self, cfg: Config) -> Limits:
        """Return sizes and the longest context."""
        return cfg.dims.limits(cfg.rope.limit(cfg.dims.max_context))

    def build(self, g: Graph, cfg: Config, ctx: Context) -> None:
        """Declare the graph."""
        d, biased, factor = cfg.dims, cfg.biased, cfg.residual_factor
        heads = Attention(d.n_head, d.n_head_kv, d.head_dim, bias=biased >= _ATTENTION)
        rope = rotary(g, cfg.rope, ctx.max_context)
        windows = (cfg.window,) * d.n_layer
        pools = kv_groups(g, n_head_kv=d.n_head_kv, head_dim=d.head_dim, windows=windows)
        table = embedding(g, d.n_vocab, d.n_embd)
        x = embed(g, ctx, table, eps=d.eps, factor=cfg.embedding_factor)
        for i, pool in enumerate(pools):
            y = attention(x.norm(f"blk.{i}.attn_norm.weight"), heads, rope, pool, i, cfg.window)
            linear_into(x, y, f"blk.{i}.attn_output", bias="attn_output" in biased, factor=factor)
            y = x.norm(f"blk.{i}.ffn_norm.weight")
            y = gated(y, i, d.n_ff, act="silu", bias=biased >= _GATES)
            linear_into(x, y, f"blk.{i}.ffn_down", bias="ffn_down" in biased, factor=factor)
        logits(x, d.n_vocab, factor=cfg.head_factor)


def _read_gguf(raw: Raw, arch: str) -> Config:
    dims = gguf_dimensions(raw, arch)
    # q and k were reordered for neighbouring pairs when the file was made.
    rope = gguf_rope(raw, arch, head_dim=dims.head_dim, max_context=dims.max_context, mode="gptj")
    raw.ignore(f"{arch}.tensor_data_layout")
    embedding_factor, residual_factor, head_divisor = 1.0, 1.0, 1.0
    if arch == "minicpm":
        # Files from before these keys existed were all made from models with these values.
        embedding_factor = raw.get(f"{arch}.embedding_scale", float, 12.0)
        residual_factor = raw.get(f"{arch}.residual_scale", float, 1.4 / math.sqrt(dims.n_layer))
        head_divisor = raw.get(f"{arch}.logit_scale", float, dims.n_embd / 256)
    return Config(
        dims=dims,
        rope=rope,
        window=raw.get(f"{arch}.attention.sliding_window", int, 0),
        tied=raw.tensor("output.weight") is None,
        biased=frozenset(m for m in HF_LAYER if raw.tensor(f"blk.0.{m}.bias") is not None),
        embedding_factor=embedding_factor,
        residual_factor=residual_factor,
        head_factor=1.0 / head_divisor,
    )


def _read_hf(raw: Raw, model_type: str) -> Config:
    dims = hf_dimensions(raw)
    rope = hf_rope(raw, head_dim=dims.head_dim, max_context=dims.max_context)
    raw.expect("hidden_act", "silu")
    raw.expect("rope_interleaved", False)
    raw.ignore("is_llama_config")
    tied = raw.get("tie_word_embeddings", bool, model_type == "minicpm")
    biased: set[str] = set()
    if model_type == "mistral":
        raw.expect("attention_bias", False)
        raw.expect("mlp_bias", False)
        return Config(dims, rope, raw.get("sliding_window", int, 0), tied, frozenset())
    if raw.get("attention_bias", bool, False):
        biased |= {*_ATTENTION, "attn_output"}
    if raw.get("mlp_bias", bool, False):
        biased |= {*_GATES, "ffn_down"}
    # Llama's own code knows no window, but some files carry the key of their trainer.
    raw.expect("sliding_window", None)
    return Config(dims, rope, 0, tied, frozenset(biased), *_minicpm_factors(raw, dims))


def _minicpm_factors(raw: Raw, dims: Dimensions) -> tuple[float, float, float]:
    """Read MiniCPM's factors (arXiv 2404.06395, appendix on the tensor program); 1 where absent."""
    depth = raw.get("scale_depth", float)
    base = raw.get("dim_model_base", float)
    raw.ignore("mup_denominator")  # of the optimiser
    raw.expect("sparse_config", None)
    return (
        raw.get("scale_emb", float, 1.0),
        1.0 if depth is None else depth / math.sqrt(dims.n_layer),
        1.0 if base is None else base / dims.n_embd,
    )
