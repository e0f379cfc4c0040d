"""radiance, llama.cpp and OpenVINO GenAI on the same files, in turn, in one run.

    python benchmarks/peers.py                      once: makes what is compared with
    python benchmarks/compare.py                    everything, in about a quarter of an hour
    python benchmarks/compare.py --quick            a short run that shows that all works

Same file, threads, processors and prompts for all; five interleaved rounds after one that does not
count; each contender in a process of its own, stopped while it is not its turn. Prints medians with
their spread, ratios against what is aimed at, and shares of the machine's ceilings measured beside
them. Exits with 0 whatever the figures; who cannot run is named with the reason. On a machine that
others keep busy, --processor-time counts what one thread of each takes for itself: that hardly
changes with load.
"""

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from comparison import ceilings, plot, table
from comparison.model_files import MODELS, ModelFile, find_files
from comparison.one_file import FIRST, compare
from comparison.page import around, put_into
from comparison.quiet import Rests, pin
from comparison.rounds import Compared
from peers import CACHE, Making


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--file", action="append", choices=MODELS, help="compare this file only; may repeat")
    add("--model", type=Path, action="append", default=[], help="compare this GGUF file too")
    add("--rounds", type=int, default=5)
    add("--tokens", type=int, default=128, help="decoded in a round")
    add("--prompt", type=int, default=512, help="tokens of prompts")
    add("--stream-tokens", type=int, default=64, help="of each of eight streams in a round")
    add("--threads", type=int, default=2)
    add("--rest", type=float, default=0.4, help="seconds between measurements")
    add("--long-rounds", type=int, default=2, help="at a long context; 0 leaves it out")
    add("--stolen-core", action="store_true", help="also beside a busy program on one processor")
    add("--no-servers", action="store_true", help="libraries only")
    add("--processor-time", action="store_true", help="for busy machines: one thread, its own time")
    add("--only", action="append", help="contenders and servers of these names only")
    add("--quick", action="store_true", help="one file, one round of everything")
    add("--page", type=Path, help="put the tables and a picture into this Markdown page")
    add("--json", type=Path, default=CACHE / "bench" / "last.json", help="write all values there")
    options = parser.parse_args()
    if options.processor_time:
        options.threads, options.no_servers, options.stolen_core = 1, True, False
    if options.quick:
        options.file = options.file or [FIRST]
        options.rounds, options.long_rounds, options.tokens, options.stream_tokens = 1, 0, 48, 32
    return options


def main() -> int:
    """Run the comparison."""
    options = parsed()
    # Ended politely, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    if options.page is not None:
        around(options.page)  # sooner than after a quarter of an hour
    start = time.monotonic()
    files = find_files(options.file or list(MODELS), CACHE / "models")
    files += [ModelFile(path.name, path) for path in options.model]
    peers = Making().find()
    used = pin(options.threads)
    rests, peaks, results = Rests(options.rest), [ceilings.measure(options.threads)], []
    for file in files:
        results.append(compare(file, peers, options, rests))
        peaks.append(ceilings.measure(options.threads))
        print(f"{file.name}\n{table.speed(results[-1])}", file=sys.stderr, flush=True)
    best = ceilings.best(peaks)
    clock = "processor time" if options.processor_time else "time"
    quiet = rests.report(processor_time=options.processor_time)
    minutes = (time.monotonic() - start) / 60
    run = (
        f"{options.rounds} interleaved rounds, threads: {options.threads} on processors {used}, "
        f"by {clock}, "
        f"{minutes:.0f} minutes, {time.strftime('%Y-%m-%d')}; {quiet}"
    )
    text = table.whole(results, best, options.tokens, run)
    print("\n" + text)
    write(options, results, best, text, {f.name: f.path for f in files if f.path})
    return 0


def write(
    options: argparse.Namespace,
    results: list[Compared],
    peaks: ceilings.Peaks,
    text: str,
    paths: dict[str, Path],
) -> None:
    """Keep all values, and bring the page up to date when one is given."""
    options.json.parent.mkdir(parents=True, exist_ok=True)
    values = {"peaks": asdict(peaks), "files": [asdict(c) for c in results], "text": text}
    options.json.write_text(json.dumps(values, indent=1) + "\n")
    if options.page is None:
        return
    decode = {
        c.file: table.decode_bars(c, paths[c.file].stat().st_size)
        for c in results
        if c.file in paths
    }
    prefill = {c.file: table.prefill_bars(c) for c in results}
    panels = [
        plot.Panel(
            "Decode, one stream: the file's bytes read for each token",
            "GB/s", peaks.all_read / 1e9, decode,
        ),
        plot.Panel("Prefill of 512 tokens: products", "Gop/s", peaks.i8 / 1e9, prefill),
    ]  # fmt: skip
    drawn = [replace(p, bars={f: b for f, b in p.bars.items() if b}) for p in panels]
    put_into(options.page, text, plot.picture(drawn))


if __name__ == "__main__":
    sys.exit(main())
