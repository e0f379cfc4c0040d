"""``radiance plugins``: every plugin, what it serves, and why it was or was not chosen."""

from collections.abc import Iterable, Sequence

from radiance_abi.errors import RadianceError
from radiance_core import discover
from radiance_core.discover import ARCHITECTURES, QUANTIZERS, Libraries, Refused

NONE_INSTALLED = "none: a model cannot run without one; the README lists kernel libraries"


def plugins_text(kernels: Sequence[str] | None) -> str:
    """Return the table; loads the named libraries, or all."""
    lines: list[str] = []
    libraries = discover.kernel_libraries(kernels)
    lines += _section("kernels", _library_lines(libraries, kernels))
    lines += _section("architectures", _offer_lines(ARCHITECTURES, lambda a: a.id))
    lines += _section("quantizers", _offer_lines(QUANTIZERS, lambda q: q.name))
    lines += _section("refused", [_refusal(r) for r in libraries.refused])
    return "\n".join(lines)


def _section(head: str, rows: Iterable[str]) -> list[str]:
    return [f"{head if i == 0 else '':<14} {row}" for i, row in enumerate(rows)]


def _library_lines(libraries: Libraries, kernels: Sequence[str] | None) -> list[str]:
    rows = []
    for library in libraries.chosen:
        ops = len({k.op for k in library.kernels})
        what = f"{library.target}: {library.about}" if library.about else library.target
        what = "reference" if library.reference else what
        if library.reference:
            why = "last resort"
        elif kernels:
            why = f"serves (named {_ordinal(list(kernels).index(library.name))})"
        else:
            why = "serves"
        rows.append(
            f"{library.name:<10} {library.version:<8} {what:<32} {len(library.kernels):>4} rows "
            f"/ {ops:>3} ops   {why}"
        )
    rows += [
        f"{f.name:<10} {f.version:<8} {'not loaded':<32} {'':>18}   off (not in --kernels)"
        for f in libraries.not_named
    ]
    return rows or [NONE_INSTALLED]


def _ordinal(index: int) -> str:
    words = ("first", "second", "third")
    return words[index] if index < len(words) else f"{index + 1}th"


def _offer_lines(group: str, name: object) -> list[str]:
    assert callable(name), "a name is read off each item"
    try:
        found = discover.offered(group, lambda item: (name(item), getattr(item, "quant", "")))
    except RadianceError as error:
        return [str(error)]
    names = sorted({f"{n}" + (f" ({q})" if q else "") for n, q in found.items})
    plugins = ", ".join(f.name for f in discover.installed(group))
    rows = [f"{', '.join(names)}   (of the plugins {plugins})"] if names else ["none installed"]
    return rows + [_refusal(r) for r in found.refused]


def _refusal(r: Refused) -> str:
    kind = "declines this machine" if r.declined else "refused"
    return f"{r.found.name:<10} {r.found.version:<8} {kind}: {r.reason}"
