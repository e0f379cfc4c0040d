"""The file of choices: what is written reads back, and what is malformed is named with its line."""

import random
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiance_abi import ConfigurationError
from radiance_core.resolve import tuning_file
from radiance_core.resolve.tuning import UNTUNED, Choice, Machine
from radiance_core.resolve.tuning_file import find_tuning, machine_file, parse, read, spell

PATH = Path("t.txt")
HERE = Machine("A Fast One (R) 2.5", 2, {"a": "1.0"})
LINE = "mine a.k M=1.. n=8 w:u4*f16[1x32] -> ahead=4 | 1.06x 2026-11-30"
HEAD = "processor: A Fast One (R) 2.5\nthreads: 2\nabi: 1\nlibrary: a 1.0\n"

names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
facts = st.builds("{}={}".format, names, st.from_regex(r"[a-z0-9.+-]{1,8}", fullmatch=True)) | (
    st.builds("{}:{}".format, names, st.sampled_from(["bf16", "u4*f16[1x32]-f16[1x32]"]))
)
bands = st.tuples(st.integers(1, 99), st.none() | st.integers(99, 999))
choices = st.builds(
    Choice,
    row=st.tuples(names, names, names),
    geometry=st.frozensets(facts.filter(lambda f: ".." not in f), max_size=5),
    ranged=st.just("M"),
    band=bands,
    values=st.dictionaries(names, st.integers(-99, 99), min_size=1, max_size=3),
    gain=st.floats(0.5, 9).map(lambda g: round(g, 3)),
    day=st.dates(),
) | st.just(
    Choice(("a", "b", "c"), frozenset(), None, (1, None), {"x": 1}, 1.5, date(2026, 11, 30))
)


@given(st.lists(choices, max_size=6))
def test_what_is_written_reads_back(made: list[Choice]) -> None:
    """Machine and choices are the same again, but for order and numbers of lines."""

    def plain(found: list[Choice]) -> list[str]:
        return sorted(map(tuning_file.spell_choice, found))

    machine, found = parse(spell(HERE, made), PATH)
    assert machine == HERE
    assert plain(found) == plain(made)
    assert [c.values for c in sorted(found, key=tuning_file.spell_choice)] == [
        c.values for c in sorted(made, key=tuning_file.spell_choice)
    ]


def test_the_order_of_everything_is_free() -> None:
    """Lines and facts may be moved; comments and empty lines say nothing."""
    words = ["M=1..", "n=8", "w:u4*f16[1x32]"]
    _, [one] = parse(HEAD + LINE, PATH)
    for _ in range(6):
        random.shuffle(words)
        lines = [*HEAD.splitlines(), LINE.replace("M=1.. n=8 w:u4*f16[1x32]", " ".join(words))]
        random.shuffle(lines)
        machine, [other] = parse("\n".join(["# a", "", *lines]), PATH)
        assert machine == HERE
        assert (other.geometry, other.band, other.values) == (one.geometry, one.band, one.values)
        assert other.line == 3 + lines.index(
            next(line for line in lines if line.startswith("mine"))
        )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "mine a.k n=8",
            "expected OP LIBRARY.KERNEL FACTS -> AXIS=VALUE | GAINx YYYY-MM-DD, got 'mine a.k n=8'",
        ),
        ("mine n=8 -> a=1 | 1.0x 2026-11-30", "expected OP LIBRARY.KERNEL before the facts, got "),
        (
            "mine -> a=1 | 1.0x 2026-11-30",
            "expected OP LIBRARY.KERNEL before the facts, got 'm",
        ),
        (
            "mine a.k M=1.. q=1..4 -> a=1 | 1.0x 2026-11-30",
            "expected one fact with a range, got M=1.. q=1..4",
        ),
        (
            "mine a.k n -> a=1 | 1.0x 2026-11-30",
            "expected facts as PARAM=VALUE or WEIGHT:ENCODING, got 'n'",
        ),
        ("mine a.k n=8 ->  | 1.0x 2026-11-30", "expected AXIS=VALUE after ->, got nothing"),
        (
            "mine a.k n=8 -> a=fast | 1.0x 2026-11-30",
            "expected AXIS=VALUE with a whole number, got 'a=fast'",
        ),
        (
            "mine a.k n=8 -> a=1 | faster 2026-11-30",
            "expected GAINx YYYY-MM-DD at the end, as 1.06x 2026-11-30, got 'faster 2026-11-30'",
        ),
        ("mine a.k n=8 -> a=1 | 1.1x 2026-13-30", "expected GAINx YYYY-MM-DD at the end"),
        ("proccessor: x", "expected OP LIBRARY.KERNEL FACTS -> AXIS=VALUE | GAINx YYYY-MM-DD, got"),
    ],
)
def test_a_malformed_line_is_named(line: str, says: str) -> None:
    """The error names file, line, what was expected and what was there, and what to do."""
    with pytest.raises(ConfigurationError) as caught:
        parse(f"{HEAD}\n# so\n{line}\n", PATH)
    assert str(caught.value).startswith(f"tuning t.txt:7: {says}")
    assert str(caught.value).endswith(
        "; correct the line, or delete the file and run rad-tune again"
    )


