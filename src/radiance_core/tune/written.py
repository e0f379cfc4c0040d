"""The file that ``rad-tune`` writes: new choices, and those that were there and still hold."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from radiance_abi.errors import ConfigurationError
from radiance_core.resolve.tuning import Choice, Machine
from radiance_core.resolve.tuning_file import read, spell, spell_place


def earlier(output: Path, here: Machine) -> tuple[Machine, list[Choice]]:
    """Return what a file that is going to be written again was made for, and its choices.

    Raises:
        ConfigurationError: the file is malformed, or another machine's.
    """
    if not output.exists():
        return here, []
    made_for, choices = read(output)
    if replace(made_for, libraries={}) != replace(here, libraries={}):
        raise ConfigurationError(
            f"--output {output}: expected a file for {_spell(here)}, got one for "
            f"{_spell(made_for)}; name another file, or delete this one"
        )
    return made_for, choices


def merge(
    here: Machine,
    before: tuple[Machine, Sequence[Choice]],
    measured: Sequence[Choice],
    chosen: Sequence[Choice],
) -> tuple[Machine, list[Choice]]:
    """Return what a new file is made for, and its choices.

    Args:
        here: this machine.
        before: what ``earlier`` gave.
        measured: one for each place that was measured, with any values.
        chosen: those of them that are to be used.
    """
    made_for, choices = before
    versions = {**made_for.libraries, **here.libraries}
    places = {spell_place(choice) for choice in measured}
    kept = [
        choice
        for choice in choices
        if made_for.libraries.get(choice.row[1]) == versions.get(choice.row[1])
        and spell_place(choice) not in places
    ]
    named = {choice.row[1] for choice in [*kept, *measured]}
    return replace(here, libraries={n: versions[n] for n in named}), [*kept, *chosen]


def write(output: Path, made_for: Machine, choices: Sequence[Choice]) -> None:
    """Write a file in place of the one that was there, or leave that one as it is.

    Where a link stands, what it points to is written.

    Raises:
        ConfigurationError: it cannot be written.
    """
    try:
        target = output.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.getpid()}.new")
        beside.write_text(spell(made_for, choices), encoding="utf-8")
        beside.replace(target)
    except (OSError, RuntimeError) as error:  # links in a circle are a RuntimeError
        raise ConfigurationError(
            f"--output {output}: expected a file that can be written, got: {error}"
        ) from error


def _spell(machine: Machine) -> str:
    return f"{machine.processor}, {machine.threads} threads, abi {machine.abi}"
