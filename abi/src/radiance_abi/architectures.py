"""Architectures: how one model family declares its graph, and how it reads its configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from radiance_abi.encoding import Encoding


@dataclass(frozen=True, slots=True)
class Source:
    """Where a declared weight comes from.

    ``names``: checkpoint tensors. ``join`` False: the first one present. True: all of them,
    stacked along rows. ``planes``: only these roles (all when empty).
    """

    names: tuple[str, ...]
    join: bool = False
    planes: tuple[str, ...] = ()


def copy(*names: str) -> Source:
    """Take the first of ``names`` that the checkpoint has."""
    return Source(names)


def concat(*names: str) -> Source:
    """Stack all of ``names`` along their rows; they must share one encoding."""
    return Source(names, join=True)


@dataclass(frozen=True, slots=True)
class Context:
    """What the core decides before a graph is declared; ``world_size`` has divided dimensions.

    ``activation_planes``: int8 planes that an activation should have where it meets integer
    weights: 2 for about 15 bits, 1 for speed, which also narrows to bf16 those that meet bf16
    weights, where a kernel library reads these so.
    """

    format: str
    max_tokens: int
    max_seqs: int
    max_context: int
    dtype: str = "f32"
    rank: int = 0
    world_size: int = 1
    max_speculative: int = 0
    activation_planes: int = 2


class Value(Protocol):
    """A node's result, or a view of one. ``shape``: extents; the first may be a symbol's name."""

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Extents, the first one often a symbol such as "TOKENS"."""

    @property
    def dtype(self) -> str:
        """Element type."""


class Weight(Protocol):
    """A declared weight."""

    @property
    def name(self) -> str:
        """Name in the graph."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical extents."""

    @property
    def encoding(self) -> Encoding:
        """What the stored numbers are."""


class KvGroup(Protocol):
    """Layers that share one paged pool of keys and values."""

    @property
    def name(self) -> str:
        """Name in reports."""

    def layer(self, index: int) -> Any:
        """Return the cache operand of layer ``index`` of the model."""

    @property
    def slot_mapping(self) -> Value:
        """Flat slot of each token, i32 [TOKENS]."""

    @property
    def block_table(self) -> Value:
        """Page ids of each sequence, i32 [SEQS, max pages]."""

    @property
    def seqused(self) -> Value:
        """Keys of each sequence including this step's, i32 [SEQS]."""


class Step(Protocol):
    """Inputs that every step brings; decode rows come first."""

    @property
    def tokens(self) -> Value:
        """Token ids, i32 [TOKENS]."""

    @property
    def positions(self) -> Value:
        """Index of each token in its sequence, i32 [TOKENS]."""

    @property
    def cu_seqlens(self) -> Value:
        """First row of each sequence and the end, i32 [SEQS + 1]."""

    @property
    def out_ids(self) -> Value:
        """Rows whose logits are wanted, i32 [OUT_ROWS]."""


class Graph(Protocol):
    """What an architecture declares into. Nothing computes while it is used."""

    @property
    def step(self) -> Step:
        """The step's inputs."""

    def weight(
        self,
        name: str,
        shape: Sequence[int],
        *,
        access: str = "per_token",
        shard: str | None = None,
    ) -> Weight:
        """Declare a weight; ``access`` is per_token, per_request, conditional or vocabulary.

        ``shard``: what a rank owns of it: "row" some rows, "col" some columns, None all of it.
        """

    def has_weight(self, name: str) -> bool:
        """Return whether the checkpoint can supply ``name`` (for a joined one: as one encoding)."""

    def constant(self, array: np.ndarray) -> Value:
        """Declare a constant operand; the array is copied."""

    def op(self, op: str, *operands: Any, **params: float | str | None) -> Any:
        """Issue an op. Operands in schema order, None for an absent optional one.

        Returns:
            The new versions of inout operands, then the outputs: one Value, or a tuple of
            several, or None when the op only writes state. Params that equal an operand's extent
            may be left out.
        """

    def has(self, op: str, *operands: Any, **params: float | str | None) -> bool:
        """Return whether some loaded kernel serves this op at every row count.

        Operands that do not exist yet are None; what only they would tell is then given as params.
        """

    def columns(self, value: Value, start: int, stop: int) -> Value:
        """Return a view of columns [start, stop)."""

    def join(self, *values: Value) -> Value:
        """Lay the values' columns side by side in one buffer and return the whole."""

    def rows(self, value: Value, part: str) -> Value:
        """Return the rows of a part: "OUT" (the rows whose logits are wanted)."""

    def kv_group(
        self, name: str, *, n_head_kv: int, head_dim: int, layers: Sequence[int], window: int = 0
    ) -> KvGroup:
        """Declare a pool of keys and values for ``layers``; ``window`` > 0 bounds what is kept."""

    def logits(self, value: Value) -> None:
        """Name the result: f32 [OUT_ROWS, V]."""


class Raw(Protocol):
    """A model's configuration, read strictly: each key is read, asserted or ignored by name."""

    @property
    def format(self) -> str:
        """The kind of file, "gguf" or "safetensors"."""

    def has(self, key: str) -> bool:
        """Return whether the key is present and not null."""

    def need(self, key: str, kind: type) -> Any:
        """Return the value; error naming the key when absent or of another type."""

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """Return the value or the default; error when of another type."""

    def expect(self, key: str, *allowed: object) -> None:
        """Require that the key is absent or holds one of ``allowed``."""

    def ignore(self, *keys: str) -> None:
        """Say that these keys do not matter; a trailing * matches any rest."""

    def sub(self, key: str) -> "Raw | None":
        """Return a nested object to be read as strictly, or None when absent."""

    def tensor(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a checkpoint tensor, or None; for facts that only shapes tell."""

    def read_tensor(self, name: str) -> np.ndarray:
        """Return a small checkpoint tensor decoded to f32 (rope factors and the like)."""


class Architecture(Protocol):
    """One model family; ``id`` is general.architecture, or model_type without underscores.

    A family may also have ``chat_marks(cfg) -> radiance_abi.chat_format.ChatMarks``, which states
    how its models spell thoughts and calls, in place of what their chat templates tell.
    """

    id: str
    quant: str

    def read(self, raw: Raw) -> Any:
        """Read the configuration; returns the family's own frozen config."""

    def names(self, cfg: Any, raw: Raw) -> Mapping[str, Source]:
        """Map every declared weight to checkpoint tensors."""

    def build(self, g: Graph, cfg: Any, ctx: Context) -> None:
        """Declare the graph."""

    def limits(self, cfg: Any) -> "Limits":
        """Return what the core needs to know of the model."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Facts of a model for the core: trained context in tokens, vocabulary rows, layers, width."""

    max_context: int
    n_vocab: int
    n_layer: int
    n_embd: int
