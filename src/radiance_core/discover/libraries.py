"""Kernel libraries: which are loaded, in which order, and the ops that they know together."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from radiance_abi.errors import AbiError, RadianceError
from radiance_abi.kernels import ABI_VERSION, KernelLibrary
from radiance_abi.ops import OpSchema, parse_schema
from radiance_abi.vocabulary import STANDARD
from radiance_core.discover.entry_points import (
    KERNELS,
    Found,
    PluginError,
    Refused,
    installed,
    load,
    refuse_twins,
)
from radiance_core.nearest import did_you_mean


@dataclass(frozen=True, slots=True)
class Libraries:
    """Kernel libraries in order of preference, the ops they know, and what was left out."""

    chosen: tuple[KernelLibrary, ...]
    schemas: Mapping[str, OpSchema]
    distributions: Mapping[str, str]
    refused: tuple[Refused, ...]
    not_named: tuple[Found, ...]


def kernel_libraries(wanted: Sequence[str] | None, option: str = "--kernels") -> Libraries:
    """Load kernel libraries in order: as named, else all by name with reference ones last.

    Args:
        wanted: names from an option; a library that is not named is not imported. None takes all.
        option: which one that is, for messages.

    Raises:
        PluginError: a wanted name is not installed or is broken; two libraries with one id; two
            different schemas of one op among wanted ones.
    """
    found = installed(KERNELS)
    by_name: dict[str, list[Found]] = {}
    for f in found:
        by_name.setdefault(f.name, []).append(f)
    _check_wanted(wanted or (), by_name, option)
    order = [f for name in (wanted or sorted(by_name)) for f in by_name[name]]
    refuse_twins("kernel library", order)
    chosen: list[KernelLibrary] = []
    refused: list[Refused] = []
    owners: dict[str, Found] = {}
    schemas: dict[str, OpSchema] = dict(STANDARD)
    schema_owner: dict[str, str] = {}
    for f in order:
        try:
            for library in _checked(f, load(f)):
                if library.declined is not None:
                    raise _DeclinedError(library.declined)
                _claim(library.name, f, owners)
                _merge_schemas(library, f, schemas, schema_owner)
                chosen.append(library)
        except _DeclinedError as error:
            refused.append(Refused(f, str(error), declined=True))
        except RadianceError as error:
            if wanted:
                raise
            refused.append(Refused(f, str(error)))
    if wanted is None:
        chosen.sort(key=lambda lib: lib.reference)
    missing = [r for r in refused if r.declined and wanted]
    if missing and not chosen:
        raise PluginError(
            "; ".join(f"{r.found}: declines this machine: {r.reason}" for r in missing)
            + f". Name another library with {option}."
        )
    return Libraries(
        tuple(chosen),
        schemas,
        {name: f.distribution for name, f in owners.items()},
        tuple(refused),
        tuple(f for f in found if wanted and f.name not in wanted),
    )


def serving(found: Sequence[Found]) -> dict[str, list[str]]:
    """Return, by op, which libraries of some plugins serve it; reference ones do not count.

    Imports them, so this is only for when nothing is going to be served.
    """
    served: dict[str, list[str]] = {}
    for each in found:
        try:
            mine = _checked(each, load(each))
        except PluginError:
            continue
        for library in mine:
            if library.declined is None and not library.reference:
                for op in dict.fromkeys(kernel.op for kernel in library.kernels):
                    served.setdefault(op, []).append(library.name)
    return served


class _DeclinedError(RadianceError):
    """A library says that it does not serve this machine."""


def _check_wanted(wanted: Sequence[str], by_name: Mapping[str, list[Found]], option: str) -> None:
    for name in wanted:
        if name not in by_name:
            raise PluginError(
                f"{option}: library {name!r} is not installed{did_you_mean(name, by_name) or '.'} "
                f"Installed: {', '.join(sorted(by_name)) or 'none'}. Correct the name, or install "
                "the package that has it."
            )
    twice = next((n for n in wanted if list(wanted).count(n) > 1), None)
    if twice is not None:
        raise PluginError(f"{option}: {twice!r} is named twice; name each library once")


def _checked(found: Found, items: Sequence[Any]) -> list[KernelLibrary]:
    for item in items:
        version = getattr(item, "abi_version", None)
        if version is not None and version != ABI_VERSION:
            raise PluginError(
                f"{found}: built for ABI {version}, this is ABI {ABI_VERSION}. Rebuild it, or "
                f"install radiance-abi {version}."
            )
        if not isinstance(item, KernelLibrary):
            raise PluginError(
                f"{found}: expected the hook to yield KernelLibrary objects, got "
                f"{type(item).__name__}"
            )
        if not re.fullmatch(r"[a-z][a-z0-9_]*", item.name):
            raise PluginError(
                f"{found}: library id {item.name!r}: expected lower-case letters, digits and _"
            )
    return list(items)


def _claim(name: str, found: Found, owners: dict[str, Found]) -> None:
    other = owners.get(name)
    if other is not None:
        raise PluginError(
            f"kernel library id {name}: claimed by {other.distribution} ({other.entry.value}) and "
            f"by {found.distribution} ({found.entry.value}); uninstall one of them"
        )
    owners[name] = found


def _merge_schemas(
    library: KernelLibrary, found: Found, schemas: dict[str, OpSchema], owner: dict[str, str]
) -> None:
    """Add a library's schemas, all or none."""
    fresh: dict[str, OpSchema] = {}
    for line in library.schemas:
        try:
            schema = parse_schema(line)
        except AbiError as error:
            raise PluginError(f"{found}: {error}") from error
        known = schemas.get(schema.op)
        if known is not None and known != schema:
            raise PluginError(
                f"{found}: op {schema.op}: its schema differs from that of "
                f"{owner.get(schema.op, 'the standard vocabulary')}: {schema} against {known}; "
                "the whole library is refused. Rename the op or match the schema."
            )
        fresh[schema.op] = schema
    for kernel in library.kernels:
        schema_of = fresh.get(kernel.op) or schemas.get(kernel.op)
        if schema_of is None:
            raise PluginError(
                f"{found}: kernel {kernel.name}: op {kernel.op!r} has no schema"
                f"{did_you_mean(kernel.op, [*schemas, *fresh]) or '.'} Give the library a schema "
                "line for it."
            )
        for c in kernel.where:
            if schema_of.param(c.key) is None:
                raise PluginError(
                    f"{found}: kernel {kernel.name}: constraint on {c.key!r}, which is no param of "
                    f"{kernel.op}{did_you_mean(c.key, [p.name for p in schema_of.params])}"
                )
    schemas.update(fresh)
    owner.update(dict.fromkeys(fresh, str(found)))
