"""Checks of what an op is given: kinds, dtypes, rows, and that nothing is read half-overwritten."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from radiance_abi.ops import Operand, OpSchema
from radiance_core.graph.buffers import Buffers
from radiance_core.graph.errors import DeclareError
from radiance_core.graph.ir import Extent, GraphOperand, GraphValue, GraphWeight, KvLayer

_KINDS: dict[str, tuple[type, str]] = {
    "weight": (GraphWeight, "a weight"),
    "state": (KvLayer, "a layer's cache"),
}
_VALUE = (GraphValue, "a value")


def check_operands(
    schema: OpSchema, given: Sequence[Any], buffers: Buffers, *, asking: bool
) -> tuple[GraphOperand, ...]:
    """Return the operands in schema order, None for absent ones.

    Args:
        schema: the op's.
        given: what the architecture gave; trailing optional ones may be left out.
        buffers: where values live.
        asking: operands that do not exist yet may be None.

    Raises:
        DeclareError: too many, missing, of another kind, overwritten, or aliased by an inout one.
    """
    specs = schema.inputs
    if len(given) > len(specs):
        raise DeclareError(f"{schema.op}: expected {len(specs)} operands, got {len(given)}")
    operands = [*given, *[None] * (len(specs) - len(given))]
    for spec, operand in zip(specs, operands, strict=True):
        kind, words = _KINDS.get(spec.role, _VALUE)
        if operand is None and (spec.optional or asking):
            continue
        if not isinstance(operand, kind):
            raise DeclareError(
                f"{schema.op}: operand {spec.name}: expected {words}, got {_shown(operand)}"
            )
        if isinstance(operand, GraphValue):
            buffers.check_fresh(operand, f"{schema.op}: operand {spec.name}")
    _check_inout(schema, operands, buffers)
    return tuple(operands)


def _check_inout(schema: OpSchema, operands: Sequence[GraphOperand], buffers: Buffers) -> None:
    for index, (spec, operand) in enumerate(zip(schema.inputs, operands, strict=True)):
        if spec.role != "inout" or not isinstance(operand, GraphValue):
            continue
        if operand.kind != "node":
            raise DeclareError(
                f"{schema.op}: operand {spec.name}: expected the result of an op, which may be "
                f"overwritten, got the {operand.kind} {operand.name}"
            )
        for other_index, other in enumerate(operands):
            if other_index == index or not isinstance(other, GraphValue):
                continue
            if buffers.overlap(operand, other):
                raise DeclareError(
                    f"{schema.op}: operand {spec.name}: {operand.name} is overwritten while "
                    f"operand {schema.inputs[other_index].name} reads {other.name} in it"
                )


def _shown(operand: object) -> str:
    if operand is None:
        return "nothing"
    name = getattr(operand, "name", None)
    what = type(operand).__name__
    return f"{what} {name}" if isinstance(name, str) else what


def check_dtypes(
    schema: OpSchema, operands: Sequence[GraphOperand], params: Mapping[str, int | float | str]
) -> None:
    """Require that values have the element types that the schema names.

    Raises:
        DeclareError: names the operand and both types.
    """
    for spec, operand in zip(schema.inputs, operands, strict=True):
        if isinstance(operand, GraphValue):
            want = dtype_of(spec, params)
            if want not in ("*", operand.dtype):
                raise DeclareError(
                    f"{schema.op}: operand {spec.name}: expected {want}, got {operand.dtype} "
                    f"({operand.name})"
                )


def dtype_of(spec: Operand, params: Mapping[str, int | float | str]) -> str:
    """Return the dtype of an operand: fixed, any, or what a string param says."""
    named = params.get(spec.dtype)
    return named if isinstance(named, str) else spec.dtype


def rows_of(schema: OpSchema, operands: Sequence[GraphOperand], num_rows: Sequence[str]) -> str:
    """Return the symbol that counts a node's rows.

    It is the first extent of the operands that the ranged param counts, else of the first value.

    Args:
        schema, operands: of the node.
        num_rows: the symbols that may count rows.

    Raises:
        DeclareError: two operands have different rows, or a step does not say how many.
    """
    values = [
        (spec, v)
        for spec, v in zip(schema.inputs, operands, strict=True)
        if isinstance(v, GraphValue)
    ]
    counted = [(s, v) for s, v in values if s.dims and s.dims[0] == schema.ranged]
    if not values:
        # Asked before the operands exist: no op has more rows than a step has tokens.
        return "TOKENS"
    spec, first = (counted or values)[0]
    rows: Extent = first.shape[0]
    for other_spec, other in counted[1:]:
        if other.shape[0] != rows:
            raise DeclareError(
                f"{schema.op}: operand {other_spec.name}: expected {rows} rows as {spec.name} has, "
                f"got {other.shape[0]} ({other.name})"
            )
    if not isinstance(rows, str) or not re.fullmatch(r"[A-Z_]+", rows) or rows not in num_rows:
        raise DeclareError(
            f"{schema.op}: operand {spec.name}: expected rows that each step counts "
            f"({', '.join(num_rows)}), got {rows} ({first.name})"
        )
    return rows


def node_name(op: str, operands: Sequence[GraphOperand]) -> str:
    """Name a node after its weight or its cache, for messages."""
    weight = next((o for o in operands if isinstance(o, GraphWeight)), None)
    if weight is not None:
        return f"{op} {weight.name}"
    layer = next((o for o in operands if isinstance(o, KvLayer)), None)
    if layer is not None:
        return f"{op} {layer.group.name}.{layer.group.layers[layer.position]}"
    return op
