"""Fill in and check the params of an op from the extents of its operands."""

import re
from collections.abc import Sequence
from functools import lru_cache

from radiance_abi.errors import AbiError
from radiance_abi.ops import Operand, OpSchema, extent, type_of_kind
from radiance_core.graph.errors import DeclareError
from radiance_core.graph.ir import Extent, GraphOperand, GraphValue, GraphWeight, KvLayer

ParamValue = int | float | str

POOL_PARAMS = ("block_size", "kv_dtype")
"""Params of ops over a cache that its group fixes."""


def operand_shape(operand: GraphOperand) -> tuple[Extent, ...] | None:
    """Return the extents that an operand shows, or None for state and absent ones."""
    if isinstance(operand, GraphValue | GraphWeight):
        return operand.shape
    return None


def infer_params(
    schema: OpSchema,
    operands: Sequence[GraphOperand],
    given: dict[str, ParamValue],
    default_dtype: str,
) -> dict[str, ParamValue]:
    """Return the full params of a node: given ones, inferred ones, defaults.

    Raises:
        DeclareError: an unknown or missing param, a wrong kind, or extents that contradict.
    """
    params = _check_given(schema, given)
    dtype = schema.param("dtype")
    if dtype is not None and "dtype" not in params:
        params["dtype"] = default_dtype
    for spec, operand in zip(schema.inputs, operands, strict=True):
        _infer_from_operand(schema, spec, operand, params)
    _infer_from_state(schema, operands, params)
    # What a state group takes from its attention kernel is known once that is resolved.
    later = POOL_PARAMS if any(o.role == "state" for o in schema.inputs) else ()
    for p in schema.params:
        if p.name in params or p.ranged:
            continue
        if p.default is not None:
            params[p.name] = p.default
        elif not p.optional and p.name not in later:
            raise DeclareError(f"{schema.op}: param {p.name} is required and was not given")
    _check_extents(schema, operands, params)
    return params


def _check_given(schema: OpSchema, given: dict[str, ParamValue]) -> dict[str, ParamValue]:
    params: dict[str, ParamValue] = {}
    for name, value in given.items():
        spec = schema.param(name)
        if spec is None:
            known = ", ".join(p.name for p in schema.params)
            raise DeclareError(f"{schema.op}: unknown param {name!r}; it has {known}")
        kind: type = type_of_kind[spec.kind]
        # A bool is an int and an int is a float; keeping it as given would make a param of its own.
        widened = isinstance(value, int) and kind in (int, float)
        if not widened and not isinstance(value, kind):
            raise DeclareError(
                f"{schema.op}: param {name}: expected {kind.__name__}, got {value!r}"
            )
        params[name] = kind(value)
    return params


def _infer_from_operand(
    schema: OpSchema, spec: Operand, operand: GraphOperand, params: dict[str, ParamValue]
) -> None:
    shape = operand_shape(operand)
    if shape is None:
        return
    if len(shape) != len(spec.dims):
        raise DeclareError(
            f"{schema.op}: operand {spec.name}: expected {len(spec.dims)} dimensions "
            f"[{','.join(spec.dims)}], got {list(shape)}"
        )
    for dim, have in zip(spec.dims, shape, strict=True):
        if isinstance(have, int):
            _solve(dim, have, params, schema)


def _solve(dim: str, have: int, params: dict[str, ParamValue], schema: OpSchema) -> None:
    """Set the one unknown int param of ``dim`` so that the expression gives ``have``."""
    if dim in params or "+" in dim or "/" in dim or dim == "_":
        return
    words = _words(dim)
    unknown = [w for w in words if not w.isdigit() and w not in params]
    if len(unknown) != 1:
        return
    spec = schema.param(unknown[0])
    if spec is None or spec.ranged or spec.kind != "i":
        return
    known = 1
    for w in words:
        if w != unknown[0]:
            value = int(w) if w.isdigit() else params[w]
            known *= value if isinstance(value, int) else 1
    if known and have % known == 0:
        params[unknown[0]] = have // known


@lru_cache(maxsize=1024)
def _words(dim: str) -> list[str]:
    return re.findall(r"[A-Za-z_][A-Za-z_0-9]*|\d+", dim)


def _infer_from_state(
    schema: OpSchema, operands: Sequence[GraphOperand], params: dict[str, ParamValue]
) -> None:
    for operand in operands:
        if isinstance(operand, KvLayer):
            for name in ("n_head_kv", "head_dim"):
                if schema.param(name) is None:
                    continue
                held = getattr(operand.group, name)
                if params.setdefault(name, held) != held:
                    raise DeclareError(
                        f"{schema.op}: param {name}: expected {held} as kv group "
                        f"{operand.group.name} has, got {params[name]}"
                    )


def _check_extents(
    schema: OpSchema, operands: Sequence[GraphOperand], params: dict[str, ParamValue]
) -> None:
    for spec, operand in zip(schema.inputs, operands, strict=True):
        shape = operand_shape(operand)
        if shape is None:
            continue
        for dim, have in zip(spec.dims, shape, strict=True):
            if not isinstance(have, int):
                continue
            try:
                want = extent(dim, params)
            except AbiError as error:
                raise DeclareError(f"{schema.op}: operand {spec.name}: {error}") from error
            if want is not None and want != have:
                raise DeclareError(
                    f"{schema.op}: operand {spec.name}: expected {dim} = {want}, got {have} "
                    f"in {list(shape)}"
                )


def output_shape(
    spec: Operand, params: dict[str, ParamValue], rows: Extent, op: str
) -> tuple[Extent, ...]:
    """Return the extents of an output; its first one is the rows of the node."""
    dims: list[Extent] = [rows]
    for dim in spec.dims[1:]:
        try:
            value = extent(dim, params)
        except AbiError as error:
            raise DeclareError(f"{op}: output {spec.name}: {error}") from error
        if value is None:
            raise DeclareError(f"{op}: extent {dim} of output {spec.name} is unknown")
        dims.append(value)
    return tuple(dims)
