"""benchmarks/compare.py: medians, ratios, shares and reasons in its tables; nothing is measured."""

import random
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from comparison.aims import AIMS, ratios
from comparison.ceilings import Peaks, best
from comparison.contenders import ContenderError, last_word
from comparison.page import BEGIN, END, put_into
from comparison.plot import Ceiling, Panel, picture
from comparison.quiet import Rests
from comparison.rounds import Compared
from comparison.servers import whole_rate
from comparison.starting import has_text
from comparison.table import cell, notes, prefill_ceilings, whole
from comparison.worker import numbers_of
from streams import Timed, while_all_run

PEAKS = Peaks(2, 20e9, 25e9, 900e9, 460e9, 220e9)
FACTS = {
    "weight_bytes": 90e6, "cache_bytes_per_token": 1e5,
    "ops_per_prompt_token": {"i8": 2e8, "bf16": 0, "f32": 0},
}  # fmt: skip


def compared(file: str, rates: dict[str, dict[str, list[float]]]) -> Compared:
    return Compared(file, series=rates, facts={"radiance": FACTS})


def at_lengths(rates: dict[int, tuple[list[float], list[float]]]) -> dict[str, list[float]]:
    """Rates of decode and of prompts as a long context's rounds note them."""
    decode = {f"decode at {n}": d for n, (d, _) in rates.items()}
    return decode | {f"prompt of {n}": p for n, (_, p) in rates.items()}


def drawn(rounds: int) -> list[float]:
    return [random.uniform(50, 500) for _ in range(rounds)]


def test_ratios_are_of_medians_against_the_best_peer() -> None:
    """Our median over that of the peer with the highest one, with the range of rounds' ratios."""
    for _ in range(50):
        ours, slow, fast = (drawn(5) for _ in range(3))
        if statistics.median(slow) > statistics.median(fast):
            slow, fast = fast, slow
        rates = {n: {"decode": v} for n, v in
                 (("radiance", ours), ("llama.cpp", slow), ("llama.cpp flash", fast))}  # fmt: skip
        (found,) = ratios(compared("model Q4_1", rates))
        assert found.value == statistics.median(ours) / statistics.median(fast)
        assert found.low <= found.high
        each = [a / b for a, b in zip(ours, fast, strict=True)]
        assert (found.low, found.high) == (min(each), max(each))
        assert found.is_met is (found.value >= 2.5)


def test_aims_belong_to_encodings() -> None:
    """A file is held against its own encoding's aims, and prefill against either peer alone."""
    rates = {n: {"decode": [1.0], "prefill": [2.0], "8 streams": [3.0]}
             for n in ("radiance", "llama.cpp", "openvino-genai", "llama-server")}  # fmt: skip
    by_file = {
        f: [(r.aim.what, r.aim.shown, r.aim.least) for r in ratios(compared(f, rates))]
        for f in ("m Q4_0", "m BF16")
    }
    prefill = [("prefill", "OpenVINO GenAI", 1.5), ("prefill", "llama.cpp", 3.0)]
    assert by_file["m BF16"] == [("decode", "best peer", 1.1), *prefill]
    assert by_file["m Q4_0"] == [
        ("decode", "best peer", 1.8), *prefill, ("8 streams", "llama-server", 3.0)
    ]  # fmt: skip
    assert len(AIMS) == 9


def test_nobody_to_compare_with_is_no_ratio() -> None:
    """Without peers, or without us, there is no ratio and no division by nothing."""
    assert not list(ratios(compared("m Q4_1", {"radiance": {"decode": [1.0]}})))
    assert not list(ratios(compared("m Q4_1", {"llama.cpp": {"decode": [1.0]}})))
    assert not list(ratios(Compared("m Q4_1")))


def test_missing_contenders_are_named_with_the_reason() -> None:
    """Who could not run stands below the table, with why; a missing file too."""
    gone = Compared("m Q4_0", missing={"openvino-genai": "no such encoding"})
    gone.add("radiance", "decode", 100.0)
    lost = Compared("n BF16", missing={"the file": "FileNotFoundError: nowhere"})
    text = whole([gone, lost], PEAKS, 128, "quiet")
    assert "Not measured: openvino-genai: no such encoding" in text
    assert "Not measured: the file: FileNotFoundError: nowhere" in text
    assert "| radiance | 100 |" in text


def test_shares_of_ceilings() -> None:
    """Bytes of a step times steps, over reading; operations of a prompt over the int8 peak."""
    rates = {"radiance": {"decode": [250.0], "prefill": [2000.0]}}
    text = whole([compared("m Q4_1", rates)], PEAKS, 128, "quiet")
    # 90 MB and 80 tokens of 0.1 MB are 98 MB; 2000 tokens of 0.2 Gop are 400 Gop/s of 900.
    assert "98.0 MB | 24.5 GB/s | 98% | 400 Gop/s | 44% (below) |" in text


