"""What resolving gives: a bucket table a node, and the misses."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from radiance_abi.kernels import Kernel, KernelLibrary, Layout
from radiance_core.graph.ir import Node
from radiance_core.resolve.tuning import Choice

UNBOUNDED = 2**62


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one candidate row does not serve a band."""

    library: str
    kernel: str
    reason: str


@dataclass(frozen=True, slots=True)
class ResolvedBand:
    """Kernel for ranged values ``lower``..``upper``; ``layouts`` by operand, None is as it is.

    ``refused`` has the rows that come before the kernel and why each does not serve the band;
    ``num_untried`` counts those that come after it, which nobody asked. ``axes``: the value of each
    of the kernel's; ``choice``: who says so, None for the defaults.
    """

    lower: int
    upper: int
    library: KernelLibrary
    kernel: Kernel
    params: Mapping[str, int | float | str]
    layouts: Mapping[int, Layout | None]
    refused: tuple[Refusal, ...] = ()
    num_untried: int = 0
    axes: Mapping[str, int] = field(default_factory=dict)
    choice: Choice | None = None


@dataclass(frozen=True, slots=True)
class Miss:
    """A band of an op that nothing serves, and what refused each candidate."""

    node: str
    op: str
    lower: int
    upper: int
    ranged: str | None
    params: Mapping[str, int | float | str]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class ResolvedNode:
    """A node with its bucket table, bands ascending and without gaps."""

    node: Node
    bands: tuple[ResolvedBand, ...]
