"""What some ratios of times say: how much faster, and whether that is more than noise."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

MARGIN = 0.01
"""How much faster a value must be at some number of rows, beyond the noise."""

SLACK = 0.02
"""How much slower it may seem at another, within the noise."""

LEAST_ROUNDS = 10
_CHANCE = 1e-3


def bounds(ratios: Sequence[float]) -> tuple[float, float]:
    """Return what the true median lies below, and above, with a chance of 0.001 each.

    Those are the k-th smallest and k-th largest ratio, with the largest k for which fewer than k of
    n coins fall heads with that chance at most. No assumption is made on how times scatter.
    """
    ranked, total, k = sorted(ratios), 0.0, 0
    while total + math.comb(len(ranked), k) / 2 ** len(ranked) <= _CHANCE:
        total += math.comb(len(ranked), k) / 2 ** len(ranked)
        k += 1
    return (ranked[k - 1], ranked[-k]) if k else (0.0, math.inf)


def gain(ratios: Mapping[int, Sequence[float]]) -> float:
    """Return how many times as fast, as the geometric mean over the numbers of rows."""
    return math.exp(sum(math.log(median(r)) for r in ratios.values()) / len(ratios))


def is_better(ratios: Mapping[int, Sequence[float]]) -> bool:
    """Return whether it is faster at some number of rows and slower at none.

    Args:
        ratios: by number of rows, times of the default by times of the other, run in turn.
    """
    faster = any(bounds(r)[0] > 1 + MARGIN for r in ratios.values())
    return faster and all(median(r) > 1 - SLACK and bounds(r)[1] >= 1 for r in ratios.values())
