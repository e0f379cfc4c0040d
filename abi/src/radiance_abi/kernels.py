"""Kernel rows and kernel libraries: what a kernel plugin hands to the core.

One file, because it is all that a kernel library in Python knows of the core.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from radiance_abi.encoding import Encoding
from radiance_abi.errors import AbiError
from radiance_abi.tensor import Tensor

ABI_VERSION = 1
"""The contract's number; equals RAD_ABI_VERSION of the C header."""

Geometry = Mapping[str, int | float | str]
"""Params of a node by name; a ranged one holds the upper bound of its band."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition on one param: ``op`` is "eq", "le", "ge", "div" or "in".

    A param that is absent from the geometry does not satisfy it, and float params never do.
    ``words`` (for "in") are the admitted strings, the preferred one first.
    """

    key: str
    op: str
    value: int = 0
    words: tuple[str, ...] = ()

    def holds(self, value: object) -> bool:
        """Return whether ``value`` satisfies the condition."""
        if self.op == "in":
            return isinstance(value, str) and value in self.words
        if not isinstance(value, int):
            return False
        return {
            "eq": value == self.value,
            "le": value <= self.value,
            "ge": value >= self.value,
            "div": self.value != 0 and value % self.value == 0,
        }[self.op]

    def __str__(self) -> str:
        if self.op == "in":
            return f"{self.key} in {{{','.join(self.words)}}}"
        sign = {"eq": "=", "le": "<=", "ge": ">=", "div": " multiple of "}[self.op]
        return f"{self.key}{sign}{self.value}"


def eq(key: str, value: int) -> Constraint:
    """Require that an int param equals ``value``."""
    return Constraint(key, "eq", value)


def le(key: str, value: int) -> Constraint:
    """Require that an int param is at most ``value``."""
    return Constraint(key, "le", value)


def ge(key: str, value: int) -> Constraint:
    """Require that an int param is at least ``value``."""
    return Constraint(key, "ge", value)


def div(key: str, value: int) -> Constraint:
    """Require that an int param is a multiple of ``value``."""
    return Constraint(key, "div", value)


def isin(key: str, *words: str) -> Constraint:
    """Require that a string param is one of ``words``; a single text of several words is split."""
    return Constraint(key, "in", 0, tuple(w for word in words for w in word.split()))


@dataclass(frozen=True, slots=True)
class Axis:
    """A tunable of a kernel: ascending legal ``values``, one of which is the ``default``.

    The value that was chosen stands among the params that hooks see, and in ``Call.params`` of a
    kernel in Python; ``init`` of one in C keeps what its ``run`` needs. An axis is for speed: every
    value gives the same bits, which the conformance kit checks.
    """

    name: str
    values: tuple[int, ...]
    default: int

    def __post_init__(self) -> None:
        if self.default not in self.values or list(self.values) != sorted(set(self.values)):
            raise AbiError(
                f"axis {self.name}: expected ascending values that contain the default, "
                f"got values {self.values} and default {self.default}"
            )


