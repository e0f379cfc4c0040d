"""Entry points: list them without importing, import each in its own try, keep no half of one."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import importlib_metadata
import pluggy

from radiance_abi import hooks
from radiance_abi.errors import RadianceError
from radiance_core.nearest import did_you_mean

KERNELS, ARCHITECTURES, QUANTIZERS = hooks.HOOK_OF_GROUP


class PluginError(RadianceError):
    """A plugin cannot be used; the text names distribution, entry point and cause."""


@dataclass(frozen=True, slots=True)
class Found:
    """An installed entry point, not yet imported."""

    group: str
    name: str
    distribution: str
    version: str
    entry: Any

    def __str__(self) -> str:
        return f"plugin {self.name} ({self.distribution} {self.version})"


@dataclass(frozen=True, slots=True)
class Refused:
    """A plugin that was not taken, and why; ``declined`` when it was by its own word."""

    found: Found
    reason: str
    declined: bool = False


def installed(group: str) -> list[Found]:
    """List the entry points of a group by name; imports nothing."""
    found = [
        Found(group, e.name, e.dist.name if e.dist else "?", e.dist.version if e.dist else "?", e)
        for e in _all_installed(_where()).select(group=group)
    ]
    unique = {(f.name, f.distribution, f.entry.value): f for f in found}
    return sorted(unique.values(), key=lambda f: (f.name, f.distribution))


def _where() -> tuple[tuple[str, int], ...]:
    """Return the folders that are looked into, and when something came or went there."""
    return tuple((p, Path(p).stat().st_mtime_ns) for p in sys.path if Path(p).is_dir())


@lru_cache(maxsize=1)
def _all_installed(_: tuple[tuple[str, int], ...]) -> importlib_metadata.EntryPoints:
    """Read the metadata of everything that is installed: once for all groups."""
    return importlib_metadata.entry_points()


def load(found: Found) -> list[Any]:
    """Import one plugin and return what its hook yields.

    Raises:
        PluginError: it raises at import or in its hook, has no hook, or a misspelt one; nothing
            of it stays registered.
    """
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    hook = hooks.HOOK_OF_GROUP[found.group]
    with _named(found, "raised at import"):
        module = found.entry.load()
    with _named(found, "could not be registered"):
        manager.register(module, found.name)
        _check_spelling(manager, found, module)
    impls = [i for i in getattr(manager.hook, hook).get_hookimpls() if i.plugin is module]
    if not impls:
        raise PluginError(
            f"{found}: entry point {found.group}: expected {found.entry.value} to implement "
            f"{hook} with @radiance_abi.hookimpl, got none; add it or remove the entry point"
        )
    with _named(found, f"raised in {hook}"):
        return [item for impl in impls for item in impl.function()]


@contextmanager
def _named(found: Found, what: str) -> Iterator[None]:
    """Turn whatever a plugin raises into an error that names it."""
    try:
        yield
    except PluginError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # SystemExit included: a plugin must not be able to end the program.
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise PluginError(
            f"{found}: entry point {found.group}:{found.name} = {found.entry.value} {what}: "
            f"{cause}. Fix or uninstall {found.distribution}, or leave it out with --kernels."
        ) from error


def _check_spelling(manager: pluggy.PluginManager, found: Found, module: object) -> None:
    """Refuse hook implementations that no specification has, and unmarked look-alikes."""
    specs = set(hooks.HOOK_OF_GROUP.values())
    for name in dir(module):
        if not name.startswith("radiance_") or name in specs:
            continue
        if getattr(getattr(module, name), f"{hooks.PROJECT}_impl", None) is not None:
            raise PluginError(
                f"{found}: hook {name!r} does not exist{did_you_mean(name, specs) or '.'} "
                f"The hooks are {', '.join(sorted(specs))}."
            )
    manager.check_pending()


def refuse_twins(kind: str, found: Iterable[Found]) -> None:
    """Require that no two distributions claim one entry-point name.

    Raises:
        PluginError: names both.
    """
    seen: dict[str, Found] = {}
    for f in found:
        other = seen.setdefault(f.name, f)
        if other is not f:
            raise PluginError(
                f"{kind} {f.name}: claimed by {other.distribution} {other.version} and by "
                f"{f.distribution} {f.version}; uninstall one of them"
            )


@dataclass(frozen=True, slots=True)
class Offered:
    """Things that plugins of one group offer, by key, and what was refused."""

    items: Mapping[Any, Any]
    owners: Mapping[Any, Found]
    refused: tuple[Refused, ...]


def offered(group: str, key: Callable[[Any], Any]) -> Offered:
    """Load every plugin of a group; two that offer one key are refused, both named.

    Raises:
        PluginError: one key is offered twice.
    """
    items: dict[Any, Any] = {}
    owners: dict[Any, Found] = {}
    refused: list[Refused] = []
    for f in installed(group):
        try:
            mine = load(f)
        except PluginError as error:
            refused.append(Refused(f, str(error)))
            continue
        for item in mine:
            k = key(item)
            if k in owners:
                raise PluginError(
                    f"{group.rpartition('.')[2]} {k}: claimed by {owners[k].distribution} "
                    f"{owners[k].version} and by {f.distribution} {f.version}; uninstall one of "
                    "them"
                )
            items[k], owners[k] = item, f
    return Offered(items, owners, tuple(refused))


def architectures() -> Offered:
    """Load all architectures, by (id, quant)."""
    return offered(ARCHITECTURES, lambda a: (a.id, a.quant))


@cache
def core_version() -> str:
    """Return the installed version of radiance."""
    return str(importlib_metadata.version("radiance"))
