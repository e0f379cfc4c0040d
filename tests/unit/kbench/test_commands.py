"""rad-kbench and rad-schemas as commands."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from radiance_abi.errors import ConfigurationError
from radiance_abi.vocabulary import STANDARD
from radiance_core.cli.command import run_command
from radiance_core.discover.libraries import Libraries
from radiance_core.kbench import machine, main, record, report
from radiance_core.kbench.fixture import bundled, read
from radiance_core.kbench.speed import Speed

sys.path.insert(0, str(Path(__file__).parent))

import strangers


@pytest.fixture
def run(capsys):
    """Run a command; return its status and what it printed."""

    def run(command, *arguments):
        with pytest.raises(SystemExit) as ended:
            run_command(command, f"rad-{command.name}", arguments)
        return ended.value.code, "".join(capsys.readouterr())

    return run


@pytest.fixture
def installed(monkeypatch):
    """Make some rows the only library that is installed."""

    def install(*rows):
        found = Libraries((strangers.library(*rows),), dict(STANDARD), {}, (), ())
        monkeypatch.setattr(main, "kernel_libraries", lambda *_: found)

    return install


def test_a_right_library_passes_and_the_report_is_written(installed, tmp_path, run):
    """Status 0; matrix, verdicts and speed are printed, and the file holds the same."""
    installed(strangers.row("add", strangers.add), strangers.row("mul", strangers.mul))
    out = tmp_path / "report.md"
    status, text = run(main.kbench, "--op", "add", "--report", str(out), "--threads", "1")
    assert status == 0, text
    assert "| `add` | 1 |" in text
    assert "stranger lacks" in text
    assert "| stranger | `add` | `add` | 3 | 0 | 0 | 0 | ok |" in text
    assert "reading memory reaches" in text
    assert "`mul`" not in text
    assert out.read_text().strip() == text.strip()


def test_a_wrong_library_fails(installed, run):
    """Status 1, and the fault is in what is printed."""
    installed(strangers.row("add", strangers.past_the_end))
    status, text = run(main.kbench, "--no-speed", "--op", "add")
    assert status == 1
    assert "**FAIL** stranger: add past_the_end" in text
    assert "1 rows with faults" in text


def test_the_seed_repeats_what_is_drawn(installed, run):
    """One seed, one text."""
    installed(strangers.row("add", strangers.add))
    first, second = (run(main.kbench, "--no-speed", "--op", "add", "--seed", "5") for _ in "ab")
    assert first == second
    assert "seed 5" in first[1]


def test_an_op_that_nobody_has_is_an_error(installed, run):
    """Nothing to judge is no pass."""
    installed(strangers.row("add", strangers.add))
    status, text = run(main.kbench, "--op", "no_such_op")
    assert status == 1
    assert "--op no_such_op: expected a part of an op that an installed library has a row" in text


def test_recording_needs_a_reference(tmp_path, run):
    """The text says what is missing."""
    status, text = run(main.kbench, "--record", str(tmp_path / "x.json"))
    assert status == 1
    assert "--record: expected --reference with the library to ask, got none" in text


def test_a_reference_is_for_recording(installed, run):
    """A library to ask is refused where nothing is recorded: it would not be used."""
    installed(strangers.row("add", strangers.add))
    status, text = run(main.kbench, "--reference", "stranger")
    assert status == 1
    assert text == (
        "rad-kbench: --reference: expected --record with the fixture to fill in, got none\n"
    )


@pytest.mark.parametrize("option", ["--threads", "--seed"])
def test_numbers_below_0_are_refused(run, option):
    """There are neither fewer threads than none nor seeds below 0: usage, and no trace."""
    status, text = run(main.kbench, option, "-1")
    assert status == 2
    assert f"Invalid value for '{option}': -1 is not in the range x>=0." in text


@pytest.fixture
def unwritable(tmp_path):
    """Files that cannot be written, and why: no folder, a folder itself, a full disk."""
    return {
        tmp_path / "nosuch" / "x": "No such file or directory",
        tmp_path: "Is a directory",
        Path("/dev/full"): "No space left on device",
    }


def unwritten(option, path, why):
    """Return the one line that tells of a file."""
    return (
        f"rad-kbench: {option} {path}: expected a file that can be written, got: {why}; name one "
        "in a folder that is there, may be written to and has room\n"
    )


def test_a_report_that_cannot_be_written_is_told_first(installed, unwritable, monkeypatch, run):
    """One line names option, file and cause, and comes before any row is judged."""
    installed(strangers.row("add", strangers.add))
    monkeypatch.setattr(main, "judge", lambda *_: pytest.fail("judged"))
    for path, why in unwritable.items():
        told = run(main.kbench, "--report", str(path))
        assert told == (1, unwritten("--report", path, why))


def test_a_report_takes_the_place_of_an_earlier_one(installed, tmp_path, run):
    """Nothing of what the file held is left, unless the run is refused before it begins."""
    installed(strangers.row("add", strangers.add))
    out = tmp_path / "report.md"
    out.write_text("earlier " * 10_000)
    assert run(main.kbench, "--op", "nosuch", "--report", str(out))[0] == 1
    assert out.read_text() == "earlier " * 10_000
    _, text = run(main.kbench, "--op", "add", "--no-speed", "--report", str(out))
    assert out.read_text() == text


def test_a_fixture_that_cannot_be_written_is_told(installed, unwritable, monkeypatch, run):
    """One line names option, file and cause; unless the disk fills, before anything is asked."""
    installed(strangers.row("add", strangers.add))
    fixture = read(bundled()[0])
    asked = []
    monkeypatch.setattr(main, "read", lambda _: fixture)
    monkeypatch.setattr(record, "record", lambda *what: asked.append(what) or fixture)
    for path, why in unwritable.items():
        told = run(main.kbench, "--record", str(path), "--reference", "stranger")
        assert told == (1, unwritten("--record", path, why))
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--library", "nosuch"], "rad-kbench: --library: library 'nosuch' is not installed"),
        (["--library", "x", "--library", "x"], "rad-kbench: --library: "),
        (["--record", "{}", "--reference", "nosuch"], "rad-kbench: --reference: library 'nosuch'"),
    ],
)
def test_the_option_that_names_a_library_is_told(tmp_path, run, arguments, says):
    """A name that is not installed is told with the option that it was given to."""
    path = tmp_path / "x.json"
    sizes = '"n_embd": 8, "n_ff": 8, "n_head": 1, "n_head_kv": 1, "head_dim": 8, "n_vocab": 8'
    path.write_text('{"family": "x", "about": "y", "sizes": {%s, "encodings": []}}' % sizes)  # noqa: UP031
    status, text = run(main.kbench, *(a.format(path) for a in arguments))
    assert status == 1
    assert text.startswith(says)


def test_ops_that_nobody_knows_are_an_error(run):
    """A text that is in no op's name is no success; the nearest name is offered."""
    status, text = run(main.schemas, "rmsnrom")
    assert (status, text.count("\n")) == (1, 1)
    assert text.startswith("rad-schemas: rmsnrom: expected a part of the name of an op that is kn")
    assert "; did you mean 'rmsnorm'?" in text


