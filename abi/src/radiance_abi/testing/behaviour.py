"""Run one row on its cases and say what it does wrong."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from radiance_abi.encoding import Encoding
from radiance_abi.errors import KernelError, RadianceError
from radiance_abi.kernels import Kernel
from radiance_abi.ops import OpSchema
from radiance_abi.testing import independence
from radiance_abi.testing.case import Array, Case
from radiance_abi.testing.cases import cases
from radiance_abi.testing.formulas import FORMULAS, difference
from radiance_abi.testing.planes import ENCODINGS
from radiance_abi.testing.running import num_tiles, run, same_bits, shuffled_pieces

_STRIDE = -4
_GAP = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one row: how many cases ran, and what was wrong with which."""

    kernel: Kernel
    num_cases: int
    faults: tuple[str, ...]
    notes: tuple[str, ...] = ()


def examine(
    kernel: Kernel,
    rows: Sequence[Kernel],
    schema: OpSchema,
    rng: np.random.Generator,
    count: int = 6,
    encodings: Sequence[Encoding] = ENCODINGS,
) -> Outcome:
    """Run a row on generated cases and collect its faults, at most one a case.

    Args:
        kernel: the row.
        rows: all rows of its library; a batch of another size may resolve to another one.
        schema: schema of its op.
        rng: where everything random comes from.
        count: least number of cases.
        encodings: which of them a matrix is to be in.
    """
    formula = FORMULAS.get(schema.op)
    if formula is None:
        return Outcome(kernel, 0, (), ("an op of its own: no formula is known, so it was not run",))
    if kernel.domain != "host":
        return Outcome(kernel, 0, (), ("a device row: not run here",))
    faults: list[str] = []
    num_cases = 0
    try:
        for case in cases(kernel, schema, rng, count, encodings):
            num_cases += 1
            try:
                fault = next(_faults(kernel, rows, case, rng), None)
            except RadianceError as error:
                fault = str(error)
            except Exception as error:
                # A Python kernel may raise anything; the author wants the rest of the report too.
                fault = f"{type(error).__name__}: {error}"
            if fault:
                faults.append(f"{case}: {fault}")
    except RadianceError as error:
        faults.append(str(error))
    notes = () if num_cases or faults else ("reads none of the kit's encodings, so it was not run",)
    return Outcome(kernel, num_cases, tuple(faults), notes)


def compare(case: Case, results: dict[str, Array]) -> str:
    """Return how results differ from the op's formula, "" when they agree."""
    dtype = str(case.params.get("dtype", "f32"))
    for name, want in FORMULAS[case.schema.op](case).items():
        missed = difference(name, want, results, dtype)
        if missed:
            return missed
    return ""


def _faults(
    kernel: Kernel, rows: Sequence[Kernel], case: Case, rng: np.random.Generator
) -> Iterator[str]:
    results = run(kernel, case)
    missed = compare(case, results)
    if missed:
        yield missed
    yield from unsteady(kernel, rows, case, results, rng)


def unsteady(
    kernel: Kernel,
    rows: Sequence[Kernel],
    case: Case,
    results: dict[str, Array],
    rng: np.random.Generator,
) -> Iterator[str]:
    """Yield what a row's bits depend on and must not: the run, pieces, strides, axes, the batch.

    Args:
        kernel: the row.
        rows: all rows of its library.
        case: what it was run on.
        results: what it gave.
        rng: where everything random comes from.

    Raises:
        KernelError: a further run failed, other than for want of strides that it does not take.
    """
    changed = same_bits(results, run(kernel, case))
    if changed:
        yield f"{changed}: a second run gave other bits"
    if kernel.tiles is not None:
        pieces = shuffled_pieces(num_tiles(kernel, case), rng)
        changed = same_bits(results, run(kernel, case, grouping=pieces))
        if changed:
            yield f"{changed}: depends on how pieces were handed out ({pieces})"
    try:
        changed = same_bits(results, run(kernel, case, gap=_GAP))
    except KernelError as error:
        if error.status != _STRIDE:
            raise
        changed = None
    if changed:
        yield f"{changed}: depends on the distance between rows"
    yield from _faults_of_axes(kernel, case, results)
    yield from independence.faults(kernel, rows, case, results, rng)


def _faults_of_axes(kernel: Kernel, case: Case, results: dict[str, Array]) -> Iterator[str]:
    """Yield what other values of axes change; each value of each axis is met once."""
    for turn in range(max((len(axis.values) for axis in kernel.axes), default=0)):
        chosen = {axis.name: axis.values[turn % len(axis.values)] for axis in kernel.axes}
        if all(chosen[axis.name] == axis.default for axis in kernel.axes):
            continue
        changed = same_bits(results, run(kernel, case.with_params(**chosen)))
        if changed:
            spelt = " ".join(f"{name}={value}" for name, value in chosen.items())
            yield f"{changed}: axes {spelt} give other bits than the defaults"
