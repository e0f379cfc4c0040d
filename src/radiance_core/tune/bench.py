"""Run the nodes of one place over and over, with other values of the kernel's axes.

Nodes run on the model's own weights, one after the other as in a step, by the executor that serves.
Before a run the rest of the model's weights is read, by running the nodes that have some, so that
a cache holds what it would hold in a step::

    rest of the step | nodes of the place, default | rest | nodes, ahead=512 | rest | ...
                     '-------- timed -------------'       '----- timed ------'

All nodes read the activations that the first one has in a step, and write to memory that none of
them reads, so that each run does the same work.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from radiance_core.build import Plan, bind_model, make_executor
from radiance_core.execute.program import SYMBOLS, Band, NodeTemplate, StepProgram
from radiance_core.load.weights import zeros
from radiance_core.resolve.result import UNBOUNDED
from radiance_core.runtime import StepShape
from radiance_core.tune.places import Place
from radiance_core.tune.steps import fill, has_rows, shape_of

Values = Mapping[str, int]

_MOST_S, _LEAST_S = 0.01, 0.0005
_MORE_ROUNDS = 3  # of short runs, whose times scatter more
_FEW_ROWS = 32  # more do so much work on a weight that it hardly matters where that came from


@dataclass(frozen=True, slots=True)
class Scene:
    """A place at a number of rows, ready to be run.

    ``shape``: the step; ``num_nodes``: how many of the place's nodes are run; ``repeats``: how
    often in one sample; ``rest``: program of the others with weights, None when that is not run.
    """

    place: Place
    rows: int
    shape: StepShape
    num_nodes: int
    repeats: int
    rest: Any
    seconds: float


class Bench:
    """A model in memory whose nodes can be timed; ``close`` frees it.

    Args:
        plan: of the model, resolved with the defaults of all kernels.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._bound, self._executor = bind_model(plan), make_executor(plan)
        arena = self._bound.arena_slot
        size = (max(plan.arena.total_bytes, 1),)
        self._kept = [zeros(size, np.dtype(np.uint8)) for _ in range(2)]
        results, other = (memory.ctypes.data for memory in self._kept)
        self._slots = np.append(self._bound.slots, np.uint64(results))
        # The rest of a step works elsewhere, so that it leaves what the place reads alone.
        self._elsewhere = self._slots.copy()
        self._elsewhere[arena] = other
        self._limits = [plan.largest[name] for name in SYMBOLS]

    def close(self) -> None:
        """End the threads."""
        self._executor.close()

    def scene(self, place: Place, rows: int) -> Scene | None:
        """Make a place ready at a number of rows; None when no step here has that many.

        What was made ready before can no longer be run.
        """
        ranged = place.node.node.ranged
        shape = shape_of(ranged, rows)
        fits = all(v <= most for v, most in zip(shape.symbols(), self._limits, strict=True))
        if not fits or not has_rows(shape, ranged, rows):
            return None
        self._executor.close()  # and with it the programs of another scene
        self._executor = make_executor(self._plan)
        budget = self._plan.budget
        n_vocab = self._bound.outputs["logits"].shape[1]
        groups = {group.name: group for group in budget.groups}
        fill(self._bound.inputs, groups, shape, budget.max_context, n_vocab)
        before = self._load(self._bound.program.nodes[: place.indices[0]])
        self._executor.run(before, shape.symbols(), self._slots)
        rest = self._rest(place) if rows <= _FEW_ROWS else None
        scene = Scene(place, rows, shape, len(place.indices), 1, rest, 0.0)
        program = self.program(scene, place.band.axes)
        took = min(self.sample(scene, program) for _ in range(3))
        count = max(1, min(scene.num_nodes, int(scene.num_nodes * _MOST_S / took)))
        took *= count / scene.num_nodes
        repeats = 1 if rest is not None else max(1, round(_LEAST_S / took))
        return replace(scene, num_nodes=count, repeats=repeats, seconds=took)

    def program(self, scene: Scene, values: Values) -> Any:
        """Return a program of a scene's nodes with these values of the axes."""
        place = scene.place
        templates = [self._bound.program.nodes[i] for i in place.indices[: scene.num_nodes]]
        return self._load([self._variant(place, templates[0], t, values) for t in templates])

    def sample(self, scene: Scene, program: Any) -> float:
        """Return the seconds of one run."""
        symbols = scene.shape.symbols()
        if scene.rest is not None:
            self._executor.run(scene.rest, symbols, self._elsewhere)
        start = time.perf_counter()
        for _ in range(scene.repeats):
            self._executor.run(program, symbols, self._slots)
        return (time.perf_counter() - start) / scene.repeats

    def race(
        self, scene: Scene, base: Values, others: Sequence[Values], rounds: int
    ) -> list[list[float]]:
        """Return, for each of some values, how many times as fast it was as ``base``, by round.

        All run once a round in random order, so that what disturbs the machine disturbs them alike.
        With few rows there are three times as many rounds.
        """
        programs = [self.program(scene, values) for values in (base, *others)]
        rng = np.random.default_rng()
        rounds *= 1 if scene.rest is None else _MORE_ROUNDS
        times = np.zeros((rounds + 1, len(programs)))
        for took in times:
            for index in rng.permutation(len(programs)):
                took[index] = self.sample(scene, programs[index])
        ratios = times[1:, :1] / times[1:, 1:]  # the first round warms up
        return [column.tolist() for column in ratios.T]

    def _rest(self, place: Place) -> Any:
        """Return a program of the nodes that read weights and are not of this place."""
        weights = {
            index
            for index, resolved in enumerate(self._plan.resolution.nodes)
            if any(b.layouts for b in resolved.bands)
        }
        chosen = sorted(weights - set(place.indices))
        return self._load([self._bound.program.nodes[i] for i in chosen])

    def _load(self, nodes: Sequence[NodeTemplate]) -> Any:
        return self._executor.load(StepProgram(tuple(nodes), len(self._slots)), self._limits)

    def _variant(
        self, place: Place, first: NodeTemplate, template: NodeTemplate, values: Values
    ) -> NodeTemplate:
        """Return a node with other values that reads as the first one does, writing elsewhere."""
        schema, arena = place.node.node.schema, self._bound.arena_slot
        operands = []
        for spelt, mine, its in zip(
            schema.operands, template.operands, first.operands, strict=True
        ):
            operand = its if mine.slot == arena else mine
            if spelt.role == "out" and operand.slot == arena:
                operand = replace(operand, slot=len(self._slots) - 1)
            operands.append(operand)
        served = next(b for b in template.bands if b.kernel is place.band.kernel)
        band = Band(UNBOUNDED, served.kernel, served.params, tuple(values.items()))
        return replace(template, operands=tuple(operands), bands=(band,))
