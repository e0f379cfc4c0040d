"""Rotary embedding as model files describe it."""

from dataclasses import dataclass

import numpy as np

from radiance_abi.architectures import Raw
from radiance_abi.errors import ConfigurationError
from radiance_arch_blocks.rope import (
    Divided,
    Dynamic,
    Linear,
    Llama3,
    LongRope,
    Rope,
    Scaling,
    Yarn,
    longrope_attention_factor,
    yarn_attention_factor,
)

_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
_ALIASES = {"su": "longrope"}


@dataclass(frozen=True, slots=True)
class _Trained:
    """The contexts that a configuration names outside of its rope settings."""

    maximum: int
    original: int | None


def hf_rope(
    raw: Raw, *, head_dim: int, max_context: int, theta: float = 10000.0, mode: str = "neox"
) -> Rope:
    """Read rope_scaling, rope_parameters, rope_theta and partial_rotary_factor of a config.json.

    Raises:
        ConfigurationError: an unknown kind, a missing or impossible number.
    """
    theta = raw.get("rope_theta", float, theta)
    partial = raw.get("partial_rotary_factor", float, 1.0)
    trained = _Trained(max_context, raw.get("original_max_position_embeddings", int))
    # The older key wins where a file has both, as it does in the reference.
    settings = raw.sub("rope_scaling")
    if settings is not None:
        raw.ignore("rope_parameters")
    else:
        settings = raw.sub("rope_parameters")
    if settings is None:
        return Rope(theta, _rotary_dim(head_dim, partial), mode)
    return read_settings(
        settings, trained, head_dim=head_dim, theta=theta, partial=partial, mode=mode
    )


def read_settings(
    raw: Raw,
    trained: "_Trained | int",
    *,
    head_dim: int,
    theta: float,
    partial: float = 1.0,
    mode: str = "neox",
) -> Rope:
    """Read one object of rope settings; ``trained`` is the context of the model in tokens."""
    contexts = trained if isinstance(trained, _Trained) else _Trained(trained, None)
    kind = raw.get("rope_type", str) or raw.get("type", str, "default")
    raw.ignore("type")
    kind = _ALIASES.get(kind, kind)
    if kind not in _KINDS:
        raise ConfigurationError(
            f"rope_type: expected one of {', '.join(_KINDS)}, got {kind!r}; this model needs an "
            "architecture that knows it"
        )
    theta = raw.get("rope_theta", float, theta)
    partial = raw.get("partial_rotary_factor", float, partial)
    return Rope(theta, _rotary_dim(head_dim, partial), mode, _hf_scaling(raw, kind, contexts))


def _hf_scaling(raw: Raw, kind: str, trained: _Trained) -> Scaling | None:
    if kind == "default":
        # Files that were edited back to plain angles keep the key; without a kind it means nothing.
        raw.ignore("original_max_position_embeddings", "factor")
        return None
    if kind == "linear":
        raw.ignore("original_max_position_embeddings")
        return Linear(_factor(raw))
    if kind == "dynamic":
        raw.ignore("original_max_position_embeddings")
        _factor(
            raw
        )  # must be there and sensible, though it has no effect up to the original context
        return Dynamic(trained.maximum)
    original = trained.original or raw.get("original_max_position_embeddings", int, trained.maximum)
    raw.ignore("original_max_position_embeddings")
    if original <= 0:
        raise ConfigurationError(
            f"original_max_position_embeddings: expected a count above 0, got {original}"
        )
    if kind == "llama3":
        return _hf_llama3(raw, original)
    if kind == "yarn":
        return _hf_yarn(raw, original, trained)
    factor = raw.get("factor", float) or trained.maximum / original
    return LongRope(
        short=_numbers(raw, "short_factor"),
        long=_numbers(raw, "long_factor"),
        original=original,
        attention_factor=raw.get("attention_factor", float)
        or longrope_attention_factor(factor, original),
    )


def _hf_llama3(raw: Raw, original: int) -> Llama3:
    low, high = raw.need("low_freq_factor", float), raw.need("high_freq_factor", float)
    if not 0 < low < high:
        raise ConfigurationError(
            f"low_freq_factor and high_freq_factor: expected 0 < low < high, got {low} and {high}"
        )
    return Llama3(_factor(raw), low, high, original)


def _hf_yarn(raw: Raw, original: int, trained: _Trained) -> Yarn:
    factor = _factor(raw) if raw.has("factor") else trained.maximum / original
    raw.ignore("finetuned")
    stated = raw.get("attention_factor", float)
    upper, lower = raw.get("mscale", float), raw.get("mscale_all_dim", float)
    if stated is None:
        stated = yarn_attention_factor(factor)
        if upper and lower:
            stated = yarn_attention_factor(factor, upper) / yarn_attention_factor(factor, lower)
    return Yarn(
        factor=factor,
        original=original,
        attention_factor=stated,
        fast=raw.get("beta_fast", float) or 32.0,
        slow=raw.get("beta_slow", float) or 1.0,
        whole=raw.get("truncate", bool, True),
    )