@pytest.mark.parametrize(
    ("ops", "shown"),
    [
        ({"i8": 0, "bf16": 2e8, "f32": 0}, "400 Gop/s | 87% of bf16 |"),
        ({"i8": 0, "bf16": 0, "f32": 5e7}, "100 Gop/s | 45% (below) of f32 |"),
        # A second of 360 Gop of i8 and 110 of f32 is 0.4 s and 0.5 s of work.
        ({"i8": 1.8e8, "bf16": 0, "f32": 5.5e7}, "470 Gop/s | 90% of i8 and f32 |"),
    ],
)
def test_a_share_is_of_the_peaks_that_rows_use(ops: dict[str, float], shown: str) -> None:
    """Each kind of numbers counts against its own peak; nothing is told of one not measured."""
    one = compared("m BF16", {"radiance": {"decode": [250.0], "prefill": [2000.0]}})
    one.facts["radiance"] = {**FACTS, "ops_per_prompt_token": ops}
    assert shown in whole([one], PEAKS, 128, "quiet")
    without = replace(PEAKS, bf16=0.0)
    assert "bf16 460, f32" in whole([one], PEAKS, 128, "quiet")
    text = whole([one], without, 128, "quiet")
    assert "bf16 " not in text.partition("####")[0]
    assert ("Gop/s | – |" in text) == bool(ops["bf16"])


@pytest.mark.parametrize(
    ("op", "params", "numbers"),
    [("gemm_nt_q", {"planes": 2}, "i8"), ("gemm_nt_bf16_add", {}, "bf16"), ("gemm_nt", {}, "f32")],
)
def test_products_are_of_what_activations_are(op: str, params: dict, numbers: str) -> None:
    """Codes are i8 in any number of planes; what an op narrows is bf16; all else is f32."""
    assert numbers_of(SimpleNamespace(schema=SimpleNamespace(op=op), params=params)) == numbers


def test_a_cell_shows_median_and_spread() -> None:
    """One value stands alone, several with the least and the most, none as a dash."""
    assert cell([]) == "–"
    assert cell([1234.4]) == "1,234"
    assert cell([3.0, 1.0, 2.0], 1) == "2.0 (1.0–3.0)"


def test_notes_of_long_contexts_and_stolen_processors() -> None:
    """Decode kept, time a token at length, and what a busy neighbour leaves: medians of rounds."""
    series = at_lengths({
        128: ([200.0, 100.0, 300.0], [9.0, 9.0, 9.0]),
        512: ([9.0, 9.0, 9.0], [1000.0, 1000.0, 900.0]),
        8000: ([150.0, 90.0, 180.0], [400.0, 200.0, 450.0]),
    }) | {"quiet": [100.0, 200.0, 100.0], "stolen": [50.0, 120.0, 70.0],
          "first token, s": [0.6, 0.4, 0.45]}  # fmt: skip
    long, first, stolen = notes([compared("m", {"radiance": series})])
    assert "decode at 8,000 tokens is 75% (60%–90%) of that at 128 (aim 70%)" in long
    assert "a prompt of 8,000 takes 2.50 (2.00–5.00) times as long a token as one of 512" in long
    assert long.endswith("(aim 2); 3 rounds.")
    assert "0.45 (0.40–0.60) s from a new process to the first token (aim 0.5 s)" in first
    assert "keeps 60% (50%–70%)" in stolen


def test_a_long_context_is_told_of_only_when_all_lengths_are_there() -> None:
    """Who ended at any length of the first round has no sentence; later, whole rounds count."""
    lengths = {128: ([200.0], [9.0]), 512: ([9.0], [1000.0]), 7936: ([150.0], [400.0])}
    for come in range(3):
        part = dict(list(lengths.items())[:come])
        assert not list(notes([compared("m", {"radiance": at_lengths(part)})]))
    lengths[128] = ([200.0, 1.0], [9.0, 9.0])
    (told,) = notes([compared("m", {"radiance": at_lengths(lengths)})])
    assert "is 75% (75%–75%) of that at 128" in told
    assert told.endswith("; 1 round.")


