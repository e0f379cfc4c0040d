"""What ratios say: bounds that hold whatever the noise, and what counts as faster."""

from itertools import product

import numpy as np
import pytest

from radiance_core.tune.verdict import LEAST_ROUNDS, MARGIN, bounds, gain, is_better


def test_bounds_are_order_statistics() -> None:
    """Of 10 the ends, of 21 the fourth from each end; of fewer than 10 nothing can be said."""
    assert bounds(range(1, 11)) == (1, 10)
    assert bounds(range(1, 22)) == (4, 18)
    assert bounds([1.5] * (LEAST_ROUNDS - 1)) == (0.0, float("inf"))


def test_the_chance_is_what_is_said() -> None:
    """Over all ways in which 12 ratios lie about their median, a bound misses once in 1000."""
    misses = sum(
        bounds([2.0 if above else 0.5 for above in way])[0] > 1
        for way in product((False, True), repeat=12)
    )
    assert 0 < misses / 2**12 <= 1e-3


def test_noise_alone_is_not_faster() -> None:
    """Ratios that scatter about 1 are not better, however wide."""
    around = [1 + s * d / 20 for s in (-1, 1) for d in range(1, 11)]
    assert not is_better({1: around})
    assert not is_better({1: [1 + MARGIN / 2] * 21})


def test_faster_at_one_number_of_rows_and_slower_at_none() -> None:
    """One clear win suffices; a clear loss elsewhere, or a median that says much, forbids it."""
    fast, same, slow = [1.2] * 21, [1.0] * 21, [0.95] * 21
    assert is_better({1: fast, 8: same})
    assert not is_better({1: fast, 8: slow})
    assert not is_better({1: same, 8: same})
    assert not is_better({1: fast, 8: [0.97] * 11 + [1.1] * 10})
    assert is_better({1: fast, 8: [0.99] * 11 + [1.1] * 10})


def test_the_gain_is_a_geometric_mean_of_medians() -> None:
    """Twice as fast at one, and a third slower at another."""
    rng = np.random.default_rng()
    one, other = rng.permutation([1, 2, 9]).tolist(), [0.5, 0.5, 0.5]
    assert gain({1: one, 8: other}) == pytest.approx(1.0)
