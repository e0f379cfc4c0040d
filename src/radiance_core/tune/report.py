"""What ``rad-tune`` prints: a paragraph for each place."""

from collections.abc import Iterator, Sequence

from radiance_core.resolve.report import band_text, params_text
from radiance_core.resolve.result import UNBOUNDED
from radiance_core.resolve.tuning import weight_facts
from radiance_core.tune.places import Place
from radiance_core.tune.search import Found, Measured


def place_lines(place: Place) -> Iterator[str]:
    """Yield what a place is, and which values its axes may have."""
    band = place.band
    upper = UNBOUNDED if place.is_last else band.upper
    shown = band_text(band.lower, upper, place.node.node.schema.ranged)
    parts = (shown, params_text(band.params), *weight_facts(place.node.node))
    facts = " ".join(part for part in parts if part)
    yield f"{band.kernel.op} x{len(place.indices)}  {band.library.name}.{band.kernel.name}  {facts}"
    for axis in band.kernel.axes:
        values = (f"[{v}]" if v == axis.default else str(v) for v in axis.values)
        yield f"    {axis.name}: {' '.join(values)}"


def found_lines(found: Found) -> Iterator[str]:
    """Yield what was measured at a place, and what is kept."""
    times = ", ".join(
        f"{_rows(found.place, rows)} {1e6 * s:.1f} µs" for rows, s in found.seconds.items()
    )
    yield f"    one node with the defaults: {times}"
    for axis in found.place.band.kernel.axes:
        tried = [m for m in found.measured if m.axis == axis.name]
        if tried:
            yield f"    {axis.name}: {'; '.join(_measured(m) for m in tried)}"
    changed = {
        axis.name: found.values[axis.name]
        for axis in found.place.band.kernel.axes
        if found.values[axis.name] != axis.default
    }
    kept = f"{params_text(changed)}, {found.gain:.3f}x" if changed else "defaults"
    yield f"    kept: {kept}"


def summary(found: Sequence[Found]) -> str:
    """Say in a line what came of it."""
    kept = [f for f in found if f.gain != 1.0]
    if not kept:
        return f"{len(found)} measured: nothing is faster than the defaults by more than noise"
    gains = ", ".join(f"{f.gain:.2f}x" for f in kept)
    return f"{len(found)} measured, {len(kept)} faster with other values than the defaults: {gains}"


def _measured(m: Measured) -> str:
    if not m.ratios:
        return f"{m.value} stores weights otherwise, not measured"
    return f"{m.value} " + " ".join(f"{ratio:.3f}x" for ratio in m.shown.values())


def _rows(place: Place, rows: int) -> str:
    ranged = place.node.node.schema.ranged
    return f"{ranged}={rows}" if ranged else "a call"