def test_rates_of_streams() -> None:
    """One counts what lies between the last beginning and the first end, the other all."""
    answers = [
        Timed(0.0, 200, tokens=11, pieces=[1 + i for i in range(11)], ended=11.0),
        Timed(0.0, 200, tokens=22, pieces=[3 + i for i in range(11)], ended=13.0),
    ]
    # From 3 to 11: eight pieces of one token and eight of two.
    assert while_all_run(answers) == pytest.approx((8 + 16) / 8)
    assert whole_rate(answers) == pytest.approx(33 / 13)
    answers[1].pieces = [20.0, 21.0]
    assert while_all_run(answers) == 0.0


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'data: {"choices":[{"delta":{"content":"a"}}]}', True),
        (b'data: {"choices":[{"delta":{"role":"assistant"}}]}', False),
        (b'data: {"choices":[]}', False),
        (b"data: [DONE]", False),
        (b": ping", False),
    ],
)
def test_first_text_of_a_stream(line: bytes, *, text: bool) -> None:
    """Only an event with text counts as the first token."""
    assert has_text(line) is text


def test_the_best_of_ceilings() -> None:
    """A ceiling is the highest of what was measured, each for itself."""
    other = Peaks(2, 25e9, 20e9, 800e9, 470e9, 230e9)
    assert best([PEAKS, other]) == Peaks(2, 25e9, 25e9, 900e9, 470e9, 230e9)


def test_a_busy_machine_is_warned_of() -> None:
    """More than a twentieth of the processors with others is a warning, less is none."""
    rests = Rests(0.0)
    assert "WARNING" not in rests.report()
    rests.busy = [0.0, 0.01, 0.9]
    assert "WARNING" not in rests.report()
    rests.busy += [0.3, 0.4]
    assert "others took 30%" in rests.report()
    assert "WARNING" in rests.report()
    assert "WARNING" not in rests.report(processor_time=True)


def test_a_page_keeps_what_is_around_its_figures(tmp_path: Path) -> None:
    """Only what stands between the marks changes, again and again; a page without them is told."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for text in ("first", "second"):
        put_into(page, text, "<svg/>")
    written = page.read_text()
    assert written.startswith(f"before\n{BEGIN}\n\nsecond\n")
    assert written.endswith(f"{END}\nafter\n")
    assert "old" not in written
    assert (tmp_path / "images" / "page.svg").read_text() == "<svg/>"
    page.write_text(f"{END}{BEGIN}")
    with pytest.raises(ValueError, match=r"page.md: expected one .* put them in"):
        put_into(page, "x", "y")


def test_a_second_page_has_a_picture_of_its_own(tmp_path: Path) -> None:
    """Pages of several machines stand beside each other: each shows the picture of its name."""
    for name in ("performance", "performance-avx2"):
        page = tmp_path / f"{name}.md"
        page.write_text(f"{BEGIN}\n{END}\n")
        put_into(page, name, f"<svg>{name}</svg>")
    for name in ("performance", "performance-avx2"):
        assert f"(images/{name}.svg)" in (tmp_path / f"{name}.md").read_text()
        assert (tmp_path / "images" / f"{name}.svg").read_text() == f"<svg>{name}</svg>"


def test_a_part_whose_rows_end_at_prefill_has_no_share() -> None:
    """Decode without prefill, or without facts, is left out of the ceilings' table."""
    one = compared("m Q4_1", {"radiance": {"decode": [250.0]}, "radiance int8": {"decode": [1.0]}})
    assert "250" in whole([one], PEAKS, 128, "quiet")
    assert "| m Q4_1 |" not in whole([one], PEAKS, 128, "quiet")


def test_a_failure_is_noted_and_not_raised() -> None:
    """Whatever a part of the work does, its name has the reason in a line; nothing ends."""
    one = Compared("m")

    def fail(error: Exception) -> Callable[[], None]:
        def job() -> None:
            raise error

        return job

    assert one.attempt("well", lambda: None)
    assert not one.attempt("a", fail(ContenderError("no such\n  encoding")))
    assert not one.attempt("b", fail(KeyError("prompt_s")))
    assert not one.attempt("c", fail(StopIteration()))
    assert one.missing == {
        "a": "no such encoding",
        "b": "KeyError: 'prompt_s'",
        "c": "StopIteration:",
    }
    with pytest.raises(SystemExit):
        one.attempt("ended politely", sys.exit)


@pytest.mark.parametrize(
    ("said", "status", "word"),
    [
        (b"trace\n  no room \n\n", 1, "no room"),
        (b"", 3, "ended with status 3"),
        (b"", -9, "ended by SIGKILL"),
        (b"loading\n", -11, "ended by SIGSEGV, after: loading"),
        (b"\xff", 0, "\ufffd"),
    ],
)
def test_the_last_word_of_a_process(said: bytes, status: int, word: str) -> None:
    """Its last line, or how it ended; a signal is named by itself."""
    assert last_word(said, status) == word


