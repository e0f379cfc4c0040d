"""The file of choices that ``rad-tune`` writes, one for each machine; people may edit it.

    processor: AMD EPYC 9R14
    threads: 2
    abi: 1
    library: libfast 0.1.0

    OP LIBRARY.KERNEL M=1..8 N=576 K=576 b:bf16 -> AXIS=VALUE AXIS=VALUE | 1.06x 2026-11-30

Lines that begin with # and empty lines say nothing. The order of facts, axes and lines is free.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path

from radiance_abi.errors import ConfigurationError
from radiance_abi.kernels import KernelLibrary
from radiance_core.resolve.tuning import UNTUNED, Choice, Machine, Tuning, fit

AUTO, NONE = "auto", "none"
_HEADS = ("processor", "threads", "abi", "library")
# Patterns are compiled when a file is read, which most starts do not.
_BAND = r"([A-Za-z_]\w*)=(\d+)\.\.(\d*)"
_AXIS = r"([A-Za-z_]\w*)=(-?\d+)"
_MADE = r"(\d+(?:\.\d+)?)x (\d{4}-\d\d-\d\d)"
_MOST_BYTES = 2**24
_MOST_CHARACTERS = 4000  # of a line; numbers of that length can be read


def machine_file(processor: str, threads: int) -> Path:
    """Return where this user's choices for a machine are kept, whether they are there or not."""
    from platformdirs import user_config_path

    words = re.findall(r"[a-z0-9]+", processor.lower())
    name = "-".join([*words, str(threads), "thread" if threads == 1 else "threads"])
    return user_config_path("radiance", appauthor=False) / "tuning" / f"{name}.txt"


def find_tuning(named: str, here: Machine, libraries: Sequence[KernelLibrary]) -> Tuning:
    """Return the choices to serve with.

    Args:
        named: a file, "none", or "auto" for the file of this machine where there is one.
        here: this machine, as it is going to serve.
        libraries: those that are loaded.

    Raises:
        ConfigurationError: the file cannot be read or is malformed; names file and line.
    """
    if named == NONE:
        return UNTUNED
    path = machine_file(here.processor, here.threads) if named == AUTO else Path(named).expanduser()
    if named == AUTO and not path.is_file():
        return UNTUNED
    made_for, choices = read(path)
    return fit(made_for, choices, here, libraries, path)


def read(path: Path) -> tuple[Machine, list[Choice]]:
    """Return what a file was made for, and its choices in order.

    Raises:
        ConfigurationError: it cannot be read or is malformed; names file and line.
    """
    try:
        if path.exists() and not path.is_file():
            raise ConfigurationError(f"tuning {path}: expected a file, got a folder or a device")
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigurationError(f"tuning {path}: expected at most {_MOST_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"tuning {path}: expected a text file by rad-tune, got: {error}; name another with "
            "--tuning, or read none with --tuning none"
        ) from error
    return parse(text, path)


def parse(text: str, path: Path) -> tuple[Machine, list[Choice]]:
    """Return what ``read`` returns, of a text."""
    heads: dict[str, tuple[str, int]] = {}
    libraries: dict[str, str] = {}
    choices: list[Choice] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if len(line) > _MOST_CHARACTERS:
            raise _malformed(
                path, number, f"at most {_MOST_CHARACTERS} characters", f"{len(line)} of them"
            )
        head, colon, value = line.partition(": ")
        if colon and head in _HEADS:
            if head == "library":
                name, _, version = value.strip().partition(" ")
                libraries[name] = version.strip()
            else:
                heads[head] = value.strip(), number
            continue
        choices.append(_choice(line, path, number))
    for head in ("processor", "threads", "abi"):
        if head not in heads:
            raise _malformed(path, 1, f"a line '{head}: ...'", "none in the file")
    threads, abi = (_whole(name, *heads[name], path) for name in ("threads", "abi"))
    return Machine(heads["processor"][0], threads, libraries, abi), choices


