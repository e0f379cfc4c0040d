"""Run a kernel row on a fixture's cases and say what it does wrong."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from radiance_abi.encoding import Encoding
from radiance_abi.errors import RadianceError
from radiance_abi.kernels import Kernel, KernelLibrary
from radiance_abi.ops import OpSchema
from radiance_abi.testing import ENCODINGS, NotReadError, examine, run, same_bits, unsteady
from radiance_abi.testing.case import Array, Case
from radiance_core.kbench import answers, chains
from radiance_core.kbench.drawing import digest, draw
from radiance_core.kbench.fixture import Fixture, FixtureError, Recorded
from radiance_core.kbench.paging import block_size, num_slots, paged, serves, unpaged


@dataclass(slots=True)
class Verdict:
    """What became of one row of one library.

    ``num_replayed`` counts recorded cases, ``num_drawn`` fresh ones, where no recorded one fits or
    holds an encoding that the row reads; ``not_read`` those whose encoding the row does not read;
    ``chains`` fusion claims that held.
    """

    library: KernelLibrary
    kernel: Kernel
    num_replayed: int = 0
    num_drawn: int = 0
    not_read: int = 0
    chains: int = 0
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        """Say in a word how it did."""
        if self.faults:
            return "FAIL"
        return "ok" if self.num_replayed else "drawn" if self.num_drawn else "not run"


class Drawn:
    """Cases of fixtures, drawn when they are first asked for; those of the last op are kept."""

    def __init__(self, fixtures: Sequence[Fixture], schemas: Mapping[str, OpSchema]) -> None:
        self._fixtures, self._schemas = fixtures, schemas
        self._kept: tuple[str, list[tuple[str, Recorded, Case]]] = ("", [])

    def of(self, op: str) -> list[tuple[str, Recorded, Case]]:
        """Return family, record and operands of each case of an op.

        Raises:
            FixtureError: the operands are not those that were recorded.
        """
        if self._kept[0] != op:
            self._kept = (op, [])
            self._kept = (op, list(self._draw(op)))
        return self._kept[1]

    def _draw(self, op: str) -> Iterator[tuple[str, Recorded, Case]]:
        for fixture in self._fixtures:
            for record in fixture.cases:
                if record.op != op:
                    continue
                case = draw(
                    self._schemas[op], record.params, record.weights, fixture.seed, record.past
                )
                if digest(case) != record.operands:
                    raise FixtureError(
                        f"fixture {fixture.family}: expected the operands that were recorded of "
                        f"{case}, got others with numpy {np.__version__} (recorded by "
                        f"{fixture.made}); record it again with --record"
                    )
                yield fixture.family, record, case


def judge(
    library: KernelLibrary, kernel: Kernel, drawn: Drawn, schema: OpSchema, seed: int
) -> Verdict:
    """Replay every recorded case that a row serves; draw fresh ones of what none is of."""
    verdict = Verdict(library, kernel)
    if kernel.domain != "host":
        verdict.notes.append("a device row: not run here")
        return verdict
    rng = np.random.default_rng([seed, *f"{kernel.op} {kernel.name}".encode()])
    held: set[Encoding] = set()
    try:
        for family, record, case in drawn.of(kernel.op):
            if _replay(verdict, f"{family}: {case}", record, case, rng):
                held |= {Encoding.parse(text) for text in record.weights.values()}
    except FixtureError as error:
        verdict.faults.append(str(error))
    others = [encoding for encoding in ENCODINGS if encoding not in held]
    if not verdict.num_replayed or (held and others):
        _draw(verdict, schema, rng, others)
    return verdict


def _draw(
    verdict: Verdict, schema: OpSchema, rng: np.random.Generator, others: Sequence[Encoding]
) -> None:
    """Run a row on fresh cases: one of each other encoding, or three where nothing is recorded."""
    count = 0 if verdict.num_replayed else 3
    outcome = examine(verdict.kernel, verdict.library.kernels, schema, rng, count, others)
    verdict.num_drawn = outcome.num_cases
    verdict.faults += [f"{schema.op} {verdict.kernel.name}: {fault}" for fault in outcome.faults]
    if not verdict.num_replayed:
        verdict.notes += outcome.notes


def _replay(
    verdict: Verdict, subject: str, record: Recorded, case: Case, rng: np.random.Generator
) -> bool:
    """Return whether a row serves and reads a recorded case, and note its first fault on it."""
    kernel = verdict.kernel
    if not serves(kernel, case):
        return False
    fitted = paged(case, block_size(kernel))
    try:
        verdict.num_replayed += 1
        fault = next(_faults(verdict, record, case, fitted, rng), None)
    except NotReadError:
        verdict.num_replayed -= 1
        verdict.not_read += 1
        return False
    except RadianceError as error:
        fault = str(error)
    except Exception as error:
        # A Python kernel may raise anything; the rest of the report is wanted too.
        fault = f"{type(error).__name__}: {error}"
    if fault:
        verdict.faults.append(f"{kernel.op} {kernel.name}: {subject}: {fault}")
    return True


def _faults(
    verdict: Verdict, record: Recorded, case: Case, fitted: Case, rng: np.random.Generator
) -> Iterator[str]:
    kernel, rows = verdict.kernel, verdict.library.kernels
    results = run(kernel, fitted)
    yield from _misses(record, case, fitted, results)
    yield from unsteady(kernel, rows, fitted, results, rng)
    if kernel.replaces:
        claim = chains.difference(kernel, rows, fitted, results)
        verdict.chains += claim == ""
        if claim:
            yield claim


def _misses(record: Recorded, case: Case, fitted: Case, results: dict[str, Array]) -> Iterator[str]:
    """Yield where results miss the recorded answers."""
    cache = results.get("kv_cache")
    if cache is not None and case.schema.op != "kv_store":
        changed = same_bits({"kv_cache": cache}, {"kv_cache": fitted.array("kv_cache")})
        if changed:
            yield "kv_cache: was changed by an op that only reads it"
    kept = unpaged(results, fitted, num_slots(case))
    planes, group = case.integer("planes", 1) if record.codes else 0, case.integer("group", 1)
    if record.codes and (odd := answers.odd_sums(kept, planes, group)):
        yield odd
    seen = answers.spread(kept, planes, group)
    for name, want in record.answers.items():
        missed = answers.difference(name, want, seen[name])
        if missed:
            yield missed
