"""The declared graph as data: values, weights, state groups and nodes, in order of declaration."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from radiance_abi.architectures import Source
from radiance_abi.encoding import Encoding
from radiance_abi.ops import OpSchema
from radiance_core.graph.errors import DeclareError

Extent = int | str
"""An extent: a number, or the name of a symbol that each step fills in (optionally "NAME+1")."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphValue:
    """A node's result, a step input or a constant, or a column view of one.

    ``storage`` names the buffer it lives in; a view starts ``column`` elements into each row.
    ``stamp`` is the time of its making, by which reading a value after it was overwritten is
    caught.
    """

    name: str
    shape: tuple[Extent, ...]
    dtype: str
    kind: str
    storage: int
    column: int = 0
    stamp: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class GraphWeight:
    """A declared weight and the checkpoint tensors that it is made of."""

    name: str
    shape: tuple[int, ...]
    encoding: Encoding
    source: Source
    access: str = "per_token"
    shard: str | None = None


@dataclass(slots=True, eq=False)
class GraphKvGroup:
    """Layers sharing one paged pool; its resolved attention kernel fixes block size and dtype."""

    name: str
    n_head_kv: int
    head_dim: int
    layers: tuple[int, ...]
    window: int
    slot_mapping: GraphValue
    block_table: GraphValue
    seqused: GraphValue

    def layer(self, index: int) -> "KvLayer":
        """Return the cache operand of layer ``index`` of the model."""
        if index not in self.layers:
            raise DeclareError(
                f"kv group {self.name}: expected one of its layers {list(self.layers)}, got {index}"
            )
        return KvLayer(self, self.layers.index(index))


@dataclass(frozen=True, slots=True, eq=False)
class KvLayer:
    """The cache of one layer: an operand."""

    group: GraphKvGroup
    position: int


GraphOperand = GraphValue | GraphWeight | KvLayer | None


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One issued op. ``rows``: the symbol whose 0 skips it; ``ranged``: the one picking a band."""

    name: str
    schema: OpSchema
    operands: tuple[GraphOperand, ...]
    params: Mapping[str, int | float | str]
    outputs: tuple[GraphValue, ...]
    rows: str
    ranged: str | None


@dataclass(frozen=True, slots=True)
class Storage:
    """A buffer that nodes write: rows, elements of a row, and its place in a joined buffer."""

    rows: Extent
    columns: int
    dtype: str
    parent: int | None = None
    parent_column: int = 0


@dataclass(frozen=True, slots=True)
class GraphIR:
    """A whole declared graph."""

    nodes: tuple[Node, ...]
    storages: tuple[Storage, ...]
    weights: tuple[GraphWeight, ...]
    kv_groups: tuple[GraphKvGroup, ...]
    step_inputs: Mapping[str, GraphValue]
    constants: Mapping[int, np.ndarray] = field(default_factory=dict)
    outputs: Mapping[str, GraphValue] = field(default_factory=dict)

    def root(self, storage: int) -> tuple[int, int]:
        """Return the outermost buffer that holds ``storage`` and the column where it begins."""
        column = 0
        parent = self.storages[storage].parent
        while parent is not None:
            column += self.storages[storage].parent_column
            storage = parent
            parent = self.storages[storage].parent
        return storage, column
