"""Bind: resolved nodes become a flat step program over a table of base addresses.

One file, because it is one stage: most of it a class with a method for each kind of operand.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from radiance_abi.dtypes import dtype
from radiance_abi.kernels import Layout
from radiance_abi.kv_cache import cache_dtype
from radiance_abi.ops import OpSchema
from radiance_core.execute.program import (
    SYMBOLS,
    Band,
    NodeTemplate,
    OperandTemplate,
    StepProgram,
)
from radiance_core.graph.ir import (
    Extent,
    GraphOperand,
    GraphValue,
    GraphWeight,
    KvLayer,
)
from radiance_core.load.weights import zeros
from radiance_core.plan.arena import Arena, most
from radiance_core.plan.budget import KvPlan
from radiance_core.plan.sites import SiteKey, site_key
from radiance_core.plan.staging import input_shapes
from radiance_core.resolve.result import UNBOUNDED, ResolvedBand, ResolvedNode
from radiance_core.resolve.stage import Resolution

ABSENT = OperandTemplate(-1, 0, "u8", (0,), (1,), -1, 0, None)


@dataclass(frozen=True, slots=True)
class Bound:
    """A program with the memory that it runs over.

    ``slots``: base addresses by slot number. ``inputs``: step inputs by name, at their greatest
    extents. ``outputs``: named results, at their greatest extents. ``pools``: cache by group,
    [pages, layers, n_head_kv, block_size, elements of a slot]: what one page holds lies together.
    ``arena_slot``: the slot of all activations.
    """

    program: StepProgram
    slots: np.ndarray
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    pools: Mapping[str, np.ndarray]
    keep: tuple[np.ndarray, ...]
    arena_slot: int


class _Slots:
    """Hands out slot numbers for base addresses and keeps the memory alive."""

    def __init__(self) -> None:
        self.addresses: list[int] = []
        self.keep: list[np.ndarray] = []

    def add(self, array: np.ndarray) -> int:
        self.addresses.append(array.ctypes.data)
        self.keep.append(array)
        return len(self.addresses) - 1


def bind(
    resolution: Resolution,
    arena: Arena,
    storages: Mapping[SiteKey, np.ndarray],
    kv: Mapping[str, KvPlan],
    largest: Mapping[str, int],
) -> Bound:
    """Make the step program and allocate all memory that it names but the weights."""
    binder = _Binder(resolution, arena, storages, kv, largest)
    nodes = tuple(binder.node(r) for r in resolution.nodes)
    return Bound(
        StepProgram(nodes, len(binder.slots.addresses)),
        np.array(binder.slots.addresses, np.uint64),
        binder.inputs,
        {name: binder.array_of(v) for name, v in resolution.graph.outputs.items()},
        binder.pools,
        tuple(binder.slots.keep),
        binder.arena_slot,
    )


class _Binder:
    """Holds what every operand template needs."""

    def __init__(
        self,
        resolution: Resolution,
        arena: Arena,
        storages: Mapping[SiteKey, np.ndarray],
        kv: Mapping[str, KvPlan],
        largest: Mapping[str, int],
    ) -> None:
        self.graph = resolution.graph
        self.shapes = input_shapes(resolution.graph, resolution.kv, largest)
        self.arena = arena
        self.kv = kv
        self.largest = largest
        self._values: dict[tuple[object, ...], OperandTemplate] = {}
        self._templates: dict[OperandTemplate, OperandTemplate] = {}
        self.slots = _Slots()
        self.memory = zeros((max(arena.total_bytes, 1),), np.dtype(np.uint8))
        self.arena_slot = self.slots.add(self.memory)
        self.inputs = {n: self._input(n, v) for n, v in self.graph.step_inputs.items()}
        self.input_of_storage = {v.storage: n for n, v in self.graph.step_inputs.items()}
        self.slot_of_storage = {
            storage: self.slots.add(self.inputs[n]) for storage, n in self.input_of_storage.items()
        }
        for storage, array in self.graph.constants.items():
            kept = zeros(array.shape, array.dtype)
            kept[...] = array
            self.slot_of_storage[storage] = self.slots.add(kept)
        self.slot_of_site = {key: self.slots.add(a) for key, a in storages.items()}
        self.pools = {name: pool_of(plan) for name, plan in kv.items()}
        self.slot_of_pool = {
            (name, i): self.slots.add(pool[:, i])
            for name, pool in self.pools.items()
            for i in range(pool.shape[1])
        }

    def _input(self, name: str, value: GraphValue) -> np.ndarray:
        native = dtype(value.dtype).numpy
        assert native is not None, "step inputs have whole-byte types"
        return zeros(self.shapes[name], native)

    def _declared(self, storage: int) -> tuple[Extent, ...]:
        return self.graph.step_inputs[self.input_of_storage[storage]].shape

    def array_of(self, value: GraphValue) -> np.ndarray:
        """Return the named result as an array over the arena, at its greatest extent."""
        root, column = self.graph.root(value.storage)
        storage = self.graph.storages[root]
        native = dtype(storage.dtype).numpy
        assert native is not None, "named results have whole-byte types"
        rows = most(storage.rows, self.largest)
        start = self.arena.offsets[root]
        flat = self.memory[start : start + rows * storage.columns * native.itemsize].view(native)
        column += value.column
        width = math.prod(int(d) for d in value.shape[1:])
        return flat.reshape(rows, storage.columns)[:, column : column + width]

    def node(self, resolved: ResolvedNode) -> NodeTemplate:
        node = resolved.node
        # All bands of a node read one arrangement of each weight; resolving saw to it.
        band = resolved.bands[0]
        operands = tuple(
            self._weight(o, band.library.name, band.layouts[i])
            if isinstance(o, GraphWeight)
            else self._operand(o)
            for i, o in enumerate(node.operands)
        ) + tuple(self._value(v) for v in node.outputs)
        return NodeTemplate(
            op=node.schema.op,
            name=node.name,
            operands=operands,
            param_names=tuple(p.name for p in node.schema.params),
            bands=tuple(
                Band(_upper(b, resolved), b.kernel, _values(node.schema, b), tuple(b.axes.items()))
                for b in resolved.bands
            ),
            ranged=-1 if node.ranged is None else SYMBOLS.index(node.ranged),
            rows=SYMBOLS.index(node.rows),
        )

    def _weight(self, weight: GraphWeight, library: str, layout: Layout | None) -> OperandTemplate:
        slot = self.slot_of_site[site_key(weight, library, layout)]
        shape = layout.shape if layout else weight.shape
        kind = layout.dtype if layout else weight.encoding.codes.dtype
        return OperandTemplate(slot, 0, kind, shape, _dense(shape), -1, 0, layout)

    def _operand(self, operand: GraphOperand) -> OperandTemplate:
        if operand is None:
            return ABSENT
        if isinstance(operand, KvLayer):
            pool = self.pools[operand.group.name]
            slot = self.slot_of_pool[(operand.group.name, operand.position)]
            layer = pool[:, 0]
            strides = tuple(b // pool.itemsize for b in layer.strides)
            kind = cache_dtype(self.kv[operand.group.name].dtype).element
            return OperandTemplate(slot, 0, kind, layer.shape, strides, -1, 0, None)
        assert isinstance(operand, GraphValue), "weights have templates of their own"
        return self._value(operand)

    def _value(self, value: GraphValue) -> OperandTemplate:
        """Return the template of a value; of equal ones, which each layer brings, the first."""
        key = (value.storage, value.column, value.shape, value.dtype)
        if key not in self._values:
            made = self._made(value)
            self._values[key] = self._templates.setdefault(made, made)
        return self._values[key]

    def _made(self, value: GraphValue) -> OperandTemplate:
        root, column = self.graph.root(value.storage)
        storage = self.graph.storages[root]
        item = dtype(value.dtype).bits // 8
        offset = (column + value.column) * item
        slot = self.slot_of_storage.get(root)
        width = storage.columns
        shape = tuple(most(d, self.largest) for d in value.shape)
        if slot is None:
            slot = self.arena_slot
            offset += self.arena.offsets[root]
        elif root in self.input_of_storage:
            whole = self.inputs[self.input_of_storage[root]].shape
            # A block table counts pages where the graph counts tokens.
            shape = whole if value.shape == self._declared(root) else shape
            width = math.prod(whole[1:])
        symbol, plus = _symbol(value.shape[0])
        strides = (width, *_dense(shape)[1:])
        return OperandTemplate(slot, offset, value.dtype, shape, strides, symbol, plus, None)


def _symbol(rows: Extent) -> tuple[int, int]:
    """Return the symbol that counts the rows (-1 for fixed) and what is added to its value."""
    if isinstance(rows, int):
        return -1, 0
    name, _, plus = rows.partition("+")
    return SYMBOLS.index(name), int(plus or 0)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for d in reversed(shape[1:]):
        strides.insert(0, strides[0] * d)
    return tuple(strides)


def _upper(band: ResolvedBand, resolved: ResolvedNode) -> int:
    return UNBOUNDED if band is resolved.bands[-1] else band.upper


def _values(schema: OpSchema, band: ResolvedBand) -> tuple[int | float | str | None, ...]:
    geometry = dict(band.params)
    if schema.ranged is not None:
        geometry[schema.ranged] = band.upper
    return tuple(geometry.get(p.name, p.default) for p in schema.params)


def pool_of(plan: KvPlan) -> np.ndarray:
    """Return a group's pool.

    All layers of a page lie together, so that a short conversation touches little memory and a page
    can be moved as one piece.
    """
    form = cache_dtype(plan.dtype)
    native = dtype(form.element).numpy
    assert native is not None, "cache types are whole bytes"
    row = form.row(plan.head_dim)
    shape = (plan.pages, plan.num_layers, plan.n_head_kv, plan.block_size, row)
    return zeros(shape, native)
