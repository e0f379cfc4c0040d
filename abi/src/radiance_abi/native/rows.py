"""Kernel rows of a C library as ``radiance_abi.Kernel`` objects."""

from collections.abc import Mapping
from typing import Any

from radiance_abi.encoding import Encoding
from radiance_abi.errors import AbiError, KernelError
from radiance_abi.kernels import Axis, Constraint, Geometry, Kernel, Layout
from radiance_abi.native.header import ffi
from radiance_abi.native.hooks import NativeHooks, RelayoutCall
from radiance_abi.native.status import failure
from radiance_abi.native.tables import copied, string
from radiance_abi.ops import OpSchema
from radiance_abi.vocabulary import STANDARD

_MOST_ROWS = 1 << 16
_OPERATORS = ("eq", "le", "ge", "div", "in")
_DOMAINS = ("host", "device")

_rows: dict[int, NativeHooks] = {}
"""Copies of rows by the addresses that were handed out; they live as long as the process."""


def schema_of(address: int) -> OpSchema:
    """Return the schema that a C row was built against; ``address`` is ``Kernel.native``.

    Raises:
        AbiError: no loaded library has a row there.
    """
    return _hooks(address).schema


def relayout_call(
    address: int, encoding: Encoding, layout: Layout, geometry: Geometry, operand: int
) -> RelayoutCall | None:
    """Return a C row's relayout for callers in C; None where the layout needs no call.

    Args:
        address: ``Kernel.native``.
        encoding, layout, geometry, operand: as ``Kernel.relayout`` takes them.

    Raises:
        AbiError: no loaded library has a row there, or it has no relayout.
    """
    return _hooks(address).relayout_call(encoding, layout, geometry, operand)


def failed(status: int, address: int, hook: str, params: Geometry) -> KernelError:
    """Return the error for a negative status that a C caller had from a row's hook."""
    hooks = _hooks(address)
    return failure(status, hooks.schema.op, hooks.name, hook, params)


def _hooks(address: int) -> NativeHooks:
    if address not in _rows:
        raise AbiError(
            f"kernel row at {address:#x}: expected Kernel.native of a library from native.library, "
            f"got an unknown address; leave native at 0 for kernels written in Python"
        )
    return _rows[address]


def kernels(tables: Any, schemas: Mapping[str, OpSchema], subject: str) -> tuple[Kernel, ...]:
    """Return the rows of a RadLibrary in order of declaration.

    Raises:
        AbiError: a row breaks the contract; names library and row.
    """
    count = int(tables.num_kernels)
    if not 0 <= count <= _MOST_ROWS or (count and not tables.kernels):
        raise AbiError(
            f"{subject}: expected num_kernels rows in kernels, got {count} at {tables.kernels}; "
            f"set both or neither"
        )
    if count == 0:
        return ()
    # A library's array is spaced by its own sizeof(RadKernel), which may differ from this core's.
    spacing = int(tables.kernels[0].struct_bytes)
    start = ffi().cast("char *", tables.kernels)
    made: dict[tuple[str, str], Kernel] = {}
    for i in range(count):
        source = ffi().cast("RadKernel *", start + i * spacing)
        where = f"{subject}: kernel row {i}"
        if source.struct_bytes != spacing:
            raise AbiError(
                f"{where}: expected struct_bytes {spacing} as in row 0, got {source.struct_bytes}; "
                f"begin every row with RAD_KERNEL"
            )
        row = copied("RadKernel", source, spacing, "run", where)
        kernel = _kernel(row, schemas, where)
        if made.setdefault((kernel.op, kernel.name), kernel) is not kernel:
            raise AbiError(
                f"{where}: expected one row named {kernel.name} for {kernel.op}, got a second; "
                f"rename it"
            )
    return tuple(made.values())


def _kernel(row: Any, schemas: Mapping[str, OpSchema], where: str) -> Kernel:
    op = string(row.op, f"{where}: op")
    name = string(row.name, f"{where}: name of a kernel for {op}")
    where = f"{where} ({op} {name})"
    if not row.run:
        raise AbiError(f"{where}: expected a run hook, got NULL; set .run")
    schema = schemas.get(op) or STANDARD.get(op)
    if schema is None:
        raise AbiError(
            f"{where}: expected a standard op or one in the library's schemas, got {op!r}; "
            f"add its schema line to RadLibrary.schemas"
        )
    if not 0 <= row.domain < len(_DOMAINS):
        raise AbiError(f"{where}: expected domain RAD_HOST or RAD_DEVICE_DOMAIN, got {row.domain}")
    hooks = NativeHooks(row, name, schema)
    address = int(ffi().cast("uintptr_t", row))
    _rows[address] = hooks
    stores = bool(row.layout)
    return Kernel(
        op=op,
        name=name,
        run=hooks.run_range if row.tiles else hooks.run_whole,
        where=_constraints(row, where),
        domain=_DOMAINS[row.domain],
        priority=int(row.priority),
        axes=_axes(row, where),
        tiles=hooks.tiles if row.tiles else None,
        layout=hooks.layout if stores else None,
        relayout=hooks.relayout if stores else None,
        unrelayout=hooks.unrelayout if stores and (row.unrelayout or not row.relayout) else None,
        init=hooks.init if row.init else None,
        fini=hooks.fini if row.fini else None,
        scratch=hooks.scratch if row.scratch else None,
        replaces=string(row.replaces, f"{where}: replaces") if row.replaces else None,
        describe=string(row.describe, f"{where}: describe") if row.describe else None,
        native=address,
    )


def _constraints(row: Any, where: str) -> tuple[Constraint, ...]:
    if row.num_where < 0 or (row.num_where and not row.where):
        raise AbiError(
            f"{where}: expected num_where constraints, got {row.num_where} at {row.where}"
        )
    made = []
    for c in row.where[0 : row.num_where] if row.num_where else ():
        key = string(c.key, f"{where}: key of a constraint")
        if not 0 <= c.op < len(_OPERATORS):
            raise AbiError(f"{where}: expected RAD_EQ .. RAD_IN_OP on {key}, got {c.op}")
        words = tuple(string(c.set, f"{where}: set of {key}").split()) if c.op == 4 else ()
        made.append(Constraint(key, _OPERATORS[c.op], int(c.value), words))
    return tuple(made)


def _axes(row: Any, where: str) -> tuple[Axis, ...]:
    if row.num_axes < 0 or (row.num_axes and not row.axes):
        raise AbiError(f"{where}: expected num_axes axes, got {row.num_axes} at {row.axes}")
    made = []
    for axis in row.axes[0 : row.num_axes] if row.num_axes else ():
        name = string(axis.name, f"{where}: name of an axis")
        if not 0 <= axis.default_index < axis.num_values or not axis.values:
            raise AbiError(
                f"{where}: axis {name}: expected default_index inside its values, got index "
                f"{axis.default_index} of {axis.num_values}"
            )
        values = tuple(int(v) for v in axis.values[0 : axis.num_values])
        made.append(Axis(name, values, values[axis.default_index]))
    return tuple(made)
