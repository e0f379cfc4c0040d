"""Random numbers for activations."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from radiance_abi.testing.case import Array


def numbers(shape: Sequence[int], kind: "np.dtype[np.generic]", rng: np.random.Generator) -> Array:
    """Return numbers of one element type: floats of size about 1 with some large rows."""
    if kind.kind in "iu":
        limits: Any = np.iinfo(kind)
        return rng.integers(max(limits.min, -127), min(limits.max, 127), shape, kind, endpoint=True)
    size = np.exp(rng.standard_normal((*shape[:-1], 1), np.float32))
    return (rng.standard_normal(shape, np.float32) * size).astype(kind)
