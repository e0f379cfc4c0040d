"""Where the weights of a decoder lie: graph names follow GGUF, other files are mapped to them."""

from collections.abc import Iterable, Mapping

from radiance_abi.architectures import Raw, Source, concat, copy
from radiance_arch_blocks.vocabulary import EMBEDDING, HEAD

HF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Modules of a layer: name in the graph to name in a transformers checkpoint."""

QK_NORM = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
"""Norms of the heads of queries and keys."""

JOINED = {
    "attn_qkv": ("attn_q", "attn_k", "attn_v"),
    "ffn_gate_up": ("ffn_gate", "ffn_up"),
}
"""Weights that blocks ask for stacked."""


def decoder_names(
    raw: Raw,
    n_layer: int,
    *,
    modules: Mapping[str, str],
    biased: Iterable[str] = (),
    tied: bool,
    trunk: str = "model.",
    head: str = "lm_head.weight",
) -> dict[str, Source]:
    """Map the weights of a decoder to checkpoint tensors.

    Args:
        raw: the configuration, for the format.
        n_layer: layers.
        modules: modules of a layer, name in the graph to name in a transformers checkpoint.
        biased: modules that have a bias.
        tied: the head is the token embedding; GGUF files tell it by having no head.
        trunk: what transformers names begin with.
        head: the head of a transformers checkpoint.
    """
    if raw.format == "gguf":
        names = {EMBEDDING: copy(EMBEDDING), HEAD: copy(HEAD, EMBEDDING)}
        names["output_norm.weight"] = copy("output_norm.weight")
    else:
        table = f"{trunk}embed_tokens.weight"
        names = {EMBEDDING: copy(table), HEAD: copy(table if tied else head)}
        names["output_norm.weight"] = copy(f"{trunk}norm.weight")
    with_bias = frozenset(biased)
    for i in range(n_layer):
        if raw.format == "gguf":
            of = {ours: f"blk.{i}.{ours}" for ours in modules}
        else:
            of = {ours: f"{trunk}layers.{i}.{theirs}" for ours, theirs in modules.items()}
        names |= _layer(f"blk.{i}", of, with_bias)
    return names


def _layer(prefix: str, of: Mapping[str, str], biased: frozenset[str]) -> dict[str, Source]:
    names = {f"{prefix}.{ours}.weight": copy(f"{theirs}.weight") for ours, theirs in of.items()}
    names |= {f"{prefix}.{ours}.bias": copy(f"{of[ours]}.bias") for ours in of if ours in biased}
    for joined, parts in JOINED.items():
        names[f"{prefix}.{joined}.weight"] = concat(*(f"{of[p]}.weight" for p in parts))
        if biased.issuperset(parts):
            names[f"{prefix}.{joined}.bias"] = concat(*(f"{of[p]}.bias" for p in parts))
    return names
