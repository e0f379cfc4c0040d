"""Command-line options, made from the table of settings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from radiance_core.config import Config, load_config
from radiance_core.settings import BY_NAME, SETTINGS, Setting, SettingValue

Command = Callable[..., Any]
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)  # here, or before the command
# What is read when the model is there, and must be known to be right before that takes its time.
_READ_LATE = ("generation-config", "default-max-tokens", "dry-sequence-breakers")


def setting_options(*names: str) -> Callable[[Command], Command]:
    """Decorate a command with ``--config`` and the options of the named settings, or of all."""
    chosen = [BY_NAME[n] for n in names] if names else list(SETTINGS)

    def decorate(command: Command) -> Command:
        for s in reversed(chosen):
            command = _option(s)(command)
        return click.option(
            "--config",
            "config_file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="TOML file of settings  [default: radiance.toml here, when there is one]",
        )(command)

    return decorate


def _option(s: Setting) -> Callable[[Command], Command]:
    default = "" if s.default in (None, (), False) else f"  [default: {s.default}]"
    text = f"{s.help}{default}"
    if s.kind == "bool":
        return click.option(f"--{s.name}", is_flag=True, default=False, help=text)
    kinds = {"int": click.INT, "float": click.FLOAT}
    kind = kinds.get(s.kind, click.STRING)
    return click.option(f"--{s.name}", type=kind, default=None, metavar=s.kind.upper(), help=text)


def given(context: click.Context, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that the command line gave, by their names in Python."""
    return {k: v for k, v in params.items() if context.get_parameter_source(k) in _GIVEN}


def hand_down(context: click.Context, group: click.Group, params: Mapping[str, Any]) -> None:
    """Give the command that was called what stands before it; its own flags go before that.

    Raises:
        click.UsageError: the command does not take one; names those that do.
    """
    name = str(context.invoked_subcommand)
    command = group.commands[name]
    handed = given(context, params)
    for key in handed:
        if key not in _taken(command):
            takers = ", ".join(_spelt(c) for c in group.commands.values() if key in _taken(c))
            raise click.UsageError(
                f"{_flag(key)}: expected a setting that `radiance {name}` takes, got one that it "
                f"does not; serving takes it{f', and so do: {takers}' if takers else ''}.", context,
            )  # fmt: skip
    inner = command.commands if isinstance(command, click.Group) else None
    context.default_map = {name: handed if inner is None else dict.fromkeys(inner, handed)}


def _taken(command: click.Command) -> set[str | None]:
    if isinstance(command, click.Group):
        return {p.name for inner in command.commands.values() for p in inner.params}
    return {p.name for p in command.params}


def _spelt(command: click.Command) -> str:
    inner = command.commands if isinstance(command, click.Group) else ()
    return " ".join([str(command.name), *inner])


def _flag(key: str) -> str:
    return "--config" if key == "config_file" else f"--{key.replace('_', '-')}"


def config_of(context: click.Context, params: Mapping[str, Any]) -> Config:
    """Return the effective settings of a command that was called with ``params``."""
    flags: dict[str, SettingValue] = {}
    for key, value in given(context, params).items():
        name = key.replace("_", "-")
        if name not in BY_NAME:
            continue
        if BY_NAME[name].kind == "list":
            parts = (part.strip() for part in str(value).split(","))
            flags[name] = tuple(part for part in parts if part)
        else:
            flags[name] = value
    config = load_config(flags, params.get("config_file"))
    if any(config.sources[name] != "default" for name in _READ_LATE):
        from radiance_core.cli.sampling_defaults import given_defaults

        given_defaults(config)
    return config
