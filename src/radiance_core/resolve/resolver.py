"""Pick the kernels: first library with a matching row; priority ranks rows inside one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from radiance_abi.kernels import AS_IS, Kernel, KernelLibrary, Layout
from radiance_core.graph.ir import GraphOperand, GraphWeight, KvLayer, Node
from radiance_core.resolve.bands import cut, fill_derived, refusal
from radiance_core.resolve.result import Miss, Refusal, ResolvedBand, ResolvedNode
from radiance_core.resolve.tuning import UNTUNED, Tuning, axes_of, facts

Candidate = tuple[KernelLibrary, Kernel]
Key = tuple[object, ...]

AS_THEY_ARE = ("f32", "f16", "bf16")
"""Element types of plain weights that every kernel without a layout of its own must read."""


class Resolver:
    """Resolves nodes against libraries in their order.

    Args:
        libraries: in order of preference, reference libraries last.
        largest: symbol name to the greatest value that it takes ("TOKENS" to tokens a step).
        tuning: values for the axes of kernels.
    """

    def __init__(
        self,
        libraries: Sequence[KernelLibrary],
        largest: Mapping[str, int],
        tuning: Tuning = UNTUNED,
    ) -> None:
        self._largest = largest
        self._tuning = tuning
        self._reference_only = all(library.reference for library in libraries)
        self._rows: dict[str, list[Candidate]] = {}
        for library in libraries:
            ranked = sorted(
                enumerate(library.kernels), key=lambda pair: (-pair[1].priority, pair[0])
            )
            for _, kernel in ranked:
                self._rows.setdefault(kernel.op, []).append((library, kernel))
        self._known: dict[Key, tuple[list[ResolvedBand], list[Miss]]] = {}

    def serves(self, node: Node) -> bool:
        """Return whether every band of the node has a kernel worth asking for.

        One of a reference library is none beside libraries that are fast: whoever asks has other
        ops, which those may serve.
        """
        resolved, misses = self.resolve(node)
        slow = any(band.library.reference for band in resolved.bands)
        return not misses and (self._reference_only or not slow)

    def resolve(
        self, node: Node, extra: Mapping[str, int | str] | None = None
    ) -> tuple[ResolvedNode, list[Miss]]:
        """Resolve one node; ``extra`` are params that its state group fixes."""
        params = {**node.params, **(extra or {})}
        key: Key = (
            node.schema.op,
            node.ranged,
            frozenset(params.items()),
            tuple(_weight_key(o) for o in node.operands),
        )
        found = self._known.get(key)
        if found is None:
            found = self._search(node, params)
            self._known[key] = found
        return ResolvedNode(node, tuple(found[0])), [
            Miss(node.name, m.op, m.lower, m.upper, m.ranged, m.params, m.refusals)
            for m in found[1]
        ]

    def _search(
        self, node: Node, params: dict[str, int | float | str]
    ) -> tuple[list[ResolvedBand], list[Miss]]:
        schema = node.schema
        candidates = self._rows.get(schema.op, [])
        largest = self._largest.get(node.ranged or "", 1)
        derived = frozenset(p.name for p in schema.params if p.derived)
        if any(isinstance(o, KvLayer) for o in node.operands):
            # What the group will take from its attention kernel stays open until that is resolved.
            derived |= {"block_size", "kv_dtype"}
        bands: list[ResolvedBand] = []
        misses: list[Miss] = []
        fixed = _Fixed(dict(params))
        every = [c for _, k in candidates for c in k.where]
        for band in cut(every, schema.ranged, largest):
            refused: list[Refusal] = []
            for place, candidate in enumerate(candidates, 1):
                found = _try(candidate, node, band, fixed, derived, self._tuning)
                if isinstance(found, ResolvedBand):
                    left = len(candidates) - place
                    bands.append(replace(found, refused=tuple(refused), num_untried=left))
                    fixed.take(found)
                    break
                refused.append(found)
            else:
                misses.append(
                    Miss(node.name, schema.op, *band, schema.ranged, params, tuple(refused))
                )
        return bands, misses


@dataclass(slots=True)
class _Fixed:
    """What a node's lower bands have settled: derived params, and who lays its weights out."""

    params: dict[str, int | float | str]
    layouts: dict[int, tuple[str, Layout | None]] = field(default_factory=dict)

    def take(self, band: ResolvedBand) -> None:
        self.params.update(band.params)
        for index, layout in band.layouts.items():
            self.layouts[index] = (band.library.name, layout)


