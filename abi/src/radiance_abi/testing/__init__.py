"""The conformance kit: what an author of kernels runs before publishing them.

``check(library)`` checks the declarations, lays weights out and gives them back, and runs every row
on generated cases against formulas in f64. ``run`` and ``cases`` are its parts, for an author's own
tests.
"""

from radiance_abi.testing.behaviour import Outcome, compare, examine, unsteady
from radiance_abi.testing.by_hand import Caller, caller, plain_weight
from radiance_abi.testing.case import Case, Weight
from radiance_abi.testing.cases import cases
from radiance_abi.testing.installed import libraries, names
from radiance_abi.testing.planes import ENCODINGS, VECTOR_ENCODINGS, random_weight
from radiance_abi.testing.report import Report, check
from radiance_abi.testing.running import ConformanceError, NotReadError, run, same_bits

__all__ = [
    "ENCODINGS",
    "VECTOR_ENCODINGS",
    "Caller",
    "Case",
    "ConformanceError",
    "NotReadError",
    "Outcome",
    "Report",
    "Weight",
    "caller",
    "cases",
    "check",
    "compare",
    "examine",
    "libraries",
    "names",
    "plain_weight",
    "random_weight",
    "run",
    "same_bits",
    "unsteady",
]