@pytest.mark.parametrize(
    ("ops", "bf16", "numbers", "most"),
    [
        ({"i8": 2e8, "bf16": 0, "f32": 0}, 460e9, ("i8",), 900e9),
        ({"i8": 0, "bf16": 2e8, "f32": 0}, 460e9, ("bf16",), 460e9),
        ({"i8": 0, "bf16": 2e8, "f32": 0}, 0.0, ("f32",), 220e9),
        # A second of 360 Gop of i8 and 110 of f32 is 0.4 s and 0.5 s of work.
        ({"i8": 360, "bf16": 0, "f32": 110}, 0.0, ("i8", "f32"), 470e9 / 0.9),
    ],
)
def test_a_ceiling_is_of_the_products_that_are_made(
    ops: dict[str, float], bf16: float, numbers: tuple[str, ...], most: float
) -> None:
    """Each kind of numbers has its own; bf16 without instructions is multiplied as f32."""
    named, value = replace(PEAKS, bf16=bf16).of_products(ops)
    assert (named, value) == (numbers, pytest.approx(most))


def test_files_have_the_ceilings_of_their_own_products() -> None:
    """Every kind of products that rows of ours make of a file is a line, each once."""
    one = compared("m BF16", {})
    one.facts["radiance"] = {**FACTS, "ops_per_prompt_token": {"i8": 0, "bf16": 2e8, "f32": 0}}
    one.facts["radiance int8"] = FACTS
    assert prefill_ceilings(one, PEAKS) == (
        Ceiling("bf16 products", 460.0), Ceiling("int8 products", 900.0)
    )  # fmt: skip
    one.facts["radiance int8"] = one.facts["radiance"]
    assert prefill_ceilings(one, PEAKS) == (Ceiling("bf16 products", 460.0),)
    assert prefill_ceilings(Compared("m"), PEAKS) == ()
    assert prefill_ceilings(one, Peaks(1, 0.0, 0.0, 0.0, 0.0, 0.0)) == ()


def test_the_picture_has_lines_where_their_files_stand() -> None:
    """Files of equal ceilings share a line; another's is beside its own bars alone."""
    quantised, narrow = (Ceiling("int8 products", 30.0),), (Ceiling("bf16 products", 15.0),)
    bars = {name: {"radiance": 10.0, "llama.cpp": 5.0} for name in ("a", "b", "c", "d")}
    ceilings = {"a": quantised, "b": quantised, "c": narrow}
    svg = picture([Panel("prefill", "Gop/s", bars, ceilings)])
    root, space = ElementTree.fromstring(svg), "{http://www.w3.org/2000/svg}"
    tops = {
        r.findtext(f"{space}title")[0]: float(r.get("y"))
        for r in root.iter(f"{space}rect") if "radiance" in (r.findtext(f"{space}title") or "")
    }  # fmt: skip
    first, second = root.iter(f"{space}line")
    assert float(first.get("y1")) < tops["a"] < tops["b"] < float(first.get("y2")) < tops["c"]
    assert float(first.get("y2")) < float(second.get("y1")) < tops["c"]
    assert tops["c"] < float(second.get("y2")) < tops["d"]
    left = 2 * float(second.get("x1")) - float(first.get("x1"))
    widths = [float(r.get("x")) for r in root.iter(f"{space}rect") if r.get("x") is not None]
    assert left == pytest.approx(max(set(widths), key=widths.count), abs=0.2)
    assert "bf16 products, measured: 15 Gop/s" in svg
    assert svg.count("int8 products, measured: 30 Gop/s") == 1
    assert picture([Panel("nothing", "Gop/s", {}, {})]).endswith("</svg>\n")


def test_the_picture_has_a_bar_for_each_value_and_a_line_for_the_ceiling() -> None:
    """Widths are to scale and the ceiling stands where its value is."""
    bars = {"m <Q4>": {"radiance": 10.0, "llama.cpp": 5.0}, "n": {"stranger": 20.0}}
    ceiling = (Ceiling("reading", 20.0),)
    svg = picture([Panel("decode", "GB/s", bars, dict.fromkeys(bars, ceiling))])
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    found = [r for r in root.iter(f"{space}rect") if r.find(f"{space}title") is not None]
    widths = [float(r.get("width", "0")) for r in found]
    assert widths == pytest.approx([widths[2] / 2, widths[2] / 4, widths[2]], rel=1e-2)
    (line,) = root.iter(f"{space}line")
    left = float(found[0].get("x", "0"))
    assert float(line.get("x1", "0")) == pytest.approx(left + widths[2], abs=0.2)
    assert found[0].findtext(f"{space}title") == "m <Q4>, radiance: 10.0 GB/s"
