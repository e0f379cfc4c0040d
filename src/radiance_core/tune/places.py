"""Where a model's kernels have axes: nodes that are alike, each with the rows to measure at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from radiance_abi.kernels import AS_IS, Layout
from radiance_core.graph.ir import GraphWeight
from radiance_core.resolve.result import UNBOUNDED, ResolvedBand, ResolvedNode
from radiance_core.resolve.tuning import Choice, Row, facts

ROWS = (1, 8, 512)
"""One conversation, some, and a prompt; what lies outside a band is moved to its end."""


@dataclass(slots=True)
class Place:
    """Nodes of one op, kernel, geometry and band.

    Args:
        node: the first of them.
        band: what serves them.
        is_last: whether the band has no end but the largest step.
        rows: values of the ranged param to measure at.
        indices: of the nodes whose rows are counted by the same symbol, in order.
    """

    node: ResolvedNode
    band: ResolvedBand
    is_last: bool
    rows: tuple[int, ...]
    indices: list[int] = field(default_factory=list)

    def choice(self, values: Mapping[str, int], gain: float, day: date) -> Choice:
        """Return a choice for this place; values that are defaults are left out."""
        defaults = {axis.name: axis.default for axis in self.band.kernel.axes}
        changed = {name: value for name, value in values.items() if value != defaults[name]}
        upper = None if self.is_last else self.band.upper
        return Choice(
            row_of(self.band),
            facts(self.node.node, self.band.params),
            self.node.node.schema.ranged,
            (self.band.lower, upper),
            changed,
            gain,
            day,
        )

    def stores_alike(self, values: Mapping[str, int]) -> bool:
        """Return whether a kernel with these values reads the weights as they are laid out."""
        node, hook = self.node.node, self.band.kernel.layout
        if hook is None:
            return True
        ranged = {} if node.schema.ranged is None else {node.schema.ranged: self.band.upper}
        geometry = {**self.band.params, **ranged, **values}
        for index, layout in self.band.layouts.items():
            weight = node.operands[index]
            assert isinstance(weight, GraphWeight), "layouts belong to weight operands"
            if _stored(hook(weight.encoding, weight.shape, geometry, index)) != layout:
                return False
        return True


def row_of(band: ResolvedBand) -> Row:
    """Return op, library and kernel of a band."""
    return (band.kernel.op, band.library.name, band.kernel.name)


def find_places(nodes: Sequence[ResolvedNode], most_rows: Mapping[str, int]) -> list[Place]:
    """Return the places of a graph in order.

    Args:
        nodes: the resolved graph.
        most_rows: largest value of each symbol.
    """
    places: dict[object, Place] = {}
    for index, resolved in enumerate(nodes):
        for band in resolved.bands:
            if not band.kernel.axes:
                continue
            key = (row_of(band), facts(resolved.node, band.params), band.lower)
            if key not in places:
                is_last = band is resolved.bands[-1]
                most = most_rows.get(resolved.node.ranged or "", 1)
                rows = rows_within(band.lower, min(band.upper, most, UNBOUNDED))
                places[key] = Place(resolved, band, is_last, rows)
            if places[key].node.node.ranged == resolved.node.ranged:
                places[key].indices.append(index)
    return list(places.values())


def rows_within(lower: int, upper: int) -> tuple[int, ...]:
    """Return ``ROWS``, those outside a band moved to its nearer end."""
    return tuple(sorted({min(max(count, lower), upper) for count in ROWS}))


def _stored(layout: Layout | None) -> Layout | None:
    return None if layout is None or layout.name == AS_IS else layout
