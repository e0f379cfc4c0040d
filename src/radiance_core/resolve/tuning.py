"""What was measured to be faster: values for the axes of kernels, by op, geometry and band."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from radiance_abi.kernels import ABI_VERSION, Kernel, KernelLibrary
from radiance_core.graph.ir import GraphWeight, Node

Band = tuple[int, int]
Row = tuple[str, str, str]
"""Op, library and kernel."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Values of a kernel's axes at one geometry.

    Args:
        row: whose axes.
        geometry: ``facts`` of the node.
        ranged: the op's ranged param, None when it has none.
        band: ranged values that it was made for; the upper one is None where there is no end.
        values: by axis; an axis that is not here keeps its default.
        gain: how many times as fast as with the defaults.
        day: when that was measured.
        line: of the file that says so, 0 for none.
    """

    row: Row
    geometry: frozenset[str]
    ranged: str | None
    band: tuple[int, int | None]
    values: Mapping[str, int]
    gain: float
    day: date
    line: int = 0

    def covers(self, band: Band) -> bool:
        """Return whether it was made for all of a band."""
        lower, upper = self.band
        return lower <= band[0] and (upper is None or band[1] <= upper)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a measurement holds for: a processor, threads, the contract, versions of libraries."""

    processor: str
    threads: int
    libraries: Mapping[str, str]
    abi: int = ABI_VERSION


@dataclass(frozen=True, slots=True)
class Tuning:
    """Choices that may be used here.

    ``source``: the file that they come from, None when none was read; ``warnings``: what of it is
    not used, and why; ``passed_over``: how many are for a library that is not loaded, by its name.
    """

    source: Path | None = None
    choices: Mapping[Row, Sequence[Choice]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    passed_over: Mapping[str, int] = field(default_factory=dict)

    def of(self, row: Row, geometry: frozenset[str], band: Band) -> Choice | None:
        """Return the choice for a row at a geometry, None when there is none."""
        for choice in self.choices.get(row, ()):
            if choice.geometry == geometry and choice.covers(band):
                return choice
        return None


UNTUNED = Tuning()


def facts(node: Node, params: Mapping[str, int | float | str]) -> frozenset[str]:
    """Return what a choice depends on beside its row and band: params, and encodings of weights.

    Spelt as in the file: ``N=576``, ``eps=1e-05``, ``b:u4*f16[1x32]``.
    """
    return frozenset(f"{k}={spell_value(v)}" for k, v in params.items()) | {*weight_facts(node)}


def weight_facts(node: Node) -> list[str]:
    """Return the encodings of a node's weights in order, spelt as in the file."""
    return [
        f"{spelt.name}:{operand.encoding}"
        for spelt, operand in zip(node.schema.operands, node.operands, strict=False)
        if isinstance(operand, GraphWeight)
    ]


def spell_value(value: float | str) -> str:
    """Spell a param so that equal texts mean equal values."""
    return repr(value) if isinstance(value, float) else str(value)


def axes_of(kernel: Kernel, choice: Choice | None) -> dict[str, int]:
    """Return the value of every axis of a kernel: the chosen one, else the default."""
    values = {} if choice is None else choice.values
    return {axis.name: values.get(axis.name, axis.default) for axis in kernel.axes}


def fit(
    made_for: Machine,
    choices: Sequence[Choice],
    here: Machine,
    libraries: Sequence[KernelLibrary],
    source: Path,
) -> Tuning:
    """Return the choices that hold on this machine, with these libraries.

    Args:
        made_for: where they were measured.
        choices: all of a file.
        here: this machine, as it is going to serve.
        libraries: those that are loaded; choices for others are passed over and counted.
        source: the file, for warnings.
    """
    differences = list(_differences(made_for, here))
    if differences:
        told = f"{source}: {'; '.join(differences)}; {_unused(len(choices))}. Run rad-tune here."
        return Tuning(source, {}, (told,) if choices else ())
    rows = {(k.op, lib.name, k.name): k for lib in libraries for k in lib.kernels}
    used: dict[Row, list[Choice]] = {}
    warnings: list[str] = []
    for name, version in made_for.libraries.items():
        mine = here.libraries.get(name, version)
        count = sum(choice.row[1] == name for choice in choices)
        if mine != version and count:
            told = f"made with {name} {version}, this is {name} {mine}; {_unused(count)}"
            warnings.append(f"{source}: {told}. Run rad-tune again.")
    for choice in choices:
        name = choice.row[1]
        if name not in here.libraries or made_for.libraries.get(name) != here.libraries[name]:
            continue
        reason = _misfit(choice, rows.get(choice.row))
        if reason is None:
            used.setdefault(choice.row, []).append(choice)
        else:
            warnings.append(f"{source}:{choice.line}: {reason}; the line is not used.")
    passed_over = Counter(c.row[1] for c in choices if c.row[1] not in here.libraries)
    return Tuning(source, used, tuple(warnings), dict(sorted(passed_over.items())))


def _unused(count: int) -> str:
    return f"its {count} {'choice is' if count == 1 else 'choices are'} not used"


def _differences(made_for: Machine, here: Machine) -> Iterator[str]:
    pairs = (
        ("processor", made_for.processor, here.processor),
        ("threads", made_for.threads, here.threads),
        ("abi", made_for.abi, here.abi),
    )
    for name, theirs, mine in pairs:
        if theirs != mine:
            yield f"made for {name} {theirs}, this is {mine}"


def _misfit(choice: Choice, kernel: Kernel | None) -> str | None:
    """Return why a choice cannot be used with a library of the right version, or None."""
    op, library, name = choice.row
    if kernel is None:
        return f"{library} has no kernel {name} for {op}"
    axes = {axis.name: axis for axis in kernel.axes}
    for key, value in choice.values.items():
        if key not in axes:
            return f"{op} {library}.{name} has no axis {key}"
        if value not in axes[key].values:
            legal = ", ".join(map(str, axes[key].values))
            return f"axis {key} of {op} {library}.{name}: expected one of {legal}, got {value}"
    return None


def age_text(day: date, today: date) -> str:
    """Say how long ago something was measured; of a day to come, that it has not come."""
    days = (today - day).days
    if days < 0:
        return f"{day.isoformat()}, which has not come yet"
    if days == 0:
        return "today"
    return "1 day ago" if days == 1 else f"{days} days ago"
