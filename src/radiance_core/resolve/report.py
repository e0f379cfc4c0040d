"""Texts about resolving: every miss with what refused each candidate, and the selection tables."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from radiance_core.resolve.result import UNBOUNDED, Miss, Refusal, ResolvedBand, ResolvedNode
from radiance_core.resolve.tuning import age_text

_MOST_REFUSALS = 4


def band_text(lower: int, upper: int, ranged: str | None) -> str:
    """Spell a band: "M 1..4", or nothing when the op has no ranged param."""
    if ranged is None:
        return ""
    return f"{ranged} {lower}..{'' if upper >= UNBOUNDED else upper}"


def params_text(params: Mapping[str, object]) -> str:
    """Spell params as k=v in order."""
    return " ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in params.items())


def misses_text(misses: Sequence[Miss]) -> str:
    """Spell all misses, alike ones once, with what refused each candidate."""
    groups: dict[tuple[object, ...], list[Miss]] = {}
    for m in misses:
        key = (m.op, m.lower, m.upper, frozenset(m.params.items()), m.refusals)
        groups.setdefault(key, []).append(m)
    have = "geometry has" if len(groups) == 1 else "geometries have"
    lines = [f"{len(groups)} op {have} no kernel:"]
    for same in groups.values():
        m = same[0]
        band = band_text(m.lower, m.upper, m.ranged)
        where = m.node if len(same) == 1 else f"{m.node} and {len(same) - 1} more"
        geometry = " ".join(part for part in (params_text(m.params), band) if part)
        lines.append(f"  {m.op}: no kernel takes {geometry} ({where})")
        if not m.refusals:
            lines.append("    no loaded library has a row for it")
        lines += [f"    {r.library}.{r.kernel}: {r.reason}" for r in m.refusals]
    lines.append("Name a library that serves them with --kernels, or install one.")
    return "\n".join(lines)


def reference_text(
    ops: Mapping[str, str],
    arch: str,
    others: Mapping[str, list[str]],
    refusals: Sequence[tuple[str, Refusal]],
) -> str:
    """Spell the refusal to serve through a reference library.

    Args:
        ops: those that it would serve, and its name.
        arch: architecture id.
        others: by op, libraries that are installed and not loaded.
        refusals: why rows of other libraries do not serve an op, with that op.
    """
    names = sorted(set(ops.values()))
    can = sorted({lib for op in ops for lib in others.get(op, [])})
    if can:
        fast = f"installed and able: --kernels {','.join([*can, *names])}"
    else:
        fast = "no installed library does"
    asked = [f"{op}: {r.library}.{r.kernel}: {r.reason}" for op, r in refusals[:_MOST_REFUSALS]]
    rest = f"; and {len(refusals) - len(asked)} more" if len(refusals) > len(asked) else ""
    why = f" Rows that do not: {'; '.join(asked)}{rest}." if asked else ""
    count = "1 op of {} resolves" if len(ops) == 1 else f"{len(ops)} ops of {{}} resolve"
    return (
        f"{count.format(arch)} only to a reference library ({', '.join(names)}), which "
        f"serves orders of magnitude slower than this machine can: {', '.join(sorted(ops))}. To "
        f"serve them fast add a library that serves them as they are here ({fast}).{why} To go on "
        "anyway: --debug-accept-reference-kernels."
    )


def _band_line(band: ResolvedBand, ranged: str | None) -> str:
    layouts = " ".join(sorted({lay.name for lay in band.layouts.values() if lay is not None}))
    shown = band_text(band.lower, band.upper, ranged)
    parts = [f"{shown:<16} {band.library.name}.{band.kernel.name}"]
    parts += [f"layout {layouts}"] if layouts else []
    parts += [axes_text(band)] if band.axes else []
    return "  ".join(parts)


def axes_text(band: ResolvedBand) -> str:
    """Spell the values of a band's axes, and how old the choice is."""
    choice = band.choice
    if choice is None:
        return f"{params_text(band.axes)} (defaults)"
    age = age_text(choice.day, datetime.now(UTC).astimezone().date())
    return f"{params_text(band.axes)} (tuned {age}, {choice.gain:.2f}x)"


def selection_text(nodes: Sequence[ResolvedNode]) -> str:
    """Spell which row serves each op geometry in each band (``--debug-selection``)."""
    lines: list[str] = []
    groups: dict[tuple[object, ...], list[ResolvedNode]] = {}
    for r in nodes:
        lines_of = tuple(_band_line(b, r.node.schema.ranged) for b in r.bands)
        key = (r.node.schema.op, frozenset(r.node.params.items()), lines_of)
        groups.setdefault(key, []).append(r)
    for same in groups.values():
        first = same[0]
        lines.append(f"{first.node.schema.op} x{len(same)}  {params_text(first.node.params)}")
        lines += [f"    {_band_line(b, first.node.schema.ranged)}" for b in first.bands]
    return "\n".join(lines)


def graph_text(nodes: Sequence[ResolvedNode]) -> str:
    """Spell every node in order with its operands and kernels (``--debug-graph``)."""
    lines = []
    for index, r in enumerate(nodes):
        node = r.node
        operands = ", ".join("-" if o is None else operand_text(o) for o in node.operands)
        outputs = ", ".join(operand_text(v) for v in node.outputs)
        arrow = f" -> {outputs}" if outputs else ""
        lines.append(f"{index:4d} {node.schema.op}({operands}){arrow}")
        lines.append(f"       {params_text(node.params)}")
        lines += [f"       {_band_line(b, node.schema.ranged)}" for b in r.bands]
    return "\n".join(lines)


def operand_text(operand: object) -> str:
    """Spell an operand with its extents and type, a cache with its layer."""
    group = getattr(operand, "group", None)
    if group is not None:
        return f"{group.name}[{group.layers[getattr(operand, 'position', 0)]}]"
    name = str(getattr(operand, "name", operand))
    shape = ",".join(str(d) for d in getattr(operand, "shape", ()))
    encoding = getattr(operand, "encoding", None)
    return f"{name}[{shape}]:{encoding if encoding is not None else getattr(operand, 'dtype', '')}"
