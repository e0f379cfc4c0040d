"""Find the best values of one place: an axis at a time, and in the end against the defaults."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from radiance_abi.kernels import Axis
from radiance_core.tune.bench import Bench, Scene, Values
from radiance_core.tune.places import Place
from radiance_core.tune.verdict import gain, is_better

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """How fast one value of an axis was: by number of rows, times as fast as what was best before.

    ``ratios`` is empty for a value that was not run, since it stores weights otherwise.
    """

    axis: str
    value: int
    ratios: dict[int, list[float]]

    @property
    def shown(self) -> dict[int, float]:
        """Medians by number of rows."""
        return {rows: median(ratios) for rows, ratios in self.ratios.items()}


@dataclass(frozen=True, slots=True)
class Found:
    """What was found at a place.

    Args:
        place: where.
        seconds: of one node with the defaults, by number of rows.
        measured: every value that is not a default, in the order in which they were run.
        values: the best of all axes; the defaults when nothing is better.
        gain: how many times as fast that is, measured again in the end; 1 for the defaults.
    """

    place: Place
    seconds: dict[int, float]
    measured: tuple[Measured, ...]
    values: Values
    gain: float


def search(bench: Bench, place: Place, rounds: int, progress: Progress) -> Found:
    """Return the best values of a place's axes.

    Args:
        bench: the model.
        place: what to run.
        rounds: how often each value is run.
        progress: is told what is being run.
    """
    kernel = place.band.kernel
    defaults = {axis.name: axis.default for axis in kernel.axes}
    best: Values = dict(defaults)
    seconds: dict[int, float] = {}
    measured: list[Measured] = []
    for axis in kernel.axes:
        progress(f"{axis.name} of {kernel.op}")
        tried = _try_axis(bench, place, axis, best, rounds, seconds)
        measured += tried
        better = [m for m in tried if m.ratios and is_better(m.ratios)]
        if better:
            winner = max(better, key=lambda m: gain(m.ratios))
            best = {**best, axis.name: winner.value}
    if best == defaults:
        return Found(place, seconds, tuple(measured), best, 1.0)
    # What won among many may have had luck, so that it has to win once more.
    progress(f"{kernel.op} once more")
    again = {
        scene.rows: bench.race(scene, defaults, [best], rounds)[0]
        for scene in _scenes(bench, place)
    }
    if not is_better(again):
        return Found(place, seconds, tuple(measured), defaults, 1.0)
    return Found(place, seconds, tuple(measured), best, gain(again))


def _try_axis(
    bench: Bench, place: Place, axis: Axis, best: Values, rounds: int, seconds: dict[int, float]
) -> list[Measured]:
    others = [{**best, axis.name: value} for value in axis.values if value != best[axis.name]]
    run: Sequence[Values] = [values for values in others if place.stores_alike(values)]
    measured = [Measured(axis.name, values[axis.name], {}) for values in others]
    for scene in _scenes(bench, place):
        seconds.setdefault(scene.rows, scene.seconds / scene.num_nodes)
        for values, ratios in zip(run, bench.race(scene, best, run, rounds), strict=True):
            next(m for m in measured if m.value == values[axis.name]).ratios[scene.rows] = ratios
    return measured


def _scenes(bench: Bench, place: Place) -> Iterator[Scene]:
    for rows in place.rows:
        scene = bench.scene(place, rows)
        if scene is not None:
            yield scene
