"""The graph that an architecture declares into; it records, infers and checks.

One file, because it is one class with a method for each kind of declaration.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from radiance_abi.architectures import Context
from radiance_abi.encoding import Encoding
from radiance_abi.ops import OpSchema
from radiance_core.graph.buffers import Buffers
from radiance_core.graph.errors import DeclareError
from radiance_core.graph.inferred import Inference, Inferred
from radiance_core.graph.ir import (
    Extent,
    GraphIR,
    GraphKvGroup,
    GraphOperand,
    GraphValue,
    GraphWeight,
    Node,
)
from radiance_core.graph.operands import check_operands, node_name
from radiance_core.graph.weights import WeightCatalog
from radiance_core.nearest import did_you_mean

Serves = Callable[[Node], bool]

RANGED_SYMBOL = {"q_len": "MAX_Q_LEN"}
"""Ranged params that do not count the rows of an operand, and the symbol that gives their value."""


class StepInputs:
    """The inputs that every step brings, by name."""

    def __init__(self, new: Callable[[str, tuple[Extent, ...]], GraphValue]) -> None:
        self.tokens = new("tokens", ("TOKENS",))
        self.positions = new("positions", ("TOKENS",))
        self.cu_seqlens = new("cu_seqlens", ("SEQS+1",))
        self.out_ids = new("out_ids", ("OUT_ROWS",))


class GraphBuilder:
    """Implements the contract's Graph.

    Args:
        ctx: what the core decided beforehand.
        schemas: every op known, standard ones and those of the loaded libraries.
        weights: what the checkpoint can supply.
        serves: whether a node finds a kernel in every band.
    """

    def __init__(
        self,
        ctx: Context,
        schemas: Mapping[str, OpSchema],
        weights: WeightCatalog,
        serves: Serves,
    ) -> None:
        self.ctx = ctx
        self._schemas = schemas
        self._catalog = weights
        self._serves = serves
        self._buffers = Buffers()
        self._inference = Inference(ctx.dtype)
        self._answers: dict[tuple[int, tuple[Encoding, ...]], bool] = {}
        self._nodes: list[Node] = []
        self._weights: dict[str, GraphWeight] = {}
        self._groups: list[GraphKvGroup] = []
        self._constants: dict[int, np.ndarray] = {}
        self._inputs: dict[str, GraphValue] = {}
        self._outputs: dict[str, GraphValue] = {}
        self.step = StepInputs(self.input)

    def input(self, name: str, shape: tuple[Extent, ...], dtype: str = "i32") -> GraphValue:
        """Declare an operand that the engine fills before each step."""
        assert name not in self._inputs, f"step input {name} is declared once"
        value = self._buffers.new(name, shape, dtype, "step input")
        self._inputs[name] = value
        return value

    def weight(
        self,
        name: str,
        shape: Sequence[int],
        *,
        access: str = "per_token",
        shard: str | None = None,
    ) -> GraphWeight:
        """Declare a weight; declaring it again must repeat its extents."""
        have = self._weights.get(name)
        if have is None:
            source, encoding = self._catalog.find(name, tuple(shape))
            have = GraphWeight(name, tuple(shape), encoding, source, access, shard)
            self._weights[name] = have
        if have.shape != tuple(shape):
            raise DeclareError(
                f"weight {name}: declared as {list(have.shape)} and again as {list(shape)}"
            )
        return have

    def has_weight(self, name: str) -> bool:
        """Return whether the checkpoint supplies ``name``; a joined one must have one encoding."""
        return self._catalog.has(name)

    def constant(self, array: np.ndarray) -> GraphValue:
        """Declare a constant operand (f32 or i32); the array is copied."""
        names = {"float32": "f32", "int32": "i32"}
        if array.dtype.name not in names or array.ndim == 0:
            raise DeclareError(
                f"constant: expected float32 or int32 of one dimension or more, got {array.dtype} "
                f"{list(array.shape)}"
            )
        name = f"constant {len(self._constants)}"
        value = self._buffers.new(name, array.shape, names[array.dtype.name], "constant")
        self._constants[value.storage] = np.array(array, order="C")
        return value

    def empty(self, shape: tuple[Extent, ...], dtype: str) -> GraphValue:
        """Declare a buffer whose contents are undefined until an op writes it."""
        return self._buffers.new("empty", shape, dtype, "node")

    def kv_group(
        self, name: str, *, n_head_kv: int, head_dim: int, layers: Sequence[int], window: int = 0
    ) -> GraphKvGroup:
        """Declare a pool of keys and values."""
        if any(g.name == name for g in self._groups):
            raise DeclareError(f"kv group {name}: declared twice")
        if min(n_head_kv, head_dim, len(layers)) < 1 or window < 0:
            raise DeclareError(
                f"kv group {name}: expected 1 or more heads, elements of a head and layers, and no "
                f"negative window, got n_head_kv={n_head_kv} head_dim={head_dim} "
                f"layers={list(layers)} window={window}"
            )
        group = GraphKvGroup(
            name,
            n_head_kv,
            head_dim,
            tuple(layers),
            window,
            self.input(f"{name}.slot_mapping", ("TOKENS",)),
            self.input(f"{name}.block_table", ("SEQS", self.ctx.max_context)),
            self.input(f"{name}.seqused", ("SEQS",)),
        )
        self._groups.append(group)
        return group

    def columns(self, value: GraphValue, start: int, stop: int) -> GraphValue:
        """Return a view of columns [start, stop) of a matrix."""
        return self._buffers.columns(value, start, stop)

    def join(self, *values: GraphValue) -> GraphValue:
        """Lay matrices side by side in one buffer: their makers write straight into it."""
        return self._buffers.join(values)

    def rows(self, value: GraphValue, part: str) -> GraphValue:
        """Return the rows whose logits are wanted ("OUT")."""
        if part != "OUT":
            raise DeclareError(f"rows: expected part OUT, got {part!r}")
        out: GraphValue = self.op("gather_rows", value, self.step.out_ids)
        return out

    def op(self, op: str, *operands: Any, **params: float | str | None) -> Any:
        """Issue an op; see the contract."""
        schema, operands = self._checked(op, operands, asking=False)
        inferred = self._infer(schema, operands, params)
        buffers = self._buffers
        buffers.clock += 1
        fresh = []
        for spec, value in zip(schema.inputs, operands, strict=True):
            if spec.role == "inout" and isinstance(value, GraphValue):
                buffers.overwrite(value)
                fresh.append(replace(value, stamp=buffers.clock))
        node = self._node(schema, operands, inferred)
        self._nodes.append(node)
        fresh += node.outputs
        if not fresh:
            return None
        return fresh[0] if len(fresh) == 1 else tuple(fresh)

    def has(self, op: str, *operands: Any, **params: float | str | None) -> bool:
        """Return whether a loaded kernel serves this op at every row count."""
        if op not in self._schemas:
            return False
        schema, operands = self._checked(op, operands, asking=True)
        inferred = self._infer(schema, operands, params)
        encodings = tuple(o.encoding for o in operands if isinstance(o, GraphWeight))
        question = (id(inferred), encodings)  # it is kept: no other one gets its id
        if question not in self._answers:
            kept = len(self._buffers.storages)
            try:
                self._answers[question] = self._serves(self._node(schema, operands, inferred))
            finally:
                del self._buffers.storages[kept:]
        return self._answers[question]

    def logits(self, value: GraphValue) -> None:
        """Name the result: f32 [OUT_ROWS, V]."""
        if value.dtype != "f32" or value.shape[0] != "OUT_ROWS" or len(value.shape) != 2:
            raise DeclareError(
                f"logits: expected f32 [OUT_ROWS, V], got {value.dtype} {list(value.shape)}"
            )
        if "logits" in self._outputs:
            raise DeclareError("logits: expected one call of g.logits, got a second")
        self._buffers.check_fresh(value, "logits")
        self.output("logits", value)

    def output(self, name: str, value: GraphValue) -> None:
        """Keep a value readable after the step under ``name``."""
        self._outputs[name] = value

    def finish(self) -> GraphIR:
        """Return the whole graph as a frozen value."""
        if "logits" not in self._outputs:
            raise DeclareError("graph: expected a call of g.logits, got none")
        return GraphIR(
            tuple(self._nodes),
            tuple(self._buffers.storages),
            tuple(self._weights.values()),
            tuple(self._groups),
            dict(self._inputs),
            dict(self._constants),
            dict(self._outputs),
        )

    def _checked(
        self, op: str, given: Sequence[Any], *, asking: bool
    ) -> tuple[OpSchema, tuple[GraphOperand, ...]]:
        schema = self._schemas.get(op)
        if schema is None:
            raise DeclareError(
                f"op {op!r}: no loaded library and no standard op has that name"
                f"{did_you_mean(op, self._schemas)}"
            )
        return schema, check_operands(schema, given, self._buffers, asking=asking)

    def _infer(
        self,
        schema: OpSchema,
        operands: Sequence[GraphOperand],
        params: Mapping[str, int | float | str | None],
    ) -> Inferred:
        chosen = {k: v for k, v in params.items() if v is not None}
        return self._inference.of(schema, operands, chosen)

    def _node(
        self, schema: OpSchema, operands: tuple[GraphOperand, ...], inferred: Inferred
    ) -> Node:
        """Return a node whose outputs are new."""
        name = node_name(schema.op, operands)
        outputs = tuple(
            self._buffers.new(f"{name}.{spec.name}", shape, dtype, "node")
            for spec, (shape, dtype) in zip(schema.outputs, inferred.outputs, strict=True)
        )
        rows, ranged = inferred.rows, schema.ranged
        symbol = None if ranged is None else RANGED_SYMBOL.get(ranged, rows)
        return Node(name, schema, operands, inferred.params, outputs, rows, symbol)
