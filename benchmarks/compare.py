"""radiance, llama.cpp and OpenVINO GenAI on the same files, in turn, in one run.

    python benchmarks/peers.py                      once: makes what is compared with
    python benchmarks/compare.py                    everything, in twenty to thirty minutes
    python benchmarks/compare.py --quick            a short run that shows that all works

Same file, threads, processors and prompts for all; five interleaved rounds after one that does not
count; each contender in a process of its own, stopped while it is not its turn. Prints medians with
their spread, ratios against what is aimed at, and shares of the machine's ceilings measured beside
them. Exits with 0 whatever the figures; who cannot run, or ends on the way, is named with the
reason, and the values are in a file of JSON after each model. On a machine that others keep busy,
--processor-time counts what one thread of each takes for itself: that hardly changes with load.
"""

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from radiance_core.hardware import machine

sys.path.insert(0, str(Path(__file__).resolve().parent))

from comparison import ceilings, plot, table
from comparison.contenders import contenders
from comparison.model_files import MODELS, ModelFile, find_files
from comparison.one_file import FIRST, compare
from comparison.page import around, put_into
from comparison.quiet import Rests, pin
from comparison.rounds import Compared
from comparison.servers import servers
from peers import CACHE, Making


def names() -> list[str]:
    """Return those of all contenders and servers."""
    any_program = Path(sys.executable)
    rivals = contenders(any_program, any_program)
    hosts = servers(any_program, any_program, any_program, 1)
    return list(dict.fromkeys(r.name for r in [*rivals, *hosts]))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, both = parser.add_argument, argparse.BooleanOptionalAction
    add("--file", action="append", choices=MODELS, help="compare this file only; may repeat")
    add("--model", type=Path, action="append", default=[], help="compare this GGUF file too")
    add("--rounds", type=int, default=5)
    add("--tokens", type=int, default=128, help="decoded in a round")
    add("--prompt", type=int, default=512, help="tokens of prompts")
    add("--stream-tokens", type=int, default=64, help="of each of eight streams in a round")
    add("--threads", type=int, default=2)
    add("--rest", type=float, default=0.4, help="seconds between measurements")
    add("--long-rounds", type=int, default=3, help="at a long context; 0 leaves it out")
    add("--stolen-core", action=both, default=None, help="also beside a busy program on one core")
    add("--no-servers", action="store_true", help="libraries only")
    add("--processor-time", action="store_true", help="for busy machines: one thread, its own time")
    add("--only", action="append", help="contenders and servers of these names only")
    add("--quick", action="store_true", help="one file, one round; no long context, no busy core")
    add("--page", type=Path, help="put the tables and a picture into this Markdown page")
    add("--cache", type=Path, default=CACHE, help="where peers and files that are made lie")
    add(
        "--json",
        type=Path,
        help="write all values there; bench/last.json of the cache if not given",
    )
    options = parser.parse_args()
    if options.processor_time:
        options.threads, options.no_servers, options.stolen_core = 1, True, False
    if options.stolen_core is None:
        options.stolen_core = not options.quick
    if options.quick:
        options.file = options.file or [FIRST]
        options.rounds, options.long_rounds, options.tokens, options.stream_tokens = 1, 0, 48, 32
    options.json = options.json or options.cache / "bench" / "last.json"
    if options.page is not None:
        try:
            around(options.page)  # sooner than after twenty minutes
        except (OSError, ValueError) as error:
            parser.error(str(error))
    try:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.touch()
    except OSError as error:
        parser.error(f"--json: cannot write {options.json}: {error}")
    known = names()
    if unknown := [n for n in options.only or [] if n not in known]:
        parser.error(f"--only: expected {', '.join(known)}; got {', '.join(unknown)}")
    return options


@dataclass(slots=True)
class Run:
    """What a run has measured so far."""

    options: argparse.Namespace
    processors: list[int]
    rests: Rests
    peaks: list[ceilings.Peaks]
    began: float = field(default_factory=time.monotonic)
    results: list[Compared] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, file: ModelFile, compared: Compared) -> None:
        """Take what one file gave, and the machine's ceilings after it."""
        self.results.append(compared)
        if file.path is None:
            return  # nothing was measured
        self.sizes[file.name] = file.path.stat().st_size
        measure = lambda: self.peaks.append(ceilings.measure(self.options.threads))  # noqa: E731
        compared.attempt("the machine's ceilings afterwards", measure)

    def circumstances(self) -> str:
        """Say how and where this was measured."""
        here, by = machine(), "processor time" if self.options.processor_time else "time"
        minutes = (time.monotonic() - self.began) / 60
        quiet = self.rests.report(processor_time=self.options.processor_time)
        return (
            f"{self.options.rounds} interleaved rounds, threads: {self.options.threads} on "
            f"processors {self.processors} ({here.cpu}: {' '.join(here.features) or 'no features'})"
            f", by {by}, {minutes:.0f} minutes, {time.strftime('%Y-%m-%d')}; {quiet}"
        )

    def text(self) -> str:
        """Return all tables."""
        best = ceilings.best(self.peaks)
        return table.whole(self.results, best, self.options.tokens, self.circumstances())

    def keep(self, text: str = "") -> None:
        """Write all values."""
        peaks, files = asdict(ceilings.best(self.peaks)), [asdict(c) for c in self.results]
        where = {"features": machine().features, "peaks": peaks}
        values = json.dumps({**where, "files": files, "text": text}, indent=1)
        self.options.json.write_text(values + "\n", "utf-8")

    def picture(self) -> str:
        """Return bars of decode and prefill against the machine's ceilings."""
        best = ceilings.best(self.peaks)
        read = (plot.Ceiling("reading", best.all_read / 1e9),)
        decode = {
            c.file: bars
            for c in self.results
            if c.file in self.sizes and (bars := table.decode_bars(c, self.sizes[c.file]))
        }
        prefill = {c.file: bars for c in self.results if (bars := table.prefill_bars(c))}
        most = {c.file: table.prefill_ceilings(c, best) for c in self.results}
        title = f"Prefill of {self.options.prompt} tokens: products"
        return plot.picture([
            plot.Panel(
                "Decode, one stream: the file's bytes read for each token",
                "GB/s", decode, dict.fromkeys(decode, read),
            ),
            plot.Panel(title, "Gop/s", prefill, most),
        ])  # fmt: skip


def main() -> int:
    """Run the comparison."""
    options = parsed()
    # Ended politely, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    began = time.monotonic()
    files = find_files(options.file or list(MODELS), options.cache / "models")
    files += [
        ModelFile(path.name, path if path.is_file() else None, f"there is no file {path}")
        for path in options.model
    ]
    peers = Making(options.cache).find()
    used = pin(options.threads)
    run = Run(options, used, Rests(options.rest), [ceilings.measure(options.threads)], began)
    for file in files:
        run.add(file, compare(file, peers, options, run.rests))
        run.keep()
        print(f"{file.name}\n{table.speed(run.results[-1])}", file=sys.stderr, flush=True)
    text = run.text()
    run.keep(text)
    print("\n" + text)
    if options.page is not None:
        put_into(options.page, text, run.picture())
    return 0


if __name__ == "__main__":
    sys.exit(main())
