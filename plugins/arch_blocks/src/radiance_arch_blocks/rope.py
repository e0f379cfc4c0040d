"""Rotary embedding: angles per position for each kind of context extension, as one f32 table."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from radiance_abi.architectures import Graph, Value
from radiance_abi.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Rates:
    """Plain rates, f64 [rotary_dim / 2] radians per position, and what a scaling may depend on."""

    rates: np.ndarray
    theta: float
    max_context: int


class Scaling(Protocol):
    """How a model extends the context that its rotary angles were trained for."""

    def apply(self, plain: "Rates") -> tuple[np.ndarray, float]:
        """Return the changed rates, f64 [rotary_dim / 2], and the factor on cos and sin."""

    @property
    def max_context(self) -> int | None:
        """The longest context it can serve, where it cannot serve every one."""


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding of one kind of layer.

    ``mode``: "neox" rotates halves of the head against each other, "gptj" neighbours.
    ``rotary_dim``: leading elements of a head that rotate.
    """

    theta: float
    rotary_dim: int
    mode: str = "neox"
    scaling: "Scaling | None" = None

    def __post_init__(self) -> None:
        if not 0 < self.theta < np.inf:
            raise ConfigurationError(
                f"model configuration: rope theta: expected a finite number above 0, got "
                f"{self.theta}; the configuration is damaged"
            )

    def rates(self, max_context: int) -> tuple[np.ndarray, float]:
        """Return f32 [rotary_dim / 2] radians per position and the factor on cos and sin.

        Raises:
            ConfigurationError: the scaling cannot serve ``max_context`` tokens.
        """
        exponents = np.arange(0, self.rotary_dim, 2, dtype=np.float64) / self.rotary_dim
        rates, mscale = self.theta**-exponents, 1.0
        if self.scaling is not None:
            rates, mscale = self.scaling.apply(Rates(rates, self.theta, max_context))
        return rates.astype(np.float32), mscale

    def limit(self, trained: int) -> int:
        """Return the longest context to serve a model trained on ``trained`` tokens with."""
        bound = None if self.scaling is None else self.scaling.max_context
        return trained if bound is None else min(trained, bound)


@dataclass(frozen=True, slots=True)
class Linear:
    """Positions divided by ``factor`` (position interpolation, arXiv 2306.15595)."""

    factor: float
    max_context: int | None = None

    def apply(self, plain: "Rates") -> tuple[np.ndarray, float]:
        """Divide all rates."""
        return plain.rates / self.factor, 1.0


@dataclass(frozen=True, slots=True)
class Divided:
    """Each rate divided by a number that the checkpoint brings."""

    divisors: tuple[float, ...]
    max_context: int | None = None

    def apply(self, plain: "Rates") -> tuple[np.ndarray, float]:
        """Divide each rate by its own number."""
        return plain.rates / _as_many(self.divisors, plain.rates, "rope_freqs.weight"), 1.0


@dataclass(frozen=True, slots=True)
class Llama3:
    """Slow rates divided by ``factor``, fast ones kept, a linear blend between (Llama 3.1 report).

    A rate is slow when its wave is longer than ``original / low``, fast when shorter than
    ``original / high``.
    """

    factor: float
    low: float
    high: float
    original: int
    max_context: int | None = None

    def apply(self, plain: "Rates") -> tuple[np.ndarray, float]:
        """Blend by how many waves fit the original context."""
        waves = self.original * plain.rates / (2 * math.pi)
        kept = np.clip((waves - self.low) / (self.high - self.low), 0.0, 1.0)
        return plain.rates * (kept + (1 - kept) / self.factor), 1.0


@dataclass(frozen=True, slots=True)
class Yarn:
    """Rates blended along the dimensions between two counts of turns (YaRN, arXiv 2309.00071).

    ``attention_factor``: factor on cos and sin. ``whole``: the blend begins and ends at whole
    dimensions.
    """

    factor: float
    original: int
    attention_factor: float
    fast: float = 32.0
    slow: float = 1.0
    whole: bool = True
    max_context: int | None = None

    def apply(self, plain: "Rates") -> tuple[np.ndarray, float]:
        """Keep rates below the first dimension, divide above the second, blend between."""
        width = 2 * len(plain.rates)

        def dimension(turns: float) -> float:
            """Return the dimension whose wave makes ``turns`` turns in the original context."""
            return (
                width
                * math.log(self.original / (turns * 2 * math.pi))
                / (2 * math.log(plain.theta))
            )

        first, last = dimension(self.fast), dimension(self.slow)
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, width - 1)
        span = last - first if last != first else 0.001
        divided = np.clip((np.arange(len(plain.rates)) - first) / span, 0.0, 1.0)
        return plain.rates * (1 - divided + divided / self.factor), self.attention_factor


@dataclass(frozen=True, slots=True)
class LongRope:
    """Two sets of divisors: up to the original context and beyond (LongRoPE, arXiv 2402.13753).

    The set is chosen once, by the longest context that is served, so that cached keys stay valid.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int
    attention_factor: float
    max_context: int | None = None

    def apply(self, plain: "Rates") -> tuple[np.ndarray, float]:
        """Divide by the set for ``max_context``."""
        chosen = self.long if plain.max_context > self.original else self.short
        return plain.rates / _as_many(
            chosen, plain.rates, "longrope factors"
        ), self.attention_factor


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Rates that move with the length of the sequence beyond ``original``; up to it they are plain.

    Keys in the cache would have to be rotated again whenever a sequence grows, so contexts beyond
    ``original`` are refused.
    """

    original: int

    @property
    def max_context(self) -> int | None:
        """The original context."""
        return self.original

    def apply(self, plain: "Rates") -> tuple[np.ndarray, float]:
        """Keep the rates, or refuse."""
        if plain.max_context > self.original:
            raise ConfigurationError(
                f"rope scaling dynamic: expected a context of at most {self.original} tokens, the "
                f"one the model was trained for, got {plain.max_context}; angles that move with "
                "the length cannot be served from a cache. Serve it with --max-model-len "
                f"{self.original} or less."
            )
        return plain.rates, 1.0


@dataclass(frozen=True, slots=True)
class Rotary:
    """A rope as operands and params of the ops that rotate."""

    freqs: Value
    theta: float
    mode: str
    rotary_dim: int
    mscale: float


def rotary(g: Graph, rope: Rope, max_context: int) -> Rotary:
    """Declare the table of a rope. Declare it once and share it among the layers."""
    rates, mscale = rope.rates(max_context)
    return Rotary(g.constant(rates), rope.theta, rope.mode, rope.rotary_dim, mscale)


def yarn_attention_factor(factor: float, weight: float = 1.0) -> float:
    """Return the factor on cos and sin that YaRN recommends (arXiv 2309.00071, eq. 22)."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def longrope_attention_factor(factor: float, original: int) -> float:
    """Return the factor on cos and sin that LongRoPE recommends (arXiv 2402.13753)."""
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))


def _as_many(divisors: tuple[float, ...], rates: np.ndarray, what: str) -> np.ndarray:
    if len(divisors) != len(rates):
        raise ConfigurationError(
            f"{what}: expected {len(rates)} numbers, one for each rotated pair, got {len(divisors)}"
        )
    return np.asarray(divisors, dtype=np.float64)