def _try(
    candidate: Candidate,
    node: Node,
    band: tuple[int, int],
    fixed: _Fixed,
    derived: frozenset[str],
    tuning: Tuning,
) -> ResolvedBand | Refusal:
    """Return the band served by a candidate, or why it is not."""
    library, kernel = candidate
    ranged = node.schema.ranged
    reason = refusal(kernel.where, fixed.params, ranged, band, derived)
    if kernel.domain != "host":
        reason = f"runs on a {kernel.domain}, this plan is for the host"
    if reason is not None:
        return Refusal(library.name, kernel.name, reason)
    full = fill_derived(kernel.where, fixed.params, derived)
    row = (kernel.op, library.name, kernel.name)
    choice = tuning.of(row, facts(node, full), band) if kernel.axes else None
    axes = axes_of(kernel, choice)
    layouts: dict[int, Layout | None] = {}
    for index, operand in enumerate(node.operands):
        if not isinstance(operand, GraphWeight):
            continue
        geometry = {**full, **({ranged: band[1]} if ranged else {}), **axes}
        layout = _layout_of(kernel, operand, geometry, index)
        if isinstance(layout, str):
            return Refusal(library.name, kernel.name, layout)
        if index in fixed.layouts:
            reason = _disagreement(fixed.layouts[index], (library.name, layout), operand.name)
            if reason is not None:
                return Refusal(library.name, kernel.name, reason)
        layouts[index] = layout
    return ResolvedBand(*band, library, kernel, full, layouts, axes=axes, choice=choice)


def _layout_of(
    kernel: Kernel, weight: GraphWeight, geometry: Mapping[str, int | float | str], index: int
) -> Layout | str | None:
    """Return what the kernel stores for a weight (None as it is), or in words why it cannot."""
    layout: Layout | None = None
    if kernel.layout is not None:
        try:
            layout = kernel.layout(weight.encoding, weight.shape, geometry, index)
        except Exception as error:
            # A plugin's fault must not end start-up where another candidate serves.
            return f"layout of {weight.name} failed: {type(error).__name__}: {error}"
        if layout is None:
            return f"does not read encoding {weight.encoding}"
        layout = None if layout.name == AS_IS else layout
    if layout is None and not weight.encoding.is_plain:
        return f"reads plain weights only, {weight.name} is {weight.encoding}"
    if layout is None and weight.encoding.codes.dtype not in AS_THEY_ARE:
        return (
            f"reads {', '.join(AS_THEY_ARE)} weights as they are, {weight.name} is "
            f"{weight.encoding}"
        )
    return layout


def _disagreement(
    lower: tuple[str, Layout | None], mine: tuple[str, Layout | None], weight: str
) -> str | None:
    """Return why a band cannot read what a lower band has stored, or None.

    A layout's name is its library's own: two libraries may use one name for different bytes.
    """
    lower_layout, layout = lower[1], mine[1]
    if lower_layout is None and layout is None:
        return None
    if lower_layout is not None and layout is not None and lower[0] == mine[0]:
        if lower_layout == layout:
            return None
        if lower_layout.name == layout.name:
            return f"gives layout {layout.name} of {weight} other extents than a lower band does"
    return f"asks for {_spell(*mine)} of {weight}, a lower band for {_spell(*lower)}"


def _spell(library: str, layout: Layout | None) -> str:
    return "the plane as it is" if layout is None else f"layout {library}.{layout.name}"


def _weight_key(operand: GraphOperand) -> object:
    if isinstance(operand, GraphWeight):
        return (operand.encoding, operand.shape)
    return operand is None
