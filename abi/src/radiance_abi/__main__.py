"""``python -m radiance_abi``: find the C header, check a kernel library, print the ops."""

import argparse
import sys
from pathlib import Path

from radiance_abi.errors import RadianceError


def main(arguments: list[str] | None = None) -> int:
    """Answer one question on standard output; return the exit status."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.command == "check":
        return _check(asked)
    if asked.command == "ops":
        from radiance_abi.ops_document import document

        sys.stdout.write(document())
        return 0
    if asked.command == "parse":
        from radiance_abi.native.parsing import write_parsed

        sys.stdout.write(f"{write_parsed(asked.header)}\n")
        return 0
    if not (asked.include or asked.cflags):
        parser.error("expected --include, --cflags or a command, got nothing")
    from radiance_abi.native.header import cflags, include_folder

    sys.stdout.write(f"{include_folder() if asked.include else cflags()}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m radiance_abi", description=__doc__)
    question = parser.add_mutually_exclusive_group()
    question.add_argument(
        "--include", action="store_true", help="print the folder of radiance_abi.h"
    )
    question.add_argument("--cflags", action="store_true", help="print compiler flags that find it")
    commands = parser.add_subparsers(dest="command")
    check = commands.add_parser("check", help="run the conformance kit on an installed library")
    check.add_argument("name", help="entry point in the group radiance.kernels")
    check.add_argument("--seed", type=int, help="repeat the check that printed this seed")
    check.add_argument("--cases", type=int, default=6, help="least number of cases a row")
    check.add_argument("--row", default="", help='only rows whose "op name" contains this')
    parse = commands.add_parser("parse", help="write what cffi makes of a header beside it")
    parse.add_argument(
        "header", nargs="?", type=Path, help="one that includes the contract's; without it that"
    )
    commands.add_parser("ops", help="print the reference of the standard ops as Markdown")
    return parser


def _check(asked: argparse.Namespace) -> int:
    """Print the report of each library that the plugin yields; 1 when something is wrong."""
    from radiance_abi.testing import check, libraries

    try:
        found = libraries(asked.name)
    except RadianceError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    rows = [(library, f"{k.op} {k.name}") for library in found for k in library.kernels]
    if asked.row:
        found = [lib for lib in found if any(lib is of and asked.row in row for of, row in rows)]
    if not found:
        sys.stderr.write(
            f"--row {asked.row}: expected a part of an op and the name of its row, got a text that "
            f"none has; the rows are {', '.join(row for _, row in rows)}\n"
        )
        return 1
    reports = [
        check(library, seed=asked.seed, count=asked.cases, only=asked.row) for library in found
    ]
    for report in reports:
        sys.stdout.write("".join(f"{line}\n" for line in report.lines()))
    return 0 if all(report.passed for report in reports) else 1


if __name__ == "__main__":
    raise SystemExit(main())
