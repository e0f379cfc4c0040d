"""What to compare: one case for each family, odd shape, kind of rope scaling and encoding."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """A checkpoint to make.

    Args:
        name: for people and folders.
        family: a key of ``BASE``.
        config: what differs from the family's base configuration.
        stored: "f32", "bf16", "f16", "fp8" or "mxfp4" (as AMD Quark writes it) for safetensors; a
            GGUF type ("F32", "Q4_K", ...).
        context: tokens that radiance serves the model with.
        lengths: prompt lengths.
        quick: part of the quick test.
    """

    name: str
    family: str
    config: dict[str, Any] = field(default_factory=dict)
    stored: str = "f32"
    context: int = 64
    lengths: tuple[int, ...] = (1, 2, 17, 41)
    quick: bool = False

    @property
    def is_gguf(self) -> bool:
        """Whether the checkpoint is a GGUF file."""
        return self.stored[0].isupper()

    @property
    def is_lossless(self) -> bool:
        """Whether weights are stored as numbers that no integer activation meets."""
        return self.stored in ("f32", "bf16", "f16", "fp8", "F32", "F16", "BF16")


# GQA 7, a head that is not hidden/heads, a vocabulary that 16 does not divide, untied.
_COMMON = {
    "vocab_size": 515,
    "hidden_size": 168,
    "intermediate_size": 296,
    "num_hidden_layers": 3,
    "num_attention_heads": 7,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
BASE: dict[str, dict[str, Any]] = {
    "llama": {**_COMMON, "head_dim": 96},
    "minicpm": {
        **_COMMON,
        "head_dim": 96,
        "scale_emb": 3.5,
        "scale_depth": 1.4,
        "dim_model_base": 64,
    },
    "mistral": {**_COMMON, "head_dim": 80, "sliding_window": 11},
    "qwen2": {**_COMMON, "hidden_size": 560, "num_attention_heads": 7},
    "qwen3": {**_COMMON, "head_dim": 96},
    "gemma3": {
        **_COMMON,
        "head_dim": 96,
        "query_pre_attn_scalar": 77,
        "sliding_window": 7,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "tie_word_embeddings": True,
    },
}
# Widths that the blocks of 256 values of the k types divide.
_WIDE = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_hidden_layers": 2,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LONG = {
    "rope_type": "longrope",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "short_factor": [1.0 + 0.02 * i for i in range(48)],
    "long_factor": [1.0 + 0.25 * i for i in range(48)],
}
_BIASED = {"attention_bias": True, "mlp_bias": True}


def _rope(**settings: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 1000.0, **settings}}


CASES = (
    Case("llama", "llama", quick=True),
    Case("llama-bf16-tied", "llama", {"tie_word_embeddings": True}, "bf16"),
    Case("llama-f16", "llama", {}, "f16"),
    Case(
        "llama-biases",
        "llama",
        {**_BIASED, "head_dim": 80, "num_attention_heads": 6, "num_key_value_heads": 2},
        quick=True,
    ),
    Case("llama-no-head-dim", "llama", {"head_dim": None, "hidden_size": 7 * 24}),
    Case("llama-rope-linear", "llama", _rope(rope_type="linear", factor=3.0)),
    Case("llama-rope-llama3", "llama", {"rope_parameters": _LLAMA3}, quick=True),
    Case("llama-rope-yarn", "llama", {"rope_parameters": _YARN}),
    Case(
        "llama-rope-yarn-all-keys",
        "llama",
        {
            "rope_parameters": {
                **_YARN,
                "beta_fast": 8.0,
                "beta_slow": 0.5,
                "mscale": 0.7,
                "mscale_all_dim": 0.4,
                "truncate": False,
            }
        },
    ),
    Case("llama-rope-longrope-short", "llama", {"rope_parameters": _LONG}, "f32", 32, (31,)),
    Case("llama-rope-longrope-long", "llama", {"rope_parameters": _LONG}, "f32", 64, (33, 50)),
    Case("llama-rope-dynamic", "llama", _rope(rope_type="dynamic", factor=2.0)),
    Case("llama-fp8", "llama", {**_WIDE, "hidden_size": 384, "intermediate_size": 328}, "fp8"),
    Case("llama-mxfp4", "llama", _WIDE, "mxfp4", quick=True),
    Case("llama-gguf", "llama", {}, "F32", quick=True),
    Case("llama-gguf-biases", "llama", {**_BIASED, "mlp_bias": False}, "F32"),
    Case("llama-gguf-llama3", "llama", {"rope_parameters": _LLAMA3}, "F16"),
    Case("llama-gguf-linear", "llama", _rope(rope_type="linear", factor=3.0), "BF16"),
    Case("llama-gguf-yarn", "llama", {"rope_parameters": _YARN}, "F32"),
    Case("llama-gguf-longrope", "llama", {"rope_parameters": _LONG}, "F32", lengths=(33, 50)),
    Case("llama-gguf-q8_0", "llama", _WIDE, "Q8_0", quick=True),
    Case("llama-gguf-q4_1", "llama", _WIDE, "Q4_1"),
    Case("llama-gguf-q4_k", "llama", _WIDE, "Q4_K"),
    Case("llama-gguf-mxfp4", "llama", _WIDE, "MXFP4", quick=True),
    Case("minicpm", "minicpm", quick=True),
    Case("minicpm-gguf", "minicpm", {}, "F32"),
    Case("mistral", "mistral", quick=True),
    Case("mistral-yarn-bf16", "mistral", {"rope_parameters": _YARN}, "bf16"),
    Case("mistral-no-window", "mistral", {"sliding_window": None}),
    Case("qwen2", "qwen2", quick=True),
    Case(
        "qwen2-window-tied-bf16",
        "qwen2",
        {
            "use_sliding_window": True,
            "sliding_window": 9,
            "max_window_layers": 1,
            "tie_word_embeddings": True,
        },
        "bf16",
    ),
    Case("qwen2-gguf", "qwen2", {"tie_word_embeddings": True}, "F32", quick=True),
    Case("qwen2-gguf-q8_0", "qwen2", {**_WIDE, "head_dim": 32}, "Q8_0"),
    Case("qwen3", "qwen3", quick=True),
    Case(
        "qwen3-bias-window-tied-bf16",
        "qwen3",
        {
            "attention_bias": True,
            "head_dim": 80,
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 2,
            "tie_word_embeddings": True,
        },
        "bf16",
    ),
    Case("qwen3-yarn", "qwen3", {"rope_parameters": _YARN}),
    Case("qwen3-gguf", "qwen3", {"tie_word_embeddings": True}, "F32", quick=True),
    Case("qwen3-gguf-q4_k", "qwen3", _WIDE, "Q4_K"),
    Case("gemma3", "gemma3", quick=True),
    Case("gemma3-bf16", "gemma3", {"attention_bias": True, "head_dim": 80}, "bf16"),
    Case(
        "gemma3-softcap-linear-untied",
        "gemma3",
        {
            "final_logit_softcapping": 6.0,
            "tie_word_embeddings": False,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
    ),
    Case(
        "gemma3-gguf",
        "gemma3",
        {
            "num_hidden_layers": 7,
            "layer_types": ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
            "query_pre_attn_scalar": 96,
        },
        "F32",
        quick=True,
    ),
)
