"""The tables of a run, in Markdown."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from comparison.aims import ratios
from comparison.ceilings import Peaks, bytes_per_token, ops_per_second
from comparison.contenders import OURS
from comparison.plot import Ceiling
from comparison.rounds import SHORT_DECODE, SHORT_PROMPT, Compared

DECODE_SHARE, PREFILL_SHARE, STOLEN_SHARE, LONG_SHARE, LONG_FACTOR = 0.9, 0.5, 0.55, 0.7, 2.0
FIRST_TOKEN_S = 0.5
SHOWN = {"i8": "int8", "bf16": "bf16", "f32": "f32"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, the series it shows, and digits behind the point."""

    title: str
    what: str
    digits: int = 0


SPEED = (
    Column("decode, tok/s", "decode"),
    Column("prefill 512, tok/s", "prefill"),
    Column("8 streams, tok/s", "8 streams"),
    Column("8 streams with prompts", "8 streams with prompts"),
    Column("start to first token, s", "first token, s", 2),
    Column("resident, MiB", "resident MiB"),
)


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cell(values: Sequence[float], digits: int = 0) -> str:
    """Return median and spread; a dash of nothing."""
    if not values:
        return "–"
    shown = [f"{v:,.{digits}f}" for v in (statistics.median(values), min(values), max(values))]
    return shown[0] if len(values) == 1 else f"{shown[0]} ({shown[1]}–{shown[2]})"


def speed(compared: Compared) -> str:
    """Return one file's contenders with all that was measured of them, and who is missing."""
    used = [c for c in SPEED if any(c.what in s for s in compared.series.values())]
    rows = []
    for name, series in compared.series.items():
        cells = [cell(series.get(c.what, []), c.digits) for c in used]
        if any(text != "–" for text in cells):
            rows.append([name, *cells])
    text = markdown(["", *(c.title for c in used)], rows) if rows else ""
    return text + missing(compared)


def missing(compared: Compared) -> str:
    """Name who is missing from a file's rows and why."""
    return "".join(f"\nNot measured: {name}: {why}\n" for name, why in compared.missing.items())


def aims(files: Iterable[Compared]) -> str:
    """Return every ratio that is aimed at."""
    rows = [
        [
            r.file,
            r.aim.what,
            r.ours,
            f"{r.value:.2f}× {r.aim.shown} ({r.low:.2f}–{r.high:.2f})",
            f"{r.aim.least:g}×",
            "yes" if r.is_met else "no",
        ]
        for compared in files
        for r in ratios(compared)
    ]
    return markdown(["file", "what", "", "ratio of medians (of rounds)", "aim", "reached"], rows)


def peaks(measured: Peaks) -> str:
    """Say what the machine reaches."""
    more = f", {measured.all_read / 1e9:.1f} with {measured.threads}"
    bf16 = f", bf16 {measured.bf16 / 1e9:.0f}" if measured.bf16 else ""
    return (
        f"Reading memory: {measured.one_read / 1e9:.1f} GB/s with one thread"
        f"{more if measured.threads > 1 else ''}; int8 products "
        f"{measured.i8 / 1e9:.0f} Gop/s{bf16}, f32 {measured.f32 / 1e9:.0f}.\n"
    )


def shares(files: Iterable[Compared], measured: Peaks, tokens: int) -> str:
    """Return how much of the machine's ceilings radiance uses."""
    rows = []
    for compared in files:
        for name in OURS:
            series, facts = compared.series.get(name, {}), compared.facts.get(name)
            if not facts or not (series.get("decode") and series.get("prefill")):
                continue
            size = bytes_per_token(facts, tokens)
            read = size * statistics.median(series["decode"])
            done = ops_per_second(facts, statistics.median(series["prefill"]))
            rows.append([
                compared.file, name, f"{size / 1e6:.1f} MB", f"{read / 1e9:.1f} GB/s",
                share(read / measured.all_read, DECODE_SHARE),
                f"{sum(done.values()) / 1e9:.0f} Gop/s", of_peaks(measured.share(done), done),
            ])  # fmt: skip
    titles = ["file", "", "read a token", "decode", "of reading (aim 90 %)", "prefill"]
    return markdown([*titles, "of the peak (aim 50 %)"], rows)


def of_peaks(value: float | None, ops: dict[str, float]) -> str:
    """Return a share of the peaks of the products that rows make, and of which these are."""
    if value is None:
        return "–"
    named = " and ".join(numbers for numbers, count in ops.items() if count)
    return share(value, PREFILL_SHARE) + ("" if named == "i8" else f" of {named}")


def share(value: float, aim: float) -> str:
    """Return a share, and whether it reaches the aim."""
    return f"{value:.0%}{'' if value >= aim else ' (below)'}"


