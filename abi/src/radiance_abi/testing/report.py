"""Check a whole library and say in words how it did."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from radiance_abi.kernels import KernelLibrary
from radiance_abi.testing import declarations, layouts
from radiance_abi.testing.behaviour import Outcome, examine

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found.

    ``declared``: faults of the declarations; ``outcomes``: one a row; ``seed`` repeats it.
    """

    library: KernelLibrary
    declared: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    seed: int

    @property
    def passed(self) -> bool:
        """Say whether there was something to check and no fault was found."""
        ran = self.library.declined is None and len(self.outcomes) > 0
        return ran and not self.declared and not any(o.faults for o in self.outcomes)

    def lines(self) -> Iterator[str]:
        """Yield the report, line by line."""
        library = self.library
        ops = {k.op for k in library.kernels}
        yield (
            f"{library.name} {library.version} ({library.target}): "
            f"{len(library.kernels)} rows, {len(ops)} ops, seed {self.seed}"
        )
        if library.declined is not None:
            yield f"  declined: {library.declined}; nothing was run"
        for fault in self.declared:
            yield f"  FAIL  {fault}"
        for outcome in self.outcomes:
            yield from _row_lines(outcome)
        count = sum(o.num_cases for o in self.outcomes)
        bad = len(self.declared) + sum(bool(o.faults) for o in self.outcomes)
        yield f"{'passed' if self.passed else 'FAILED'}: {count} cases, {bad} faults"


def _row_lines(outcome: Outcome) -> Iterator[str]:
    kernel = outcome.kernel
    mark = "FAIL" if outcome.faults else "ok  " if outcome.num_cases else "note"
    yield f"  {mark}  {kernel.op:<22} {kernel.name:<28} {outcome.num_cases:>3} cases"
    for fault in outcome.faults[:_SHOWN]:
        yield f"          {fault}"
    if len(outcome.faults) > _SHOWN:
        yield f"          and {len(outcome.faults) - _SHOWN} more"
    for note in outcome.notes:
        yield f"          {note}"


def check(
    library: KernelLibrary, *, seed: int | None = None, count: int = 6, only: str = ""
) -> Report:
    """Check declarations, layouts and results of a library.

    Args:
        library: what a plugin yields.
        seed: repeats an earlier check; fresh when None.
        count: least number of cases a row.
        only: run just the rows whose "op name" contains this text.
    """
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    declared = tuple(declarations.faults(library))
    schemas = declarations.schemas_of(library)
    outcomes = []
    for kernel in library.kernels if library.declined is None else ():
        known = declarations.well_formed(kernel, schemas)
        if only not in f"{kernel.op} {kernel.name}" or not known:
            continue
        # Each row has its own stream, so that --row repeats what a whole check did.
        rng = np.random.default_rng([seed, *f"{kernel.op} {kernel.name}".encode()])
        schema = schemas[kernel.op]
        outcome = examine(kernel, library.kernels, schema, rng, count)
        if kernel.domain == "host" and not outcome.notes:
            found = tuple(layouts.faults(kernel, schema, rng, lossy=library.reference))
            outcome = Outcome(kernel, outcome.num_cases, outcome.faults + found, outcome.notes)
        outcomes.append(outcome)
    return Report(library, declared, tuple(outcomes), seed)
