"""Every row on the recorded answers at the sizes of real models, as ``rad-kbench`` judges it."""

from functools import lru_cache

import numpy as np
import pytest

from radiance_abi import KernelLibrary
from radiance_abi.vocabulary import STANDARD
from radiance_core.kbench.fixture import bundled, read
from radiance_core.kbench.paging import serves
from radiance_core.kbench.replay import Drawn, judge

from . import discovered

_UNREAD = "reads none of the kit's encodings, so it was not run"
_ops = [
    pytest.param(library, op, id=f"{library.name}-{op}")
    for library in discovered.served()
    for op in STANDARD
    if not library.reference and any((k.op, k.domain) == (op, "host") for k in library.kernels)
]


@lru_cache(maxsize=1)
def drawn() -> Drawn:
    """Return the cases of the fixtures that come with the core."""
    return Drawn([read(path) for path in bundled()], STANDARD)


@pytest.mark.parametrize(("library", "op"), _ops)
def test_rows_give_the_recorded_answers(library: KernelLibrary, op: str) -> None:
    """No row is wrong, and each recorded case is judged by every row whose constraints it meets.

    Each case meets those of some row. A row is excused only where it reads nothing at all on this
    processor, as the kit says.
    """
    rows = [k for k in library.kernels if (k.op, k.domain) == (op, "host")]
    cases = [case for _, _, case in drawn().of(op)]
    assert len(cases) >= 3
    met = {k.name: sum(serves(k, case) for case in cases) for k in rows}
    assert all(any(serves(k, case) for k in rows) for case in cases)
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    for kernel in rows:
        found = judge(library, kernel, drawn(), STANDARD[op], seed)
        assert not found.faults, f"seed {seed}: {found.faults[0]}"
        judged = 0 if found.notes == [_UNREAD] else met[kernel.name]
        assert (found.num_replayed, found.not_read) == (judged, met[kernel.name] - judged)


def test_every_recorded_op_is_judged() -> None:
    """Where a library serves this processor, together they have rows for all that is recorded."""
    recorded = {case.op for path in bundled() for case in read(path).cases}
    assert recorded == set(STANDARD)
    served = [s for s in discovered.served() if any(k.domain == "host" for k in s.kernels)]
    judged = {p.values[1] for p in _ops}
    assert judged == recorded or all(library.reference for library in served)