def notes(files: Iterable[Compared]) -> Iterator[str]:
    """Yield sentences about what is neither a rate at rest nor a share of a ceiling."""
    for compared in files:
        for name, series in compared.series.items():
            yield from long_context(compared.file, name, series)
            if name in OURS and (waited := series.get("first token, s")):
                yield (
                    f"{compared.file}, {name}: {cell(waited, 2)} s from a new process to the first "
                    f"token (aim {FIRST_TOKEN_S:g} s)."
                )
            if series.get("stolen"):
                kept = [s / q for s, q in zip(series["stolen"], series["quiet"], strict=True)]
                yield (
                    f"{compared.file}, {name}: beside a busy program on one processor decode keeps "
                    f"{statistics.median(kept):.0%} ({min(kept):.0%}–{max(kept):.0%}) of what it "
                    f"is in peace{f' (aim {STOLEN_SHARE:.0%})' if name in OURS else ''}."
                )


def long_context(file: str, name: str, series: dict[str, list[float]]) -> Iterator[str]:
    """Yield how decode and prompts of a long context compare with short ones.

    Nothing of a contender that did not come to the long one: who is missing stands elsewhere.
    """
    lengths = [int(what.removeprefix("decode at ")) for what in series if "decode at " in what]
    longest = max(lengths, default=0)
    decode = (f"decode at {longest}", f"decode at {SHORT_DECODE}")
    prompts = (f"prompt of {SHORT_PROMPT}", f"prompt of {longest}")
    if longest <= SHORT_PROMPT or not all(series.get(what) for what in (*decode, *prompts)):
        return
    rounds = min(len(series[what]) for what in (*decode, *prompts))
    kept, slower = (
        of_rounds(series[over][:rounds], series[under][:rounds])
        for over, under in (decode, prompts)
    )
    yield (
        f"{file}, {name}: decode at {longest:,} tokens is {spread(kept, '.0%')} of that at "
        f"{SHORT_DECODE} (aim {LONG_SHARE:.0%}); a prompt of {longest:,} takes "
        f"{spread(slower, '.2f')} times as long a token as one of {SHORT_PROMPT} (aim "
        f"{LONG_FACTOR:g}); {rounds} round{'s' if rounds > 1 else ''}."
    )


def of_rounds(over: Sequence[float], under: Sequence[float]) -> tuple[float, float, float]:
    """Return the ratio of medians, and the least and the most of the rounds' own."""
    each = [a / b for a, b in zip(over, under, strict=True)]
    return statistics.median(over) / statistics.median(under), min(each), max(each)


def spread(value: tuple[float, float, float], form: str) -> str:
    """Return a ratio and the range of its rounds."""
    middle, low, high = (format(v, form) for v in value)
    return f"{middle} ({low}–{high})"


def whole(files: list[Compared], measured: Peaks, tokens: int, quiet: str) -> str:
    """Return everything."""
    parts = [quiet + ".\n", peaks(measured)]
    parts += [f"#### {compared.file}\n\n{speed(compared)}" for compared in files]
    parts += [f"#### Aims\n\n{aims(files)}", f"#### Ceilings\n\n{shares(files, measured, tokens)}"]
    parts += ["".join(f"- {note}\n" for note in notes(files))]
    return "\n".join(part for part in parts if part)


def decode_bars(compared: Compared, file_bytes: int) -> dict[str, float]:
    """Return GB/s of the file's bytes by contender: each token needs all of them once."""
    rates = {n: s["decode"] for n, s in compared.series.items() if s.get("decode")}
    return {n: statistics.median(v) * file_bytes / 1e9 for n, v in rates.items()}


def prefill_bars(compared: Compared) -> dict[str, float]:
    """Return Gop/s by contender: each prompt token needs the same products of all of them."""
    facts = next((f for n, f in compared.facts.items() if n in OURS and f), None)
    if facts is None:
        return {}
    rates = {n: s["prefill"] for n, s in compared.series.items() if s.get("prefill")}
    ops = {n: ops_per_second(facts, statistics.median(v)) for n, v in rates.items()}
    return {n: sum(done.values()) / 1e9 for n, done in ops.items()}


def prefill_ceilings(compared: Compared, measured: Peaks) -> tuple[Ceiling, ...]:
    """Return the ceilings of the products that our rows make of a file, in Gop/s."""
    found: dict[Ceiling, None] = {}
    for facts in (compared.facts.get(name) for name in OURS):
        known = facts and measured.of_products(facts["ops_per_prompt_token"])
        if known:
            numbers, most = known
            found[Ceiling(" and ".join(SHOWN[n] for n in numbers) + " products", most / 1e9)] = None
    return tuple(found)


__all__ = [
    "aims", "cell", "decode_bars", "markdown", "prefill_bars", "prefill_ceilings", "whole",
]  # fmt: skip
