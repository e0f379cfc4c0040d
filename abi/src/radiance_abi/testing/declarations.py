"""Is what a library declares well formed? Nothing is run."""

import re
from collections.abc import Iterator, Mapping

from radiance_abi.errors import AbiError
from radiance_abi.kernels import ABI_VERSION, Constraint, Kernel, KernelLibrary
from radiance_abi.ops import OpSchema, parse_schema
from radiance_abi.vocabulary import STANDARD

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_OPERATORS = ("eq", "le", "ge", "div", "in")


def schemas_of(library: KernelLibrary) -> dict[str, OpSchema]:
    """Return standard schemas and those of the library that parse."""
    found = dict(STANDARD)
    for line in library.schemas:
        try:
            own = parse_schema(line)
        except AbiError:
            continue
        found.setdefault(own.op, own)
    return found


def faults(library: KernelLibrary) -> Iterator[str]:
    """Yield what is wrong with the library's name, version, schemas and rows."""
    if library.abi_version != ABI_VERSION:
        yield (
            f"abi_version: built for ABI {library.abi_version}, this is ABI {ABI_VERSION}; "
            "build it against this radiance-abi"
        )
    if not _NAME.fullmatch(library.name):
        yield f"name: expected lower-case letters, digits and '_', got {library.name!r}"
    yield from _schema_faults(library)
    schemas = schemas_of(library)
    seen: set[tuple[str, str]] = set()
    for kernel in library.kernels:
        subject = f"{kernel.op} {kernel.name}"
        if (kernel.op, kernel.name) in seen:
            yield f"{subject}: expected one row of this name for the op, got a second; rename it"
        seen.add((kernel.op, kernel.name))
        schema = schemas.get(kernel.op)
        if schema is None:
            yield f"{subject}: expected an op with a schema; add its line to schemas"
            continue
        for fault in _row_faults(kernel, schema, schemas):
            yield f"{subject}: {fault}"


def _schema_faults(library: KernelLibrary) -> Iterator[str]:
    ops: set[str] = set()
    for line in library.schemas:
        try:
            own = parse_schema(line)
        except AbiError as error:
            yield str(error)
            continue
        standard = STANDARD.get(own.op)
        if standard is not None and standard != own:
            yield f"schema of {own.op}: expected the standard one, {standard}; got {own}"
        if own.op in ops:
            yield f"schema of {own.op}: declared twice"
        ops.add(own.op)


def well_formed(kernel: Kernel, schemas: Mapping[str, OpSchema]) -> bool:
    """Return whether a row can be run at all: its op is known and its constraints make sense."""
    schema = schemas.get(kernel.op)
    return schema is not None and not list(_row_faults(kernel, schema, schemas))


def _row_faults(kernel: Kernel, schema: OpSchema, schemas: Mapping[str, OpSchema]) -> Iterator[str]:
    if not _NAME.fullmatch(kernel.name):
        yield f"name: expected lower-case letters, digits and '_', got {kernel.name!r}"
    axes = {a.name for a in kernel.axes}
    for axis in kernel.axes:
        if schema.param(axis.name) is not None:
            yield f"axis {axis.name}: the op has a param of that name"
    for constraint in kernel.where:
        yield from _constraint_faults(constraint, schema, axes)
    if kernel.layout is not None and kernel.relayout is None:
        yield "a layout hook without relayout; add relayout and unrelayout"
    for op in (kernel.replaces or "").split("+"):
        if op and op not in schemas:
            yield f"replaces: expected ops with a schema joined by '+', got {op!r}"


def _constraint_faults(c: Constraint, schema: OpSchema, axes: set[str]) -> Iterator[str]:
    if c.op not in _OPERATORS:
        yield f"constraint on {c.key}: expected one of {', '.join(_OPERATORS)}, got {c.op!r}"
        return
    param = schema.param(c.key)
    if param is None:
        what = "an axis, which is chosen later" if c.key in axes else "no param of the op"
        known = ", ".join(p.name for p in schema.params)
        yield f"constraint {c}: {c.key} is {what}; the params are {known}"
    elif param.kind == "f":
        yield f"constraint {c}: {c.key} is a float, which no constraint matches"
    elif (c.op == "in") != (param.kind == "s"):
        kind = "a string" if param.kind == "s" else "an int"
        yield f"constraint {c}: {c.key} is {kind} param; use 'in' for strings, the others for ints"
    elif c.op == "in" and not c.words:
        yield f"constraint on {c.key}: expected at least one word"
    elif c.op == "div" and c.value <= 0:
        yield f"constraint {c}: expected a divisor above 0"