AS_IS = "plain"
"""Layout name by which a row takes the single plane of a plain weight as it is stored."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a kernel stores for a weight, and so what its operand looks like.

    ``name``: equal names mean equal bytes for equal planes. ``dtype``: a dtype name; ``shape``:
    extents of the stored dense tensor. ``row_block``: relayout is called on row ranges that begin
    at multiples of it. ``tag``: the kernel's own number, handed back at each call.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    row_block: int = 1
    tag: int = 0


@dataclass(slots=True)
class Call:
    """One call of a kernel written in Python.

    ``tensors``: operands in schema order, narrowed to this step's rows, None where an optional
    one is absent; each has ``__dlpack__`` and ``numpy()``. ``params``: by name, optional ones
    filled with their defaults. ``layouts``: in operand order, None unless the operand is a
    laid-out weight.
    """

    tensors: Sequence[Tensor | None]
    params: Geometry
    layouts: Sequence[Layout | None] = ()
    state: Any = None

    def arrays(self) -> list[np.ndarray | None]:
        """Return the operands as numpy arrays that share memory."""
        return [None if t is None else t.numpy() for t in self.tensors]


class LayoutHook(Protocol):
    """Say what is stored for a weight operand."""

    def __call__(
        self, encoding: Encoding, shape: tuple[int, ...], geometry: Geometry, operand: int
    ) -> Layout | None:
        """Return the layout, or None for "I do not read this encoding". Must not allocate."""


class RelayoutHook(Protocol):
    """Write rows [first, last) of a weight into ``stored`` from its planes; lossless."""

    def __call__(
        self,
        encoding: Encoding,
        layout: Layout,
        planes: Mapping[str, np.ndarray],
        stored: np.ndarray,
        first: int,
        last: int,
        geometry: Geometry,
        operand: int,
    ) -> None:
        """``planes`` are narrowed to those rows (tables whole); ``stored`` is the whole weight."""


class UnrelayoutHook(Protocol):
    """Give the planes of rows [first, last) back from ``stored``."""

    def __call__(
        self,
        encoding: Encoding,
        layout: Layout,
        stored: np.ndarray,
        first: int,
        last: int,
        geometry: Geometry,
        operand: int,
    ) -> dict[str, np.ndarray]:
        """Return arrays of the extents that the encoding gives those rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One row of a kernel library.

    Args:
        op: op it serves.
        name: unique in the library for this op.
        run: ``run(call)`` computes everything; with ``tiles``, ``run(call, first, last, worker)``
            computes pieces [first, last), whose results must not depend on the worker or on the
            grouping.
        where: constraints, all of which must hold.
        tiles: ``tiles(call)`` says how many independent pieces a call has.
        layout, relayout, unrelayout: for kernels that read weights of several planes or store
            their own arrangement. Without ``layout`` a kernel reads plain encodings only, as they
            are.
        init, fini: ``init(geometry)`` makes the state of one resolved node, ``fini(state)``
            frees it.
        scratch: ``scratch(geometry)`` bytes that one worker needs.
        replaces: ops of which this one is the byte-equal fusion.
        native: address of the RadKernel row for a kernel written in C, else 0.
    """

    op: str
    name: str
    run: Callable[..., None]
    where: Sequence[Constraint] = ()
    domain: str = "host"
    priority: int = 0
    axes: Sequence[Axis] = ()
    tiles: Callable[[Call], int] | None = None
    layout: LayoutHook | None = None
    relayout: RelayoutHook | None = None
    unrelayout: UnrelayoutHook | None = None
    init: Callable[[Geometry], Any] | None = None
    fini: Callable[[Any], None] | None = None
    scratch: Callable[[Geometry], int] | None = None
    replaces: str | None = None
    describe: str | None = None
    native: int = 0

    def __post_init__(self) -> None:
        if self.domain not in ("host", "device"):
            raise AbiError(
                f"kernel {self.name}: domain: expected host or device, got {self.domain!r}"
            )


@dataclass(frozen=True, slots=True)
class KernelLibrary:
    """A named set of kernel rows.

    Args:
        name: plugin id, as ``--kernels`` spells it.
        version: for people.
        target: "host", or the device it serves.
        kernels: the rows, in order of declaration.
        schemas: schema lines of ops of its own; standard ops need none.
        reference: an oracle and last resort: resolves after all others and stops start-up.
        declined: why this machine is not served, or None.
        about: what was found on this machine ("avx512 vnni bf16"), for people.
        abi_version: the contract it was built for.
    """

    name: str
    version: str = "0"
    target: str = "host"
    kernels: Sequence[Kernel] = ()
    schemas: Sequence[str] = ()
    reference: bool = False
    declined: str | None = None
    about: str = ""
    abi_version: int = ABI_VERSION