def gguf_rope(
    raw: Raw, arch: str, *, head_dim: int, max_context: int, theta: float = 10000.0, mode: str
) -> Rope:
    """Read ``arch``.rope.* of a GGUF file, and the tensors of divisors where it has them.

    Raises:
        ConfigurationError: an unknown kind, a missing or impossible number.
    """
    theta = raw.get(f"{arch}.rope.freq_base", float, theta)
    rotary_dim = raw.get(f"{arch}.rope.dimension_count", int, head_dim)
    if not 0 < rotary_dim <= head_dim or rotary_dim % 2:
        raise ConfigurationError(
            f"{arch}.rope.dimension_count: expected an even count up to the head's {head_dim}, got "
            f"{rotary_dim}"
        )
    return Rope(theta, rotary_dim, mode, _gguf_scaling(raw, f"{arch}.rope", max_context))


def _gguf_scaling(raw: Raw, prefix: str, max_context: int) -> Scaling | None:
    scaling = f"{prefix}.scaling"
    raw.ignore(f"{scaling}.finetuned")
    kind = raw.get(f"{scaling}.type", str)
    factor = raw.get(f"{scaling}.factor", float) or raw.get(f"{prefix}.scale_linear", float, 1.0)
    raw.ignore(f"{prefix}.scale_linear")
    original = raw.get(f"{scaling}.original_context_length", int) or max_context
    attention_factor = raw.get(f"{scaling}.attn_factor", float, 1.0)
    if raw.tensor("rope_factors_long.weight") is not None:
        raw.expect(f"{scaling}.type", "longrope", "none")
        return LongRope(
            short=_read(raw, "rope_factors_short.weight"),
            long=_read(raw, "rope_factors_long.weight"),
            original=original,
            attention_factor=attention_factor,
        )
    if kind == "yarn":
        return _gguf_yarn(raw, scaling, factor, original, attention_factor)
    raw.expect(f"{scaling}.attn_factor", 1.0)
    if raw.tensor("rope_freqs.weight") is not None:
        raw.expect(f"{scaling}.type", "none")
        return Divided(_read(raw, "rope_freqs.weight"))
    # Files without a type mean linear scaling by their factor.
    raw.expect(f"{scaling}.type", "none", "linear")
    if kind == "none" or factor in (0.0, 1.0):
        return None
    return Linear(_positive(factor, f"{scaling}.factor"))


def _gguf_yarn(raw: Raw, scaling: str, factor: float, original: int, attention: float) -> Yarn:
    raw.expect(f"{scaling}.yarn_ext_factor", 1.0)
    raw.expect(f"{scaling}.yarn_attn_factor", 1.0)
    return Yarn(
        factor=_positive(factor, f"{scaling}.factor"),
        original=original,
        attention_factor=attention * yarn_attention_factor(factor),
        fast=raw.get(f"{scaling}.yarn_beta_fast", float, 32.0),
        slow=raw.get(f"{scaling}.yarn_beta_slow", float, 1.0),
    )


def _factor(raw: Raw) -> float:
    return _positive(raw.need("factor", float), "rope factor")


def _positive(number: float, what: str) -> float:
    if not number > 0:
        raise ConfigurationError(f"{what}: expected a number above 0, got {number}")
    return number


def _numbers(raw: Raw, key: str) -> tuple[float, ...]:
    numbers = raw.need(key, list)
    if not numbers or any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
        raise ConfigurationError(f"{key}: expected a list of numbers, got {numbers!r}")
    if min(numbers) <= 0:
        raise ConfigurationError(f"{key}: expected numbers above 0, got {min(numbers)}")
    return tuple(float(n) for n in numbers)


def _read(raw: Raw, name: str) -> tuple[float, ...]:
    if raw.tensor(name) is None:
        raise ConfigurationError(f"{name}: expected this tensor of rope divisors, got none")
    divisors: np.ndarray = raw.read_tensor(name).reshape(-1)
    if not np.all(divisors > 0):
        raise ConfigurationError(f"{name}: expected divisors above 0, got {divisors.min()}")
    return tuple(float(n) for n in divisors)


def _rotary_dim(head_dim: int, partial: float) -> int:
    rotary_dim = int(head_dim * partial)
    if not 0 < rotary_dim <= head_dim or rotary_dim % 2:
        raise ConfigurationError(
            "partial_rotary_factor: expected one that leaves an even count of the head's "
            f"{head_dim} elements, got {partial}, which leaves {rotary_dim}"
        )
    return rotary_dim
