"""What the machine can do at most, measured beside the contenders, and shares of it."""

from dataclasses import dataclass, fields
from typing import Any

from radiance_core.kbench.machine import ceilings


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured maxima, a second: bytes read by one thread and by all, products of all threads.

    Multiplications and additions count as two; 0 where the processor has no such products.
    """

    threads: int
    one_read: float
    all_read: float
    i8: float
    bf16: float
    f32: float

    def share(self, ops: dict[str, float]) -> float | None:
        """Return which part of a second some operations take at least, by their numbers.

        None where some are of a kind whose peak is not known.
        """
        peaks = {numbers: float(getattr(self, numbers)) for numbers, count in ops.items() if count}
        if not all(peaks.values()):
            return None
        return sum(ops[numbers] / peak for numbers, peak in peaks.items())

    def of_products(self, ops: dict[str, float]) -> tuple[tuple[str, ...], float] | None:
        """Return of what numbers some products are, and how many a second of their mixture.

        Where a processor multiplies no bf16, products of it are made of f32.
        """
        made = dict(ops)
        if not self.bf16:
            made["f32"] = made.get("f32", 0) + made.pop("bf16", 0)
        numbers = tuple(name for name, count in made.items() if count)
        least_s = self.share(made)
        return (numbers, sum(made.values()) / least_s) if least_s else None


def measure(threads: int) -> Peaks:
    """Measure; takes some seconds."""
    one = ceilings(1)
    all_ = ceilings(threads) if threads > 1 else one
    return Peaks(threads, one.bytes_per_s, all_.bytes_per_s, **all_.products_per_s)


def best(measured: list[Peaks]) -> Peaks:
    """Return the highest of several measurements: another program can only lower one."""
    names = [field.name for field in fields(Peaks)]
    return Peaks(*(max(getattr(p, name) for p in measured) for name in names))


def bytes_per_token(facts: dict[str, Any], tokens: int) -> float:
    """Return bytes that a step of one stream reads: all weights, and the cache half way through."""
    cache = facts["cache_bytes_per_token"] * (16 + tokens / 2)
    return float(facts["weight_bytes"] + cache)


def ops_per_second(facts: dict[str, Any], prefill: float) -> dict[str, float]:
    """Return multiplications and additions a second, by their numbers, at a rate of prompt tokens.

    Products of two planes of activations count once: it is what the prompt needs, not what is done.
    """
    return {numbers: ops * prefill for numbers, ops in facts["ops_per_prompt_token"].items()}
