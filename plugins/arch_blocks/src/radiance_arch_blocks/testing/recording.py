"""A graph that records what is declared into it."""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from radiance_abi import Encoding, Source, plain
from radiance_abi.ops import extent
from radiance_abi.vocabulary import STANDARD


@dataclass(frozen=True, slots=True)
class FakeValue:
    """A value: its maker's name, extents and element type."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str = "f32"


@dataclass(frozen=True, slots=True)
class FakeWeight:
    """A declared weight."""

    name: str
    shape: tuple[int, ...]
    encoding: Encoding
    access: str = "per_token"
    shard: str | None = None


@dataclass(frozen=True, slots=True)
class FakeGroup:
    """A pool of keys and values."""

    name: str
    n_head_kv: int
    head_dim: int
    layers: tuple[int, ...]
    window: int
    slot_mapping: FakeValue = FakeValue("slot_mapping", ("TOKENS",), "i32")
    block_table: FakeValue = FakeValue("block_table", ("SEQS", 1), "i32")
    seqused: FakeValue = FakeValue("seqused", ("SEQS",), "i32")

    def layer(self, index: int) -> str:
        """Return the cache operand of a layer."""
        assert index in self.layers, f"layer {index} is not of pool {self.name}"
        return f"{self.name}.{index}"


class FakeStep:
    """The inputs of a step."""

    tokens = FakeValue("tokens", ("TOKENS",), "i32")
    positions = FakeValue("positions", ("TOKENS",), "i32")
    cu_seqlens = FakeValue("cu_seqlens", ("SEQS+1",), "i32")
    out_ids = FakeValue("out_ids", ("OUT_ROWS",), "i32")


@dataclass(frozen=True, slots=True)
class Issued:
    """One issued op."""

    op: str
    operands: tuple[Any, ...]
    params: dict[str, Any]
    results: tuple[FakeValue, ...]


@dataclass
class RecordingGraph:
    """Records what is declared and checks operands and params against the standard schemas.

    Args:
        serves: the answer to ``has`` for an op and its first weight; by default nothing is served.
        encodings: weight name pattern to encoding; f32 where none matches.
        present: what the checkpoint supplies by name, as from names(); None for everything.
        planes: numbers of int8 planes that whatever is served is served for.
    """

    serves: Callable[[str, FakeWeight | None], bool] = lambda op, weight: False  # noqa: ARG005
    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    present: Mapping[str, Source] | None = None
    planes: Sequence[int] = (1, 2)
    step: FakeStep = field(default_factory=FakeStep)
    issued: list[Issued] = field(default_factory=list)
    weights: dict[str, FakeWeight] = field(default_factory=dict)
    groups: list[FakeGroup] = field(default_factory=list)
    constants: list[np.ndarray] = field(default_factory=list)
    joined: list[tuple[FakeValue, ...]] = field(default_factory=list)
    result: FakeValue | None = None

    def weight(
        self,
        name: str,
        shape: Sequence[int],
        *,
        access: str = "per_token",
        shard: str | None = None,
    ) -> FakeWeight:
        """Declare a weight."""
        assert self.present is None or name in self.present, f"names() does not map {name}"
        matching = [e for p, e in self.encodings.items() if fnmatch.fnmatchcase(name, p)]
        encoding = matching[0] if matching else plain("f32")
        made = FakeWeight(name, tuple(shape), encoding, access, shard)
        have = self.weights.setdefault(name, made)
        assert have.shape == made.shape, f"{name} declared as {have.shape} and as {made.shape}"
        return have

    def has_weight(self, name: str) -> bool:
        """Return whether the parts of a joined weight share an encoding."""
        if self.present is not None and name not in self.present:
            return False
        block, _, joined = name.rpartition(".attn_qkv")
        parts = ("attn_q", "attn_k", "attn_v")
        if not block:
            block, _, joined = name.rpartition(".ffn_gate_up")
            parts = ("ffn_gate", "ffn_up", "ffn_up")
        kinds = {
            next((e for p, e in self.encodings.items() if fnmatch.fnmatchcase(full, p)), None)
            for full in (f"{block}.{part}{joined}" for part in parts)
        }
        return len(kinds) == 1

    def constant(self, array: np.ndarray) -> FakeValue:
        """Declare a constant."""
        self.constants.append(array)
        return FakeValue(f"constant{len(self.constants) - 1}", array.shape, str(array.dtype))

    def op(self, op: str, *operands: Any, **params: float | str | None) -> Any:
        """Issue an op."""
        full = self._checked(op, operands, params)
        schema = STANDARD[op]
        rows = next((o.shape[0] for o in operands if isinstance(o, FakeValue)), "TOKENS")
        made = []
        for spec, operand in zip(schema.inputs, operands, strict=False):
            if spec.role == "inout":
                made.append(FakeValue(f"{op}{len(self.issued)}", operand.shape, operand.dtype))
        for spec in schema.outputs:
            tail = tuple(extent(dim, full) for dim in spec.dims[1:])
            assert None not in tail, f"{op}: extents {spec.dims} are not known"
            dtype = full.get(spec.dtype, spec.dtype)
            name = f"{op}{len(self.issued)}.{spec.name}"
            made.append(FakeValue(name, (rows, *tail), str(dtype)))  # type: ignore[arg-type]
        self.issued.append(Issued(op, operands, full, tuple(made)))
        return None if not made else made[0] if len(made) == 1 else tuple(made)

    def has(self, op: str, *operands: Any, **params: float | str | None) -> bool:
        """Return what ``serves`` says."""
        full = self._checked(op, operands, params)
        if full.get("planes", 1) not in self.planes:
            return False
        weight = next((o for o in operands if isinstance(o, FakeWeight)), None)
        return self.serves(op, weight)

    def columns(self, value: FakeValue, start: int, stop: int) -> FakeValue:
        """Return a view of columns."""
        assert 0 <= start < stop <= int(value.shape[1]), f"[{start}, {stop}) of {value.shape}"
        return FakeValue(f"{value.name}[{start}:{stop}]", (value.shape[0], stop - start))

    def join(self, *values: FakeValue) -> FakeValue:
        """Lay values side by side."""
        self.joined.append(values)
        width = sum(int(v.shape[1]) for v in values)
        return FakeValue("+".join(v.name for v in values), (values[0].shape[0], width))

    def rows(self, value: FakeValue, part: str) -> FakeValue:
        """Return the rows of a part."""
        assert part == "OUT", f"unknown part {part}"
        return FakeValue(f"{value.name}@{part}", ("OUT_ROWS", *value.shape[1:]), value.dtype)

    def kv_group(
        self, name: str, *, n_head_kv: int, head_dim: int, layers: Sequence[int], window: int = 0
    ) -> FakeGroup:
        """Declare a pool."""
        self.groups.append(FakeGroup(name, n_head_kv, head_dim, tuple(layers), window))
        return self.groups[-1]

    def logits(self, value: FakeValue) -> None:
        """Name the result."""
        assert self.result is None, "logits were named twice"
        self.result = value

    def ops(self) -> list[str]:
        """Return the issued ops in order."""
        return [issued.op for issued in self.issued]

    def named(self, op: str) -> list[Issued]:
        """Return every issue of an op."""
        return [issued for issued in self.issued if issued.op == op]

    def _checked(
        self, op: str, operands: Sequence[Any], params: Mapping[str, Any]
    ) -> dict[str, Any]:
        schema = STANDARD[op]
        full: dict[str, Any] = {k: v for k, v in params.items() if v is not None}
        for name in full:
            assert schema.param(name) is not None, f"{op} has no param {name}"
        assert len(operands) <= len(schema.inputs), f"{op}: too many operands"
        for spec, operand in zip(schema.inputs, operands, strict=False):
            if not isinstance(operand, FakeValue | FakeWeight):
                continue
            assert (spec.role == "weight") == isinstance(operand, FakeWeight), (
                f"{op}: {spec.name} is a {spec.role}"
            )
            assert len(spec.dims) == len(operand.shape), f"{op}: {spec.name} has {operand.shape}"
            for dim, have in zip(spec.dims, operand.shape, strict=True):
                if isinstance(have, int) and schema.param(dim) is not None:
                    assert full.setdefault(dim, have) == have, f"{op}: {spec.name} {dim}={have}"
                elif isinstance(have, int) and dim != "_":
                    assert extent(dim, full) in (None, have), f"{op}: {spec.name} {dim} is {have}"
        return full
