"""The file is renewed: measured places by what was found, others as they were."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from radiance_abi import ConfigurationError
from radiance_core.resolve.tuning import Choice, Machine
from radiance_core.resolve.tuning_file import read
from radiance_core.tune.written import earlier, merge, write

HERE = Machine("A Fast One", 2, {"a": "1.0", "b": "2.0"})
ONE = Choice(("mine", "a", "k"), frozenset({"n=8"}), "M", (1, None), {"ahead": 4}, 1.2,
             date(2026, 11, 30))  # fmt: skip
OTHER = replace(ONE, geometry=frozenset({"n=9"}))
FOREIGN = replace(ONE, row=("mine", "c", "k"))


def lines(choices: list[Choice]) -> list[Choice]:
    return [replace(choice, line=0) for choice in choices]


def test_a_new_file_names_the_libraries_that_were_measured(tmp_path: Path) -> None:
    """Folders are made; a library of which nothing was measured is not named."""
    path = tmp_path / "x" / "t.txt"
    write(path, *merge(HERE, earlier(path, HERE), [ONE], [ONE]))
    made_for, choices = read(path)
    assert made_for == replace(HERE, libraries={"a": "1.0"})
    assert lines(choices) == [ONE]
    assert [p.name for p in path.parent.iterdir()] == ["t.txt"]


def test_measured_places_are_replaced_and_others_stay(tmp_path: Path) -> None:
    """What was measured and is no better any more goes; a library that is not loaded keeps its."""
    path = tmp_path / "t.txt"
    write(path, replace(HERE, libraries={"a": "1.0", "c": "3"}), [ONE, OTHER, FOREIGN])
    made_for, choices = merge(HERE, earlier(path, HERE), [replace(ONE, values={})], [])
    assert sorted(map(str, lines(choices))) == sorted(map(str, [OTHER, FOREIGN]))
    assert made_for.libraries == {"a": "1.0", "c": "3"}


def test_choices_for_another_version_go(tmp_path: Path) -> None:
    """One file holds one version of a library."""
    path = tmp_path / "t.txt"
    write(path, replace(HERE, libraries={"a": "0.9"}), [ONE, OTHER])
    made_for, choices = merge(HERE, earlier(path, HERE), [ONE], [ONE])
    assert (choices, made_for.libraries) == ([ONE], {"a": "1.0"})


def test_another_machines_file_is_left_alone(tmp_path: Path) -> None:
    """It is named with both machines, before anything is measured."""
    path = tmp_path / "t.txt"
    write(path, replace(HERE, threads=8), [])
    with pytest.raises(
        ConfigurationError,
        match=r"--output .*t.txt: expected a file for A Fast One, 2 threads, abi 1, got one for A "
        r"Fast One, 8 threads, abi 1; name another file, or delete this one",
    ):
        earlier(path, HERE)


def test_a_link_stays_and_leads_to_what_was_written(tmp_path: Path) -> None:
    """What a link points to is written, also where that is not there yet; nothing is left over."""
    link, target = tmp_path / "link", tmp_path / "there" / "target"
    link.symlink_to(target)
    write(link, HERE, [])
    assert link.is_symlink()
    assert read(target) == (HERE, [])
    assert [p.name for p in target.parent.iterdir()] == ["target"]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A folder that is a file."""
    (tmp_path / "x").write_text("")
    with pytest.raises(ConfigurationError, match=r"--output .*expected a file that can be written"):
        write(tmp_path / "x" / "t.txt", HERE, [])
