"""Random damage to model files ends in a typed error or a good read, never in anything else."""

import random

from .fuzz_files import run


def test_damaged_files_are_refused_or_read() -> None:
    """Thousands of fresh cases; the failing seed is in the message and replays the case."""
    start = random.SystemRandom().getrandbits(48)
    results = run(range(start, start + 2500), seconds=8, at_least=1000)
    assert results["opened"] > 50
    assert results["refused"] > 200
