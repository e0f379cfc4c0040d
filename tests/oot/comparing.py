"""Compare the rows of one library with another's on the same random operands, as JSON.

    python comparing.py MINE THEIRS SEED

Runs in any environment that has both; uses nothing of a checkout.
"""

import json
import sys
from typing import Any

import numpy as np

from radiance_abi import Kernel, KernelLibrary
from radiance_abi.testing import Case, NotReadError, cases, libraries, run
from radiance_abi.vocabulary import STANDARD


def compare(mine: KernelLibrary, theirs: KernelLibrary, seed: int) -> dict[str, Any]:
    """Return by op: cases, and per result the largest difference and the share that is equal."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for kernel in mine.kernels:
        results: dict[str, list[tuple[float, float]]] = {}
        count = 0
        for case in cases(kernel, STANDARD[kernel.op], rng, 8):
            other = first_that_takes(theirs, case)
            if other is None:
                continue
            count += 1
            left, right = run(kernel, case), run(other, case)
            for name, value in left.items():
                results.setdefault(name, []).append(difference(value, right[name]))
        found[kernel.op] = {"cases": count}
        for name, pairs in results.items():
            found[kernel.op][name] = [max(p[0] for p in pairs), min(p[1] for p in pairs)]
    return found


def first_that_takes(library: KernelLibrary, case: Case) -> Kernel | None:
    """Return the first row whose conditions hold for a case and that reads its weights."""
    for kernel in library.kernels:
        if kernel.op != case.schema.op:
            continue
        if not all(c.holds(case.params.get(c.key)) for c in kernel.where):
            continue
        try:
            run(kernel, case)
        except NotReadError:
            continue
        return kernel
    return None


def difference(left: Any, right: Any) -> tuple[float, float]:
    """Return the largest difference over the largest magnitude, and the share of equal elements.

    Integers differ in units. NaN equals NaN.
    """
    a, b = left.astype(np.float64), right.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return float("inf"), float(same.mean())
    gap = float(np.abs(np.where(same, 0.0, a - b)).max(initial=0.0))
    size = 1.0 if left.dtype.kind in "iu" else max(float(np.nanmax(np.abs(b), initial=0.0)), 1e-30)
    return gap / size, float(same.mean())


if __name__ == "__main__":
    ours, others = (libraries(name)[0] for name in sys.argv[1:3])
    sys.stdout.write(json.dumps(compare(ours, others, int(sys.argv[3]))))
