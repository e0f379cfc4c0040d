"""What ``/graph`` says: every node, and once for all alike ones which kernels serve it and why.

Also what ``/server_info`` says of libraries and of choices for axes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from radiance_core.resolve.report import operand_text
from radiance_core.resolve.result import UNBOUNDED, ResolvedBand, ResolvedNode
from radiance_core.resolve.tuning import Choice, Tuning

Facts = dict[str, object]


def graph_facts(nodes: Sequence[ResolvedNode]) -> Facts:
    """Return the resolved graph as JSON.

    ``nodes`` stand in order; the ``selection`` of each is a place in ``selections``, which nodes
    of one op, one geometry and equal values of axes share.
    """
    selections: list[Facts] = []
    places: dict[object, int] = {}
    listed: list[Facts] = []
    for index, resolved in enumerate(nodes):
        node = resolved.node
        key = (node.schema.op, frozenset(node.params.items()), _identity(resolved.bands))
        if key not in places:
            places[key] = len(selections)
            selections.append(_selection(resolved))
        listed.append({
            "index": index,
            "name": node.name,
            "op": node.schema.op,
            "operands": ["-" if o is None else operand_text(o) for o in node.operands],
            "outputs": [operand_text(o) for o in node.outputs],
            "rows": node.rows,
            "selection": places[key],
        })  # fmt: skip
    return {
        "libraries": libraries(nodes),
        "num_ops": len({n.node.schema.op for n in nodes}),
        "nodes": listed,
        "selections": selections,
    }


def libraries(nodes: Sequence[ResolvedNode]) -> dict[str, Facts]:
    """Return, by library that serves something, its version and the ops that it serves."""
    served: dict[str, Facts] = {}
    ops: dict[str, set[str]] = {}
    for node in nodes:
        for band in node.bands:
            library = band.library
            served.setdefault(
                library.name, {"version": library.version, "reference": library.reference}
            )
            ops.setdefault(library.name, set()).add(node.node.schema.op)
    return {name: {**facts, "ops": sorted(ops[name])} for name, facts in served.items()}


def tuning_facts(tuning: Tuning, nodes: Sequence[ResolvedNode]) -> Facts:
    """Return which file of choices was read, and those that nodes are served with.

    Of the file its name alone is told, not where it lies.
    """
    used = {id(c): c for node in nodes for band in node.bands if (c := band.choice) is not None}
    return {
        "file": None if tuning.source is None else tuning.source.name,
        "choices": [_choice(choice) for choice in used.values()],
        "passed_over": dict(tuning.passed_over),
        "num_warnings": len(tuning.warnings),
    }


def _choice(choice: Choice) -> Facts:
    op, library, kernel = choice.row
    return {
        "op": op,
        "library": library,
        "kernel": kernel,
        "ranged": choice.ranged,
        "lower": choice.band[0],
        "upper": choice.band[1],
        "geometry": sorted(choice.geometry),
        "axes": dict(choice.values),
        "gain": choice.gain,
        "tuned": choice.day.isoformat(),
    }


def _identity(bands: Sequence[ResolvedBand]) -> object:
    return tuple(
        (b.lower, b.upper, b.library.name, b.kernel.name, b.refused, tuple(b.axes.items()))
        for b in bands
    )


def _selection(resolved: ResolvedNode) -> Facts:
    schema = resolved.node.schema
    return {
        "op": schema.op,
        "params": dict(_known(resolved)),
        "ranged": schema.ranged,
        "bands": [_band(band) for band in resolved.bands],
    }


def _known(resolved: ResolvedNode) -> Mapping[str, int | float | str]:
    """Return the params, with those that the chosen kernel settled."""
    return resolved.bands[0].params if resolved.bands else resolved.node.params


def _band(band: ResolvedBand) -> Facts:
    kernel, choice = band.kernel, band.choice
    return {
        "lower": band.lower,
        "upper": None if band.upper >= UNBOUNDED else band.upper,
        "library": band.library.name,
        "kernel": kernel.name,
        "priority": kernel.priority,
        "reference": band.library.reference,
        "takes": [str(constraint) for constraint in kernel.where],
        "layouts": sorted({lay.name for lay in band.layouts.values() if lay is not None}),
        "axes": dict(band.axes),
        "tuned": None if choice is None else choice.day.isoformat(),
        "why": why(band),
        "refused": [asdict(refusal) for refusal in band.refused],
    }


def why(band: ResolvedBand) -> str:
    """Say in a sentence why a band's kernel was chosen: libraries in order, rows by priority."""
    rows = len(band.refused) + 1 + band.num_untried
    if rows == 1:
        return f"{band.library.name} has the only row for this op, and it takes this geometry."
    before = len(band.refused)
    if before == 0:
        return (
            f"Of {rows} rows for this op, {band.library.name}'s {band.kernel.name} comes first in "
            "the order of libraries and priorities, and it takes this geometry."
        )
    were = "row before it was" if before == 1 else "rows before it were"
    return (
        f"Of {rows} rows for this op, {band.library.name}'s {band.kernel.name} is the first that "
        f"takes this geometry; {before} {were} refused."
    )
