"""What each step brings in: the extents of its inputs, and the bytes that they take."""

import math
from collections.abc import Mapping

from radiance_abi.dtypes import dtype
from radiance_core.graph.ir import GraphIR
from radiance_core.plan.arena import most
from radiance_core.resolve.stage import KvFormat


def input_shapes(
    graph: GraphIR, formats: Mapping[str, KvFormat], largest: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the greatest extents of every step input; block tables count pages, not tokens."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, value in graph.step_inputs.items():
        shape = tuple(most(d, largest) for d in value.shape)
        group, _, what = name.rpartition(".")
        if what == "block_table":
            shape = (shape[0], -(-shape[1] // formats[group].block_size))
        shapes[name] = shape
    return shapes


def staging_bytes(graph: GraphIR, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the bytes of all step inputs."""
    return sum(
        math.prod(shape) * dtype(graph.step_inputs[name].dtype).bits // 8
        for name, shape in shapes.items()
    )
