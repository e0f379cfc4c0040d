"""Record what a reference library answers at the sizes of a family of models."""

from importlib.metadata import version

import msgspec
import numpy as np

from radiance_abi.kernels import Kernel, KernelLibrary
from radiance_abi.testing import compare, run
from radiance_abi.testing.case import F64, MOST_CODE, Array, Case
from radiance_abi.testing.formulas import FORMULAS, Codes, Near
from radiance_abi.testing.formulas.expected import allowed
from radiance_abi.testing.independence import holds
from radiance_abi.vocabulary import STANDARD
from radiance_core.kbench import answers
from radiance_core.kbench.drawing import digest, draw
from radiance_core.kbench.fixture import Answer, Fixture, FixtureError, Recorded
from radiance_core.kbench.paging import num_slots, unpaged
from radiance_core.kbench.plan import Planned, planned


def record(fixture: Fixture, library: KernelLibrary) -> Fixture:
    """Fill in the cases of a fixture with what a library answers.

    Every answer is first held against the op's formula in f64, so that a mistake of the reference
    is not recorded as right.

    Raises:
        FixtureError: the library lacks a row for a case, or its answer misses the formula.
    """
    cases = [_recorded(call, fixture.seed, library) for call in planned(fixture.sizes)]
    made = f"{library.name} {library.version}, numpy {version('numpy')}"
    return msgspec.structs.replace(fixture, cases=cases, made=made)


def _recorded(call: Planned, seed: int, library: KernelLibrary) -> Recorded:
    case = draw(STANDARD[call.op], call.params, call.weights, seed, call.past)
    results = run(_row(library, case), case)
    missed = compare(case, results)
    if missed:
        raise FixtureError(f"{library.name}: its answer to {case} misses the formula: {missed}")
    wanted = FORMULAS[call.op](case)
    coded = next((w for w in wanted.values() if isinstance(w, Codes)), None)
    kept = unpaged(results, case, num_slots(case))
    planes, group = (coded.planes, coded.group) if coded else (0, 0)
    seen = answers.spread(kept, planes, group)
    dtype = str(case.params.get("dtype", "f32"))
    made: dict[str, Answer] = {}
    for name, array in seen.items():
        want, within = wanted.get(name), None
        if coded is not None and name in ("scale", "q*scale"):
            within = _of_codes(name, coded, seen["scale"], dtype)
        elif isinstance(want, Near):
            within = _of_near(want, results[name], dtype)
        made[name] = answers.whole(array, within)
    known = call.op, dict(call.params), dict(call.weights), digest(case)
    return Recorded(*known, made, coded is not None, call.past)


def _row(library: KernelLibrary, case: Case) -> Kernel:
    for kernel in library.kernels:
        if kernel.op == case.schema.op and holds(kernel, case.params):
            return kernel
    raise FixtureError(f"{library.name}: expected a row that serves {case}, got none")


def _of_near(want: Near, got: Array, dtype: str) -> F64:
    """Return twice what the formula allows: the reference may be off to one side of it."""
    return np.asarray(2 * np.broadcast_to(allowed(want, got, dtype), got.shape))


def _of_codes(name: str, coded: Codes, scale: F64, dtype: str) -> F64:
    value = coded.value.value
    grouped = value.reshape(len(value), -1, coded.group)
    slack = allowed(coded.value, np.zeros(0, np.float32), dtype).reshape(grouped.shape)
    if name == "q*scale":
        return np.asarray(2 * (0.5001 * scale[:, :, None] + 2 * slack))
    most = MOST_CODE[coded.planes]
    return np.asarray(2 * (slack.max(axis=2) / most + 2e-7 * np.abs(grouped).max(axis=2) / most))
