"""Gemma 3's configuration, as GGUF and as transformers write it."""

import math
from dataclasses import dataclass

from radiance_abi import ConfigurationError, Raw
from radiance_arch_blocks import (
    Dimensions,
    Rope,
    gguf_dimensions,
    gguf_rope,
    hf_dimensions,
    hf_windows,
    read_settings,
)

_GLOBAL_THETA, _LOCAL_THETA = 1_000_000.0, 10_000.0
_PERIOD = 6  # five local layers, then a global one

# What the published configurations leave out: they state only what differs from these.
_DEFAULTS = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
}


@dataclass(frozen=True, slots=True)
class Text:
    """A text model.

    ``local``: which layers use ``local_rope``; ``windows``: keys that each layer sees, 0 for all.
    ``scale``: factor on scores; ``score_cap``, ``logit_cap``: bounds, 0 for none. ``wadd``: added
    to norm gains. ``exact_factor``: the embedding's factor is not rounded to its dtype.
    """

    dims: Dimensions
    rope: Rope
    local_rope: Rope
    local: tuple[bool, ...]
    windows: tuple[int, ...]
    scale: float
    wadd: float
    tied: bool
    exact_factor: bool
    bias: bool = False
    score_cap: float = 0.0
    logit_cap: float = 0.0


def read_gguf(raw: Raw) -> Text:
    """Read the keys gemma3.*; gains in the file have their one added already."""
    dims = gguf_dimensions(raw, "gemma3")
    rope = gguf_rope(
        raw,
        "gemma3",
        head_dim=dims.head_dim,
        max_context=dims.max_context,
        theta=_GLOBAL_THETA,
        mode="neox",
    )
    local_theta = raw.get("gemma3.rope.freq_base_swa", float, _LOCAL_THETA)
    window = raw.get("gemma3.attention.sliding_window", int, 0)
    local = _pattern(raw, "gemma3.attention.sliding_window_pattern", dims.n_layer)
    # Most files do not say what queries are scaled by; of the published sizes only the one with 62
    # layers scales by its width over its heads.
    per_head = dims.n_embd / dims.n_head if dims.n_layer == 62 else dims.head_dim
    scale = raw.get("gemma3.attention.scale", float) or 1.0 / math.sqrt(per_head)
    return Text(
        dims=dims,
        rope=rope,
        local_rope=Rope(local_theta, rope.rotary_dim),
        local=local,
        windows=tuple(window if at else 0 for at in local),
        scale=scale,
        wadd=0.0,
        tied=raw.tensor("output.weight") is None,
        exact_factor=True,
        score_cap=raw.get("gemma3.attn_logit_softcapping", float, 0.0),
        logit_cap=raw.get("gemma3.final_logit_softcapping", float, 0.0),
    )


def read_hf(raw: Raw) -> Text:
    """Read a text model's config.json, or the text part of one that also sees."""
    text = raw.sub("text_config")
    if text is None:
        return _read_text(raw)
    # Images are not served, so what describes them does not matter; text is the same without them.
    raw.ignore("vision_config", "mm_tokens_per_image", "image_token_index", "image_token_id")
    raw.ignore("boi_token_index", "boi_token_id", "eoi_token_index", "eoi_token_id")
    raw.ignore("architectures", "model_type", "torch_dtype", "dtype", "transformers_version")
    raw.ignore("initializer_range", "eos_token_id", "bos_token_id", "pad_token_id")
    raw.ignore("quantization_config", "_name_or_path", "tie_word_embeddings", "use_cache")
    return _read_text(text)


def _read_text(raw: Raw) -> Text:
    dims = hf_dimensions(raw, _DEFAULTS)
    raw.expect("hidden_activation", "gelu_pytorch_tanh")
    raw.expect("hidden_act", "gelu_pytorch_tanh")
    raw.expect("use_bidirectional_attention", False)
    window = raw.get("sliding_window", int, 4096)
    period = raw.get("sliding_window_pattern", int) or raw.get(
        "_sliding_window_pattern", int, _PERIOD
    )
    raw.ignore("_sliding_window_pattern")  # layer_types says the same and more
    windows = hf_windows(raw, dims.n_layer, window)
    if windows is None:
        windows = tuple(window if at else 0 for at in _alternate(period, dims.n_layer))
    per_head = raw.get("query_pre_attn_scalar", float, 256.0)
    if per_head <= 0:
        raise ConfigurationError(
            f"query_pre_attn_scalar: expected a number above 0, got {per_head}"
        )
    rope, local_rope = _read_ropes(raw, dims)
    return Text(
        dims=dims,
        rope=rope,
        local_rope=local_rope,
        local=tuple(w > 0 for w in windows),
        windows=windows,
        scale=1.0 / math.sqrt(per_head),
        wadd=1.0,
        tied=raw.get("tie_word_embeddings", bool, True),
        exact_factor=False,
        bias=raw.get("attention_bias", bool, False),
        score_cap=raw.get("attn_logit_softcapping", float, 0.0),
        logit_cap=raw.get("final_logit_softcapping", float, 0.0),
    )


def _read_ropes(raw: Raw, dims: Dimensions) -> tuple[Rope, Rope]:
    """Return the ropes of global and of local layers, from one object each or from older keys."""
    theta = raw.get("rope_theta", float, _GLOBAL_THETA)
    local_theta = raw.get("rope_local_base_freq", float, _LOCAL_THETA)
    ropes = [Rope(theta, dims.head_dim), Rope(local_theta, dims.head_dim)]
    kinds = raw.sub("rope_parameters")
    if kinds is not None:
        for at, key in enumerate(("full_attention", "sliding_attention")):
            settings = kinds.sub(key)
            if settings is not None:
                ropes[at] = read_settings(
                    settings, dims.max_context, theta=ropes[at].theta, head_dim=dims.head_dim
                )
    # The older key describes global layers only.
    settings = raw.sub("rope_scaling")
    if settings is not None:
        ropes[0] = read_settings(settings, dims.max_context, theta=theta, head_dim=dims.head_dim)
    return ropes[0], ropes[1]


def _pattern(raw: Raw, key: str, n_layer: int) -> tuple[bool, ...]:
    """Read which layers are local: a period, one flag a layer, or nothing for the usual period."""
    if not raw.has(key):
        return _alternate(_PERIOD, n_layer)
    flags = raw.need(key, list)
    if len(flags) != n_layer:
        raise ConfigurationError(f"{key}: expected {n_layer} flags, got {len(flags)}")
    return tuple(bool(flag) for flag in flags)


def _alternate(period: int, n_layer: int) -> tuple[bool, ...]:
    if period <= 0:
        raise ConfigurationError(f"sliding_window_pattern: expected a count above 0, got {period}")
    return tuple((i + 1) % period != 0 for i in range(n_layer))
