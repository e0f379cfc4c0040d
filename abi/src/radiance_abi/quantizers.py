"""Quantisers: how an f32 weight becomes the planes of an encoding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from radiance_abi.encoding import Encoding

OptionValue = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a quantiser: name, type, default and one line of help."""

    name: str
    type: type
    default: OptionValue
    help: str = ""


@dataclass(frozen=True, slots=True)
class WeightInfo:
    """What a quantiser may know about a weight; ``importance`` is one f32 per column, or None."""

    name: str
    shape: tuple[int, ...]
    layer: int | None = None
    expert: int | None = None
    importance: np.ndarray | None = None


class Quantizer(Protocol):
    """Turns rows of f32 into the planes of an encoding, the same bytes on any machine."""

    name: str
    options: Sequence[Option]

    def encoding(self, weight: WeightInfo, options: Mapping[str, OptionValue]) -> Encoding | None:
        """Return what it would write, or None to decline this weight. Must not read the weight."""

    def quantize(
        self, weight: WeightInfo, rows: np.ndarray, options: Mapping[str, OptionValue]
    ) -> dict[str, np.ndarray]:
        """Return the planes of ``rows`` [r, cols] f32; must not keep a reference to it."""