def spell(made_for: Machine, choices: Iterable[Choice]) -> str:
    """Spell a whole file."""
    heads = [
        "# Written by rad-tune, read when a model is served here. One choice a line; edit at will.",
        f"processor: {made_for.processor}",
        f"threads: {made_for.threads}",
        f"abi: {made_for.abi}",
        *(f"library: {name} {version}" for name, version in sorted(made_for.libraries.items())),
    ]
    return "\n".join([*heads, "", *sorted(map(spell_choice, choices)), ""])


def spell_choice(choice: Choice) -> str:
    """Spell one line."""
    values = " ".join(f"{axis}={value}" for axis, value in sorted(choice.values.items()))
    return f"{spell_place(choice)} -> {values} | {choice.gain:.3f}x {choice.day.isoformat()}"


def spell_place(choice: Choice) -> str:
    """Spell what a choice is for."""
    op, library, kernel = choice.row
    lower, upper = choice.band
    band = [] if choice.ranged is None else [f"{choice.ranged}={lower}..{upper or ''}"]
    return " ".join([op, f"{library}.{kernel}", *band, *sorted(choice.geometry)])


def _choice(line: str, path: Path, number: int) -> Choice:
    place, arrow, rest = line.partition(" -> ")
    values, bar, made = rest.partition(" | ")
    if not arrow or not bar:
        raise _malformed(
            path, number, "OP LIBRARY.KERNEL FACTS -> AXIS=VALUE | GAINx YYYY-MM-DD", repr(line)
        )
    op, _, facts = place.strip().partition(" ")
    row, *geometry = facts.split() or [""]
    library, dot, kernel = row.partition(".")
    if not op or not library or not dot or not kernel:
        raise _malformed(path, number, "OP LIBRARY.KERNEL before the facts", repr(place))
    bands = [found for word in geometry if (found := re.fullmatch(_BAND, word))]
    if len(bands) > 1:
        raise _malformed(path, number, "one fact with a range", " ".join(b[0] for b in bands))
    rest_of = frozenset(word for word in geometry if not re.fullmatch(_BAND, word))
    for word in rest_of:
        if not re.fullmatch(r"[A-Za-z_]\w*[=:].+", word):
            raise _malformed(path, number, "facts as PARAM=VALUE or WEIGHT:ENCODING", repr(word))
    ranged, lower, upper = bands[0].groups() if bands else (None, 1, None)
    band = (int(lower), int(upper) if upper else None)
    gain, day = _made(made, path, number)
    return Choice(
        (op, library, kernel), rest_of, ranged, band,
        dict(_values(values, path, number)), gain, day, number,
    )  # fmt: skip


def _values(text: str, path: Path, number: int) -> Iterator[tuple[str, int]]:
    words = text.split()
    if not words:
        raise _malformed(path, number, "AXIS=VALUE after ->", "nothing")
    for word in words:
        found = re.fullmatch(_AXIS, word)
        if found is None:
            raise _malformed(path, number, "AXIS=VALUE with a whole number", repr(word))
        yield found[1], int(found[2])


def _made(text: str, path: Path, number: int) -> tuple[float, date]:
    found = re.fullmatch(_MADE, text.strip())
    try:
        if found is not None and math.isfinite(float(found[1])):
            return float(found[1]), date.fromisoformat(found[2])
    except ValueError:
        pass
    raise _malformed(path, number, "GAINx YYYY-MM-DD at the end, as 1.06x 2026-11-30", repr(text))


def _whole(name: str, text: str, number: int, path: Path) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise _malformed(path, number, f"a whole number after '{name}:'", repr(text))
    return int(text)


def _malformed(path: Path, line: int, expected: str, got: str) -> ConfigurationError:
    return ConfigurationError(
        f"tuning {path}:{line}: expected {expected}, got {got}; correct the line, or "
        "delete the file and run rad-tune again"
    )
