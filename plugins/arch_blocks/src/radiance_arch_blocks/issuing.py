"""Issuing an op whose number of results is known."""

from typing import Any

from radiance_abi.architectures import Graph, Value

Params = dict[str, int | float | str | None]
"""Params of an op by name; None leaves one out."""


def one(g: Graph, op: str, *operands: Any, **params: float | str | None) -> Value:
    """Issue an op that has one result and return it."""
    result: Value = g.op(op, *operands, **params)
    return result
