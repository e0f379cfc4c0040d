"""Write what was found as Markdown: the same text on the screen and in the file."""

from collections.abc import Iterator, Mapping, Sequence

from radiance_abi.kernels import KernelLibrary
from radiance_abi.ops import OpSchema
from radiance_core.kbench.machine import Ceilings
from radiance_core.kbench.replay import Verdict
from radiance_core.kbench.speed import Speed

_MOST_SHOWN = 5


def matrix(libraries: Sequence[KernelLibrary], schemas: Mapping[str, OpSchema]) -> Iterator[str]:
    """Yield the table of ops and libraries: how many rows each library has for an op."""
    yield "## Which library has which op\n"
    yield _row(["op", *(library.name for library in libraries)])
    yield _row(["---"] * (len(libraries) + 1))
    for op in schemas:
        counts = [sum(k.op == op for k in library.kernels) for library in libraries]
        yield _row([f"`{op}`", *(str(count) if count else "–" for count in counts)])
    missing = {
        library.name: [op for op in schemas if all(k.op != op for k in library.kernels)]
        for library in libraries
    }
    yield ""
    for name, ops in missing.items():
        yield f"{name} lacks {len(ops)} of {len(schemas)}: {', '.join(ops) or 'none'}\n"


def verdicts(found: Sequence[Verdict]) -> Iterator[str]:
    """Yield a line a row of every library, and under it what is wrong."""
    yield "## Every row\n"
    yield _row(["library", "op", "row", "recorded", "drawn", "not read", "claims", ""])
    yield _row(["---"] * 8)
    for v in found:
        counts = [v.num_replayed, v.num_drawn, v.not_read, v.chains]
        yield _row(
            [v.library.name, f"`{v.kernel.op}`", f"`{v.kernel.name}`", *map(str, counts), v.state]
        )
    yield ""
    for v in found:
        for fault in v.faults[:_MOST_SHOWN]:
            yield f"- **FAIL** {v.library.name}: {fault}"
        if len(v.faults) > _MOST_SHOWN:
            yield f"- and {len(v.faults) - _MOST_SHOWN} more of {v.kernel.op} {v.kernel.name}"
        for note in v.notes:
            yield f"- {v.library.name} `{v.kernel.op}` `{v.kernel.name}`: {note}"
    bad = sum(bool(v.faults) for v in found)
    cases = sum(v.num_replayed + v.num_drawn for v in found)
    yield f"\n{len(found)} rows, {cases} cases, {bad} rows with faults\n"


def speed(found: Sequence[Speed], most: Ceilings) -> Iterator[str]:
    """Yield the table of speeds, with the share of what the machine can do."""
    yield "## Speed\n"
    peaks = [f"of {n} {p / 1e9:.0f}" for n, p in most.products_per_s.items() if p]
    yield (
        f"{most.threads} threads; reading memory reaches {most.bytes_per_s / 1e9:.1f} GB/s, "
        f"products {', '.join(peaks) or 'of none'} Gop/s. "
        "The best of some 40 ms a call, on the same operands over and over: what fits into a cache "
        "is read faster than memory.\n"
    )
    yield _row(["library", "row", "case", "µs", "GB/s", "of reading", "Gop/s", "of the peak"])
    yield _row(["---"] * 8)
    for s in found:
        share = _percent(s.products_per_s, most.products_per_s[s.numbers])
        products = [f"{s.products_per_s / 1e9:.0f}", f"{share} of {s.numbers}"]
        yield _row(
            [
                s.library, f"`{s.kernel.name}`", f"`{s.case}`", f"{s.seconds * 1e6:.1f}",
                f"{s.bytes_per_s / 1e9:.1f}", _percent(s.bytes_per_s, most.bytes_per_s),
                *(products if s.products else ["", ""]),
            ]
        )  # fmt: skip
    yield ""


def _percent(got: float, most: float) -> str:
    return f"{100 * got / most:.0f} %" if most else "–"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
