"""``rad-kbench`` and ``rad-schemas``."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np

from radiance_abi.errors import ConfigurationError
from radiance_abi.kernels import Kernel, KernelLibrary
from radiance_core.discover.libraries import Libraries, kernel_libraries
from radiance_core.kbench import report
from radiance_core.kbench.fixture import Fixture, FixtureError, bundled, read, write
from radiance_core.kbench.machine import ceilings
from radiance_core.kbench.replay import Drawn, Verdict, judge
from radiance_core.kbench.speed import speeds
from radiance_core.nearest import did_you_mean


@click.command()
@click.option("--library", "names", multiple=True, help="judge these libraries only")
@click.option("--op", default="", help="judge the rows whose op contains this text")
@click.option("--fixture", "files", multiple=True, type=Path, help="replay these files instead")
@click.option("--speed/--no-speed", "timed", default=True, help="measure speed as well")
@click.option(
    "--threads",
    type=click.IntRange(0),
    default=1,
    help="for speed; 0 is one for each usable processor",
)
@click.option(
    "--seed", type=click.IntRange(0), help="of what is not recorded; fresh when not given"
)
@click.option("--report", "out", type=Path, help="write what is printed to this Markdown file")
@click.option("--record", type=Path, help="fill in the cases of this fixture, and exit")
@click.option("--reference", help="library whose answers --record takes")
def kbench(
    names: tuple[str, ...],
    op: str,
    files: tuple[Path, ...],
    timed: bool,
    threads: int,
    seed: int | None,
    out: Path | None,
    record: Path | None,
    reference: str | None,
) -> None:
    """Judge every row of every installed kernel library by recorded answers.

    Needs neither a model nor the library that recorded them. Exits with 1 when a row is wrong.
    """
    if record is not None:
        _record(record, reference)
        return
    if reference is not None:
        raise FixtureError("--reference: expected --record with the fixture to fill in, got none")
    fixtures = [read(path) for path in files or bundled()]
    libraries = kernel_libraries(names or None, "--library")
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    good = _printed(_report(libraries, fixtures, op, seed, timed, threads), out)
    sys.exit(0 if good else 1)


@click.command()
@click.argument("text", default="")
def schemas(text: str) -> None:
    """Print the schema of every op that is known here, and how many recorded cases it has.

    With TEXT, only of ops whose name contains it.
    """
    fixtures = [read(path) for path in bundled()]
    known = kernel_libraries(None).schemas
    named = [name for name in known if text in name]
    if not named:
        raise ConfigurationError(
            f"{text}: expected a part of the name of an op that is known here, got one that none "
            f"has{did_you_mean(text, known)}; without it all are printed"
        )
    for name in named:
        counts = {f.family: sum(c.op == name for c in f.cases) for f in fixtures}
        recorded = ", ".join(f"{n} of {family}" for family, n in counts.items() if n)
        click.echo(f"{known[name]}\n    recorded: {recorded or 'none'}")
    click.echo()
    for fixture in fixtures:
        click.echo(f"{fixture.family}: {fixture.about}; by {fixture.made or 'nothing yet'}")


def _record(path: Path, reference: str | None) -> None:
    from radiance_core.kbench.record import record

    if reference is None:
        raise FixtureError("--record: expected --reference with the library to ask, got none")
    library = kernel_libraries([reference], "--reference").chosen[0]
    fixture = read(path)
    with _writing("--record", path):
        path.open("ab").close()  # what cannot be written is told before anything is asked
    made = record(fixture, library)
    with _writing("--record", path):
        write(made, path)
    click.echo(f"{path}: {len(made.cases)} cases by {made.made}, {path.stat().st_size} bytes")


def _report(
    libraries: Libraries,
    fixtures: Sequence[Fixture],
    op: str,
    seed: int,
    timed: bool,
    threads: int,
) -> Iterator[str | bool]:
    """Yield lines of the report, and at last whether all is well."""
    chosen = [library for library in libraries.chosen if any(op in k.op for k in library.kernels)]
    if not chosen:
        raise FixtureError(
            f"--op {op}: expected a part of an op that an installed library has a row for, got one "
            "that none has; rad-schemas prints the ops"
        )
    known = {name: schema for name, schema in libraries.schemas.items() if op in name}
    families = ", ".join(f"{f.family} ({len(f.cases)} cases)" for f in fixtures)
    yield f"# Kernel libraries on this machine\n\nRecorded: {families}; seed {seed}.\n"
    for refused in libraries.refused:
        yield f"- {refused.found} is not judged: {refused.reason}"
    yield from report.matrix(chosen, known)
    drawn = Drawn(fixtures, libraries.schemas)
    rows = _by_op(chosen, known)
    found = []
    for done, (owner, kernel) in enumerate(rows):
        _progress(f"{done} of {len(rows)} rows: {owner.name} {kernel.op} {kernel.name}")
        found.append(judge(owner, kernel, drawn, libraries.schemas[kernel.op], seed))
    _progress("")
    found.sort(key=lambda v: [c.name for c in chosen].index(v.library.name))
    yield from report.verdicts(found)
    if timed:
        yield from _speed(found, drawn, threads or len(os.sched_getaffinity(0)))
    yield not any(v.faults for v in found)


def _speed(found: Sequence[Verdict], drawn: Drawn, threads: int) -> Iterator[str]:
    """Yield how fast each sound row is; how fast an oracle is says nothing."""
    sound = [v for v in found if not v.faults and v.num_replayed and not v.library.reference]
    measured = [
        speed
        for v in sorted(sound, key=lambda v: v.kernel.op)
        for speed in speeds(v.library.name, v.kernel, drawn, threads)
    ]
    yield from report.speed(measured, ceilings(threads))


def _progress(text: str) -> None:
    """Show what is being judged, on a terminal only."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)


def _by_op(
    chosen: Sequence[KernelLibrary], ops: Iterable[str]
) -> list[tuple[KernelLibrary, Kernel]]:
    """Return the rows of all libraries op by op, so that each op's cases are drawn once."""
    return [(library, k) for op in ops for library in chosen for k in library.kernels if k.op == op]


def _printed(lines: Iterable[str | bool], out: Path | None) -> bool:
    """Print lines as they come, write them to a file as well, return the verdict at their end.

    The first line comes before anything is judged, and so does the word of a file that fails.
    """
    good, mode = False, "w"
    for line in lines:
        if isinstance(line, bool):
            good = line
            continue
        if out is not None:
            with _writing("--report", out), out.open(mode, encoding="utf-8") as file:
                file.write(f"{line}\n")
            mode = "a"
        click.echo(line)
    return good


@contextmanager
def _writing(option: str, path: Path) -> Iterator[None]:
    """Tell of a file that cannot be written by the option that named it."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{option} {path}: expected a file that can be written, got: {error.strerror}; name "
            "one in a folder that is there, may be written to and has room"
        ) from error
