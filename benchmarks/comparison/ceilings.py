"""What the machine can do at most, measured beside the contenders, and shares of it."""

from dataclasses import dataclass
from typing import Any

from radiance_core.kbench.machine import ceilings


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured maxima, a second: bytes read by one thread and by all, products of all threads.

    Multiplications and additions count as two.
    """

    threads: int
    one_read: float
    all_read: float
    i8: float
    f32: float


def measure(threads: int) -> Peaks:
    """Measure; takes some seconds."""
    one = ceilings(1)
    all_ = ceilings(threads) if threads > 1 else one
    return Peaks(threads, one.bytes_per_s, all_.bytes_per_s, all_.i8_per_s, all_.f32_per_s)


def best(measured: list[Peaks]) -> Peaks:
    """Return the highest of several measurements: another program can only lower one."""
    return Peaks(
        measured[0].threads,
        *(max(getattr(p, n) for p in measured) for n in ("one_read", "all_read", "i8", "f32")),
    )


def bytes_per_token(facts: dict[str, Any], tokens: int) -> float:
    """Return bytes that a step of one stream reads: all weights, and the cache half way through."""
    cache = facts["cache_bytes_per_token"] * (16 + tokens / 2)
    return float(facts["weight_bytes"] + cache)


def ops_per_second(facts: dict[str, Any], prefill: float) -> float:
    """Return multiplications and additions a second at a rate of prompt tokens.

    Products of two planes of activations count once: it is what the prompt needs, not what is done.
    """
    return float(facts["ops_per_prompt_token"] * prefill)
