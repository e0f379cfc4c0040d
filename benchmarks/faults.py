"""Probe how a server behaves under bad input, load and signals, and print a Markdown table.

    python benchmarks/faults.py --target http://127.0.0.1:8000 [--key KEY] [--pid N]
    python benchmarks/faults.py --command 'radiance --model FILE --port {port}' [--only TEXT]

Works on any OpenAI-compatible server on this machine. With --command the server is started here,
again after each probe that ends it, and probes of signals and of damaged model files run too.
Takes some minutes; exits with 0 when no probe is "not ok".
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from probes import ending, files, heavy, leaving, protocol, refusals, storm
from probes.table import HEAD, line, rows
from probes.target import Target

PROBES = [
    probe
    for subject in (refusals, protocol, heavy, leaving, storm, ending, files)
    for probe in subject.PROBES
]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--target", default="http://127.0.0.1:0", help="URL of a running server")
    where.add_argument("--command", default="", help="starts a server on {port} of 127.0.0.1")
    parser.add_argument("--key", help="API key")
    parser.add_argument("--pid", type=int, help="process of the running server; signals end it")
    parser.add_argument("--only", default="", help="run the probes whose name contains this")
    options = parser.parse_args()
    target = Target(options.target, options.key, options.pid, options.command)
    chosen = [p for p in PROBES if options.only.lower() in p.name.lower()]
    if not chosen:
        parser.error(f"--only {options.only}: no probe has such a name")
    print(HEAD, flush=True)
    bad = 0
    for probe, seen in rows(chosen, target):
        print(line(probe, seen), flush=True)
        bad += seen.ok is False
    print(f"\n{len(chosen)} probes, {bad} not ok")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