def test_schemas_are_printed_with_what_is_recorded(run):
    """Every op's schema, and how many cases of which family there are."""
    status, text = run(main.schemas, "rmsnorm_add_q")
    assert status == 0
    assert str(STANDARD["rmsnorm_add_quant_i8"]) in text
    assert "recorded: 2 of gemma3, 2 of qwen3, 2 of smollm2" in text
    assert str(STANDARD["add"]) not in text


def test_peaks_are_measured_with_the_compiled_part():
    """Reading and products of each kind are what a processor may reach; bf16 where it has that."""
    most = machine.ceilings(1)
    assert 1e8 < most.bytes_per_s < 1e13
    products = most.products_per_s
    assert tuple(products) == machine.NUMBERS
    assert 1e8 < products["f32"] < 1e13
    assert products["f32"] / 2 < products["i8"] < 1e14
    flags = Path("/proc/cpuinfo").read_text()
    assert (products["bf16"] > 0) == ("avx512_bf16" in flags)


def test_shares_are_of_the_numbers_that_products_are_made_of():
    """Products are held against the peak of their numbers; one that is unknown has no shares."""
    row = strangers.row("gemm_nt_bf16", strangers.add)
    peaks = {"i8": 9e9, "bf16": 4e9, "f32": 2e9}
    for numbers, share in (("i8", "33"), ("bf16", "75"), ("f32", "150")):
        speed = Speed("s", row, "c", 1.0, 100, 3 * 10**9, numbers)
        text = "\n".join(report.speed([speed], machine.Ceilings(2, 1e9, peaks)))
        assert "products of i8 9, of bf16 4, of f32 2 Gop/s" in text
        assert f"| 3 | {share} % of {numbers} |" in text
    none = machine.Ceilings(2, 1e9, {**peaks, "bf16": 0.0})
    text = "\n".join(report.speed([replace(speed, numbers="bf16")], none))
    assert "products of i8 9, of f32 2 Gop/s" in text
    assert "| 3 | – of bf16 |" in text


def test_a_missing_part_is_named(tmp_path):
    """Without the shared object the text says what was expected where, and a way around."""
    with pytest.raises(ConfigurationError, match=r"expected \S+gone\.so of this installation, got"):
        machine._open(tmp_path / "gone.so")