@pytest.mark.parametrize("head", ["processor", "threads", "abi"])
def test_a_head_must_be_there(head: str) -> None:
    """What the file was made for has to be said."""
    text = "\n".join(line for line in HEAD.splitlines() if not line.startswith(head))
    with pytest.raises(ConfigurationError, match=f"tuning t.txt:1: expected a line '{head}: ...'"):
        parse(text, PATH)


def test_a_head_must_make_sense() -> None:
    """A number that is none is named with its line."""
    with pytest.raises(
        ConfigurationError,
        match=r"tuning t.txt:2: expected a whole number after 'threads:', got 'two'",
    ):
        parse(HEAD.replace("threads: 2", "threads: two"), PATH)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, not text, and too large: each says what to do or what was expected."""
    with pytest.raises(
        ConfigurationError,
        match=r"tuning .*none.txt: expected a text file by rad-tune, got: .*No such file.*; name "
        r"another with --tuning, or read none with --tuning none",
    ):
        read(tmp_path / "none.txt")
    odd = tmp_path / "odd.txt"
    odd.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="expected a text file by rad-tune, got: 'utf-8'"):
        read(odd)
    with odd.open("wb") as file:
        file.truncate(2**24 + 1)
    with pytest.raises(ConfigurationError, match=r"odd.txt: expected at most 16777216 bytes"):
        read(odd)
    for other in (tmp_path, Path("/dev/zero")):
        with pytest.raises(ConfigurationError, match="expected a file, got a folder or a device"):
            read(other)


@pytest.mark.parametrize("digits", [400, 3000, 5000, 10**6])
def test_numbers_of_any_length_are_told_shortly(digits: int) -> None:
    """A gain that is no finite number, and a line too long to be read, are its line's fault."""
    line, nines = LINE.strip().partition(" | ")[0], "9" * digits
    says = "expected at most 4000 characters" if digits > 4000 else "expected GAINx YYYY-MM-DD"
    with pytest.raises(ConfigurationError, match=says) as caught:
        parse(f"{HEAD}{line} | {nines}x 2026-11-30", PATH)
    assert len(str(caught.value)) < 5000
    value = f"{HEAD}{line}{nines} | 1x 2026-11-30"
    if digits < 4000:
        assert parse(value, PATH)[1]
        return
    with pytest.raises(ConfigurationError, match=says):
        parse(value, PATH)


def test_auto_takes_this_machines_file_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is none; auto may find nothing; a file that is named has to be there."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = machine_file(HERE.processor, HERE.threads)
    assert path == tmp_path / "radiance" / "tuning" / "a-fast-one-r-2-5-2-threads.txt"
    assert machine_file("X", 1).name == "x-1-thread.txt"
    assert find_tuning("auto", HERE, []) is UNTUNED
    path.parent.mkdir(parents=True)
    path.write_text(HEAD)
    assert find_tuning("auto", HERE, []).source == path
    assert find_tuning(str(path), HERE, []).source == path
    assert find_tuning("none", HERE, []) is UNTUNED
    with pytest.raises(ConfigurationError, match="expected a text file by rad-tune"):
        find_tuning(str(tmp_path / "other.txt"), HERE, [])
