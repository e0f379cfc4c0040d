"""A row's result must be the same bits alone as in a batch, whichever kernel serves it alone."""

from collections.abc import Iterator, Sequence

import numpy as np

from radiance_abi.kernels import AS_IS, Geometry, Kernel
from radiance_abi.testing.case import Array, Case, Weight
from radiance_abi.testing.running import geometry_of, row_count, run

Results = dict[str, Array]


def holds(kernel: Kernel, params: Geometry) -> bool:
    """Return whether all constraints of a row hold."""
    return all(c.holds(params.get(c.key)) for c in kernel.where)


def resolved(rows: Sequence[Kernel], like: Kernel, case: Case) -> Kernel | None:
    """Return the row of a library that would serve a case whose weights lie as for ``like``."""
    ranked = sorted(rows, key=lambda k: -k.priority)
    for kernel in ranked:
        same_op = kernel.op == like.op and kernel.domain == like.domain
        if (
            same_op
            and holds(kernel, case.params)
            and _layouts(kernel, case) == _layouts(like, case)
        ):
            return kernel
    return None


def _layouts(kernel: Kernel, case: Case) -> list[str | None]:
    """Return the layout names that a row asks for the weights of a case; None: does not read it."""
    names: list[str | None] = []
    geometry = geometry_of(kernel, case.params)
    for index, operand in enumerate(case.schema.operands):
        given = case.operands.get(operand.name)
        if not isinstance(given, Weight):
            continue
        if kernel.layout is None:
            names.append(AS_IS if given.encoding.is_plain else None)
            continue
        layout = kernel.layout(given.encoding, given.shape, geometry, index)
        names.append(None if layout is None else layout.name)
    return names


def faults(
    kernel: Kernel,
    rows: Sequence[Kernel],
    case: Case,
    results: Results,
    rng: np.random.Generator,
) -> Iterator[str]:
    """Yield what differs when parts of a case are run alone; a written cache has no rows."""
    if case.schema.op == "attn_paged":
        parts = _sequences(case, results, rng)
    elif case.schema.ranged == "M" and not any(o.role == "state" for o in case.schema.operands):
        parts = _row_parts(case, results, rng)
    else:
        return
    for part, wanted, what in parts:
        servers = [k for k in (resolved(rows, kernel, part),) if k is not None and k is not kernel]
        if holds(kernel, part.params):
            servers.append(kernel)
        for server in servers:
            got = run(server, part)
            for name, value in wanted.items():
                if value.tobytes() != got[name].tobytes():
                    by = "" if server is kernel else f", which {server.name} serves,"
                    yield f"{name}: {what} alone{by} gives other bits than in the batch"


def _row_parts(
    case: Case, results: Results, rng: np.random.Generator
) -> Iterator[tuple[Case, Results, str]]:
    """Yield some row, and some run of rows, as cases of their own."""
    count = row_count(case)
    first = int(rng.integers(count))
    spans = [
        (first, first + 1),
        (int(rng.integers(first + 1)), int(rng.integers(first, count)) + 1),
    ]
    for low, high in spans:
        if (low, high) == (0, count):
            continue
        taken = {
            o.name: a[low:high]
            for o in case.schema.inputs
            if isinstance(a := case.operands.get(o.name), np.ndarray) and o.dims[0] == "M"
        }
        if case.schema.op == "mul" and len(case.array("b")) == count:
            taken["b"] = case.array("b")[low:high]
        part = case.with_operands(**taken).with_params(M=high - low)
        wanted = {name: value[low:high].copy() for name, value in results.items()}
        yield part, wanted, f"rows {low}..{high - 1} of {count}"


def _sequences(
    case: Case, results: Results, rng: np.random.Generator
) -> Iterator[tuple[Case, Results, str]]:
    """Yield parts of some sequence of a ragged batch, and of the one with most keys."""
    used = case.array("seqused")
    for s in sorted({int(rng.integers(len(used))), int(used.argmax())}):
        yield from _parts_of_sequence(case, results, s, rng)


def _parts_of_sequence(
    case: Case, results: Results, s: int, rng: np.random.Generator
) -> Iterator[tuple[Case, Results, str]]:
    """Yield one sequence of a ragged batch, its last row, and its first rows as an earlier step."""
    cuts, used = case.array("cu_seqlens"), case.array("seqused")
    start, stop = int(cuts[s]), int(cuts[s + 1])
    spans = [(start, stop), (stop - 1, stop)]
    if case.integer("causal") and stop - start > 1:
        spans.append((start, start + int(rng.integers(1, stop - start))))
    for low, high in spans:
        if (low, high) == (0, int(cuts[-1])):
            continue
        part = case.with_operands(
            q=case.array("q")[low:high],
            block_table=case.array("block_table")[s : s + 1],
            seqused=used[s : s + 1] - np.int32(stop - high),
            cu_seqlens=np.array([0, high - low], np.int32),
        ).with_params(q_len=high - low)
        wanted = {"out": results["out"][low:high].copy()}
        yield part, wanted, f"rows {low}..{high - 1} of sequence {s}"
