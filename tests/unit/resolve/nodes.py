"""Nodes and libraries made by hand, for resolving without a model."""

from collections.abc import Callable, Sequence
from typing import Any

from radiance_abi import Constraint, Encoding, Kernel, KernelLibrary, Layout, plain
from radiance_abi.architectures import Source
from radiance_abi.ops import parse_schema
from radiance_core.graph.ir import GraphOperand, GraphValue, GraphWeight, Node

SCHEMA = parse_schema("mine(M~, n, eps?:f, word?:s) x[M,n]:f32, weight w?[n]:* -> y[M,n]:f32")


def node(
    params: dict[str, Any] | None = None,
    weight: Encoding | None = None,
    name: str = "mine",
    schema: Any = SCHEMA,
) -> Node:
    """A node of the op ``mine``; ``weight`` is the encoding of its second operand."""
    x = GraphValue("x", ("TOKENS", 8), "f32", "node", 0)
    w = None if weight is None else GraphWeight("w", (8,), weight, Source(("w",)))
    operands: tuple[GraphOperand, ...] = (x, w)
    return Node(name, schema, operands, params or {"n": 8}, (), "TOKENS", "TOKENS")


def kernel(
    name: str,
    *where: Constraint,
    priority: int = 0,
    layout: Callable[..., Layout | None] | None = None,
    op: str = "mine",
    domain: str = "host",
) -> Kernel:
    """A row that is never run."""
    return Kernel(
        op=op,
        name=name,
        run=lambda call: None,
        where=where,
        priority=priority,
        layout=layout,
        domain=domain,
    )


def library(name: str, *kernels: Kernel, reference: bool = False) -> KernelLibrary:
    """A library of rows."""
    return KernelLibrary(name, kernels=kernels, reference=reference)


def gives(name: str, shape: Sequence[int] = (8,), tag: int = 0) -> Callable[..., Layout]:
    """A layout hook that always answers alike."""
    return lambda *_: Layout(name, "f32", tuple(shape), tag=tag)


PLAIN = plain("f32")
