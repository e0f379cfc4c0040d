"""Python values as the C structs of the contract.

Each function returns the struct together with (or tied to) everything that it points at; cffi frees
what nobody holds.
"""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from radiance_abi.dtypes import dtype, dtype_of_dlpack, dtype_of_numpy
from radiance_abi.encoding import Encoding
from radiance_abi.errors import AbiError
from radiance_abi.kernels import Geometry, Layout
from radiance_abi.native.header import ffi
from radiance_abi.ops import OpSchema
from radiance_abi.tensor import Tensor

AS_IS = "plain"
"""Layout name of a weight whose kernel takes the single plane of a plain encoding where it lies."""

Kept = tuple[Any, Any]
"""A C struct (or pointer) and what must outlive it."""

_INT, _FLOAT, _STR = 0, 1, 2
KINDS = {"i": _INT, "f": _FLOAT, "s": _STR}


@cache
def text(value: str) -> Any:
    """Return ``value`` as a C string that is never freed; params, roles and dtype names are few."""
    return ffi().new("char[]", value.encode())


def address(pointer: Any) -> int:
    """Return where a C pointer points."""
    return int(ffi().cast("uintptr_t", pointer))


def set_value(union: Any, kind: int, value: object) -> None:
    """Fill a RadValue; None is the zero of its kind."""
    if kind == _INT:
        union.i = 0 if value is None else int(value)  # type: ignore[call-overload]
    elif kind == _FLOAT:
        union.f = 0.0 if value is None else float(value)  # type: ignore[arg-type]
    else:
        union.s = ffi().NULL if value is None else text(str(value))


def kind_of(value: object) -> int:
    """Return the RAD_ kind of a param's value where no schema says it."""
    return _STR if isinstance(value, str) else _FLOAT if isinstance(value, float) else _INT


def geometry(schema: OpSchema, given: Geometry) -> Kept:
    """Return a RadGeometry: the schema's params in its order, then the others (axes)."""
    params = dict(given)
    known = [(p.name, KINDS[p.kind], params.pop(p.name)) for p in schema.params if p.name in params]
    rows = known + [(name, kind_of(value), value) for name, value in params.items()]
    array = ffi().new("RadParam[]", max(len(rows), 1))
    count = 0
    for name, kind, value in rows:
        if value is not None:
            array[count].key, array[count].kind = text(name), kind
            set_value(array[count].value, kind, value)
            count += 1
    made = ffi().new("RadGeometry *")
    made.struct_bytes, made.op = ffi().sizeof("RadGeometry"), text(schema.op)
    made.num_params, made.params = count, array
    return made, array


@lru_cache(maxsize=1024)
def encoding(value: Encoding, rows: int, cols: int) -> Kept:
    """Return a RadEncoding of a weight of rows x cols."""
    planes = ffi().new("RadPlane[]", max(len(value.planes), 1))
    for c, plane in zip(planes, value.planes, strict=False):
        c.role, c.dtype, c.is_table = text(plane.role), text(plane.dtype), int(plane.is_table)
        c.block = plane.block
        c.extent = plane.extent or (0, 0)
    spelling = ffi().new("char[]", str(value).encode())
    made = ffi().new("RadEncoding *")
    made.struct_bytes, made.spelling = ffi().sizeof("RadEncoding"), spelling
    made.scheme, made.transform = text(value.scheme), text(value.transform)
    made.rows, made.cols = rows, cols
    made.num_planes, made.planes = len(value.planes), planes
    return made, (planes, spelling)


@lru_cache(maxsize=4096)
def layout(value: Layout) -> Any:
    """Return a RadLayout."""
    made = ffi().new("RadLayout *")
    name = value.name.encode()
    if len(name) >= ffi().sizeof("char[48]") or not 1 <= len(value.shape) <= 4:
        raise AbiError(
            f"layout {value.name}: expected a name below 48 bytes and 1 to 4 extents, got "
            f"{len(name)} bytes and shape {value.shape}; correct the kernel's layout hook"
        )
    made.struct_bytes, made.name = ffi().sizeof("RadLayout"), name
    made.dtype.code, made.dtype.bits, made.dtype.lanes = dtype(value.dtype).dlpack
    made.ndim = len(value.shape)
    for i, extent in enumerate(value.shape):
        made.shape[i] = extent
    made.row_block, made.tag = value.row_block, value.tag
    return made


def layout_from_c(made: Any) -> Layout:
    """Return the Layout that a hook filled in."""
    name = dtype_of_dlpack(made.dtype.code, made.dtype.bits, made.dtype.lanes).name
    return Layout(
        ffi().string(made.name).decode(errors="replace"),
        name,
        tuple(int(made.shape[i]) for i in range(made.ndim)),
        int(made.row_block),
        int(made.tag),
    )


def call_layouts(layouts: Sequence[Layout | None], count: int) -> Kept:
    """Return RadCall.layouts: NULL where the operand is no weight or lies as it is on disk."""
    structs = [None if v is None or v.name == AS_IS else layout(v) for v in layouts]
    structs += [None] * (count - len(structs))
    return ffi().new("RadLayout *[]", [ffi().NULL if s is None else s for s in structs]), structs


def tensors(values: Sequence[Tensor | np.ndarray | None]) -> Kept:
    """Return DLTensors over the memory of arrays; None becomes the null tensor."""
    made = ffi().new("DLTensor[]", max(len(values), 1))
    dims = ffi().new("int64_t[]", 16 * max(len(values), 1))
    for i, value in enumerate(values):
        if value is None:
            continue
        if isinstance(value, Tensor):
            base, element = value.base, value.dtype
        else:
            base, element = value, dtype_of_numpy(value.dtype)
        t, shape, strides = made[i], dims + 16 * i, dims + 16 * i + 8
        t.data = ffi().cast("void *", base.__array_interface__["data"][0])
        t.device.device_type, t.ndim = 1, base.ndim
        t.dtype.code, t.dtype.bits, t.dtype.lanes = element.dlpack
        for d in range(base.ndim):
            shape[d] = base.shape[d]
            strides[d] = base.strides[d] // base.itemsize
        t.shape, t.strides = shape, strides
    return made, (dims, values)


def call_params(schema: OpSchema, params: Mapping[str, object]) -> tuple[Any, int]:
    """Return RadCall.params with defaults filled in, and the bits of those that were given."""
    made = ffi().new("RadValue[]", max(len(schema.params), 1))
    present = 0
    for i, param in enumerate(schema.params):
        value = params.get(param.name)
        present |= (value is not None) << i
        set_value(made[i], KINDS[param.kind], param.default if value is None else value)
    return made, present
