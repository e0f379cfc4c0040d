"""Each row against the reference on shapes that hypothesis draws, and against the rules."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from radiance_abi import Kernel, KernelLibrary
from radiance_abi.testing import declarations, examine, layouts, run
from radiance_abi.testing.case import Array
from radiance_abi.testing.formulas import FORMULAS, Codes, Exact, Near, difference
from radiance_abi.vocabulary import STANDARD

from . import discovered, strategies

# The whole run stays under two minutes on a core however many rows a library has.
_EXAMPLES = 500
_rows = discovered.rows(reference=False)
# An op of a library's own has no reference; the rules are for it too.
_compared = [row for row in _rows if row.values[1].op in STANDARD]
_per_row = max(3, min(25, _EXAMPLES // max(len(_rows), 1)))
_quick = settings(
    max_examples=_per_row,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    database=None,
)


def _as_reference(want: Near | Exact | Codes, result: Array | None) -> Near | Exact | Codes:
    """Return the reference's result with the tolerance that the formula knows."""
    if not isinstance(want, Near) or result is None:
        return want
    value = result.astype(np.float64)
    # The reference has been rounded too, perhaps to the other side.
    stages = want.stages + np.abs(np.where(np.isfinite(value), value, 0))
    return replace(want, value=value, stages=stages, gains=want.gains + 1)


@pytest.mark.parametrize(("library", "kernel"), _compared)
def test_a_row_agrees_with_the_reference(library: KernelLibrary, kernel: Kernel) -> None:
    """Results are within rounding of libref's; the formula of the op says how much that is.

    No case can be drawn only for a row that reads no encoding on this processor, as the kit says.
    """
    schema = STANDARD[kernel.op]
    oracle = discovered.reference_row(kernel.op)

    @_quick
    @given(st.data())
    def agrees(data: st.DataObject) -> None:
        case = data.draw(strategies.cases(kernel, schema))
        got, wanted = run(kernel, case), run(oracle, case)
        dtype = str(case.params.get("dtype", "f32"))
        for name, formula in FORMULAS[kernel.op](case).items():
            missed = difference(name, _as_reference(formula, wanted.get(name)), got, dtype)
            assert not missed, f"{case}: {missed}"

    try:
        agrees()
    except Unsatisfiable:
        outcome = examine(kernel, library.kernels, schema, np.random.default_rng(), count=2)
        assert outcome.notes == ("reads none of the kit's encodings, so it was not run",)


@pytest.mark.parametrize(("library", "kernel"), discovered.rows(reference=True))
def test_a_row_keeps_the_rules(library: KernelLibrary, kernel: Kernel) -> None:
    """It stays in its memory; a row of it has the same bits alone, cut, run again, strided."""
    schema = declarations.schemas_of(library)[kernel.op]
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    outcome = examine(kernel, library.kernels, schema, np.random.default_rng(seed), count=2)
    assert not outcome.faults, f"seed {seed}: {outcome.faults[0]}"
    assert outcome.num_cases or outcome.notes


@pytest.mark.parametrize(
    ("library", "kernel"),
    [p for p in discovered.rows(reference=True) if p.values[1].layout],  # type: ignore[attr-defined]
)
def test_laid_out_weights_come_back(library: KernelLibrary, kernel: Kernel) -> None:
    """Relayout does not depend on how rows are cut, and unrelayout returns every plane."""
    schema = declarations.schemas_of(library)[kernel.op]
    rng = np.random.default_rng()
    found = list(layouts.faults(kernel, schema, rng, lossy=library.reference))
    assert found == []


def test_every_standard_op_has_a_formula() -> None:
    """No row of a standard op goes unchecked."""
    assert set(FORMULAS) == set(STANDARD)
