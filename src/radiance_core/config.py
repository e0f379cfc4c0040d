"""Settings: flag, else environment, else file, else default; the only reader of the last three.

What settings there are stands in ``settings``.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from radiance_abi.errors import ConfigurationError
from radiance_core.nearest import did_you_mean
from radiance_core.settings import BY_NAME, SETTINGS, Setting, SettingValue

DEFAULT_FILE = "radiance.toml"


_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list of texts",
}


@dataclass(frozen=True, slots=True)
class Config:
    """Effective values and where each came from.

    A source is "command line", "environment RADIANCE_X", "file:line" or "default".
    """

    values: Mapping[str, SettingValue]
    sources: Mapping[str, str]

    def text(self, name: str) -> str:
        """Return a string setting."""
        value = self.values[name]
        assert isinstance(value, str), f"{name} is a string"
        return value

    def number(self, name: str) -> int:
        """Return an int setting."""
        value = self.values[name]
        assert isinstance(value, int), f"{name} is an int"
        return value

    def real(self, name: str) -> float:
        """Return a float setting."""
        value = self.values[name]
        assert isinstance(value, int | float), f"{name} is a number"
        return float(value)

    def flag(self, name: str) -> bool:
        """Return a bool setting."""
        return self.values[name] is True

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list setting; empty when unset."""
        value = self.values[name]
        return value if isinstance(value, tuple) else ()


def load_config(
    flags: Mapping[str, SettingValue],
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Merge flags, environment and file over the defaults.

    Args:
        flags: what the command line gave, by setting name; only given ones.
        file: ``--config``; None takes radiance.toml of the working folder when there is one.
        environment: None for the process's own.

    Raises:
        ConfigurationError: an unknown key (with the nearest one), a wrong type, a value out of
            bounds, an unreadable file; names where it stands.
    """
    environment = os.environ if environment is None else environment
    from_file = _read_file(file)
    values: dict[str, SettingValue] = {}
    sources: dict[str, str] = {}
    for s in SETTINGS:
        if s.name in flags:
            values[s.name], sources[s.name] = flags[s.name], "command line"
        elif s.variable in environment:
            where = f"environment {s.variable}"
            values[s.name], sources[s.name] = _parse(s, environment[s.variable], where), where
        elif s.name in from_file:
            value, where = from_file[s.name]
            values[s.name], sources[s.name] = _typed(s, value, where), where
        else:
            values[s.name], sources[s.name] = s.default, "default"
        values[s.name] = _as_chosen(s, values[s.name])
        _check_bounds(s, values[s.name], sources[s.name])
        if s.secret and not values[s.name] and sources[s.name] != "default":
            # A variable that was meant to hold a key and is empty must not open the server.
            raise ConfigurationError(
                f"{sources[s.name]}: {s.name}: expected one or more, got none; give a key, or "
                "leave the setting out"
            )
    return Config(values, sources)


def spell(value: SettingValue) -> str:
    """Spell a value as radiance.toml has it; the parts of a list without their brackets."""
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def strange_variables() -> list[str]:
    """Name variables that look like settings and are none; other programs may mean them."""
    known = [s.variable for s in SETTINGS]
    return [
        f"environment {name} is no setting{did_you_mean(name, known)}"
        for name in sorted(os.environ)
        if name.startswith("RADIANCE_") and name not in known
    ]


def hold_back_matrix_threads() -> None:
    """Have numpy's matrix library start no threads, unless the environment says how many.

    It starts one for every processor when it is loaded, and each spins for a while. Kernels have
    threads of their own, and nothing is multiplied with numpy.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def draws_on_terminal() -> bool:
    """Return whether the terminal, if there is one, is of a kind whose lines can be redrawn."""
    return os.environ.get("TERM", "dumb") != "dumb"


def _read_file(file: Path | None) -> dict[str, tuple[object, str]]:
    """Return key to (value, "file:line")."""
    path = file or Path(DEFAULT_FILE)
    if file is None and not path.is_file():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"--config {path}: expected a TOML file: {error}") from error
    found: dict[str, tuple[object, str]] = {}
    for key, value in table.items():
        where = f"{path}:{_line_of(text, key)}"
        name = key.replace("_", "-")
        if name not in BY_NAME:
            raise ConfigurationError(
                f"{where}: unknown setting {key!r}{did_you_mean(name, BY_NAME) or '.'} "
                "`radiance --help` lists all."
            )
        found[name] = (value, where)
    return found


def _line_of(text: str, key: str) -> int:
    for number, line in enumerate(text.splitlines(), 1):
        if line.split("=")[0].strip().strip("[]\"' ") == key:
            return number
    return 1


def _parse(s: Setting, text: str, where: str) -> SettingValue:
    """Turn text from the environment into a value."""
    if s.kind == "list":
        return tuple(part for part in (p.strip() for p in text.split(",")) if part)
    if s.kind == "bool":
        words = dict.fromkeys(("1", "true", "yes"), True)
        words |= dict.fromkeys(("0", "false", "no", ""), False)
        if text.lower() not in words:
            raise ConfigurationError(f"{where}: {s.name}: expected true or false, got {text!r}")
        return words[text.lower()]
    if s.kind == "str":
        return text
    try:
        return int(text) if s.kind == "int" else float(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{where}: {s.name}: expected {_KINDS[s.kind]}, got {text!r}"
        ) from error


def _typed(s: Setting, value: object, where: str) -> SettingValue:
    """Check a value that has a type of its own, from a file."""
    if s.kind == "list":
        items = value.split(",") if isinstance(value, str) else value
        if isinstance(items, list) and all(isinstance(i, str) for i in items):
            return tuple(i.strip() for i in items if i.strip())
    elif s.kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    else:
        kind = {"str": str, "int": int, "float": float, "bool": bool}[s.kind]
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            assert isinstance(value, str | int | float | bool), "TOML scalars"
            return value
    shown = "a value of another type" if s.secret else repr(value)
    raise ConfigurationError(f"{where}: {s.name}: expected {_KINDS[s.kind]}, got {shown}")


def _as_chosen(s: Setting, value: SettingValue) -> SettingValue:
    """Return a choice as it is listed, however its letters were written."""
    folded = value.casefold() if isinstance(value, str) else value
    return folded if folded in s.choices else value


def _check_bounds(s: Setting, value: SettingValue, where: str) -> None:
    if s.choices and value not in s.choices:
        raise ConfigurationError(
            f"{where}: {s.name}: expected {', '.join(s.choices)}, got {value!r}"
            f"{did_you_mean(str(value), s.choices)}"
        )
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low, high = s.least, s.most
    if low is None or high is None:
        return
    # Written so that a value that is not a number is outside.
    if not low <= value <= high:
        raise ConfigurationError(f"{where}: {s.name}: expected {low:g} to {high:g}, got {value}")
