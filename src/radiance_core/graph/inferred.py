"""What follows from an op's params and its operands' extents: found once for ops that are alike.

Layers repeat each other, and so do the questions which kernels there are.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from radiance_abi.ops import OpSchema
from radiance_core.execute.program import SYMBOLS
from radiance_core.graph.infer import ParamValue, infer_params, output_shape
from radiance_core.graph.ir import Extent, GraphOperand, GraphValue, GraphWeight, KvLayer
from radiance_core.graph.operands import check_dtypes, dtype_of, rows_of


class Inferred(NamedTuple):
    """Full params, the symbol that counts rows, and extents and element type of each output."""

    params: Mapping[str, ParamValue]
    rows: str
    outputs: tuple[tuple[tuple[Extent, ...], str], ...]


class Inference:
    """Infers and checks; ``dtype`` is what ops compute in that are not told."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._known: dict[object, Inferred] = {}

    def of(
        self, schema: OpSchema, operands: Sequence[GraphOperand], given: dict[str, ParamValue]
    ) -> Inferred:
        """Return what follows for an op with its checked operands.

        Raises:
            DeclareError: what ``infer_params``, ``check_dtypes`` and ``rows_of`` refuse.
        """
        # An int is equal to a float and to a bool, which a param may not take.
        kinds = tuple(map(type, given.values()))
        key = (schema.op, tuple(given.items()), kinds, tuple(map(_seen, operands)))
        try:
            found = self._known.get(key)
        except TypeError:  # a param that is a list, say: no param may be, and inferring says which
            return self._infer(schema, operands, given)
        if found is None:
            found = self._known[key] = self._infer(schema, operands, given)
        return found

    def _infer(
        self, schema: OpSchema, operands: Sequence[GraphOperand], given: dict[str, ParamValue]
    ) -> Inferred:
        params = infer_params(schema, operands, given, self._dtype)
        check_dtypes(schema, operands, params)
        rows = rows_of(schema, operands, SYMBOLS)
        outputs = tuple(
            (output_shape(spec, params, rows, schema.op), dtype_of(spec, params))
            for spec in schema.outputs
        )
        return Inferred(params, rows, outputs)


def _seen(operand: GraphOperand) -> object:
    """Return all of an operand that inference looks at; kinds differ in their first item."""
    if isinstance(operand, GraphValue):
        return operand.dtype, operand.shape
    if isinstance(operand, GraphWeight):
        return None, operand.shape
    if isinstance(operand, KvLayer):
        return operand.group.name
    return None
