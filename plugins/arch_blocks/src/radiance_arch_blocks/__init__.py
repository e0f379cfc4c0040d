"""Blocks from which architectures declare decoders, and what they read of model files."""

from radiance_arch_blocks.activation import GROUP, Activation, Stream, norm, plain
from radiance_arch_blocks.attention import Attention, attention, kv_groups
from radiance_arch_blocks.dimensions import (
    Dimensions,
    gguf_dimensions,
    hf_dimensions,
    hf_windows,
)
from radiance_arch_blocks.linear import linear, linear_into, side_by_side
from radiance_arch_blocks.mlp import gated
from radiance_arch_blocks.names import HF_LAYER, QK_NORM, decoder_names
from radiance_arch_blocks.rope import Rope, Rotary, rotary
from radiance_arch_blocks.rope_reading import gguf_rope, hf_rope, read_settings
from radiance_arch_blocks.vocabulary import embed, embedding, logits

__all__ = [
    "GROUP",
    "HF_LAYER",
    "QK_NORM",
    "Activation",
    "Attention",
    "Dimensions",
    "Rope",
    "Rotary",
    "Stream",
    "attention",
    "decoder_names",
    "embed",
    "embedding",
    "gated",
    "gguf_dimensions",
    "gguf_rope",
    "hf_dimensions",
    "hf_rope",
    "hf_windows",
    "kv_groups",
    "linear",
    "linear_into",
    "logits",
    "norm",
    "plain",
    "read_settings",
    "rotary",
    "side_by_side",
]
