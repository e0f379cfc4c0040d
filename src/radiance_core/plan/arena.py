"""Pack the graph's activations into one arena by liveness."""

from collections.abc import Mapping
from dataclasses import dataclass

from radiance_abi.dtypes import dtype
from radiance_core.graph.ir import Extent, GraphIR, GraphValue

ALIGN = 64


@dataclass(frozen=True, slots=True)
class Arena:
    """Byte offset of every root storage that a node writes, and the whole size in bytes."""

    offsets: Mapping[int, int]
    total_bytes: int
    unpacked_bytes: int


def most(rows: Extent, largest: Mapping[str, int]) -> int:
    """Return the greatest number of rows: a count, a symbol, or a symbol plus a number."""
    if isinstance(rows, int):
        return rows
    name, _, plus = rows.partition("+")
    return largest[name] + int(plus or 0)


def storage_bytes(graph: GraphIR, storage: int, largest: Mapping[str, int]) -> int:
    """Return the most bytes that a storage takes, rounded up to the alignment."""
    s = graph.storages[storage]
    size = most(s.rows, largest) * s.columns * dtype(s.dtype).bits // 8
    return -(-size // ALIGN) * ALIGN


def pack(graph: GraphIR, largest: Mapping[str, int]) -> Arena:
    """Give each root storage an offset; two may share bytes when never alive together.

    A storage lives from the first node that writes it to the last that reads it; named outputs
    live to the end. Larger ones are placed first, each in the lowest gap that its whole life
    leaves free.
    """
    lives = _lives(graph)
    sizes = {root: storage_bytes(graph, root, largest) for root in lives}
    placed: list[tuple[int, int, int, int]] = []  # (offset, end, first node, last node)
    offsets: dict[int, int] = {}
    for root in sorted(lives, key=lambda r: (-sizes[r], lives[r][0])):
        first, last = lives[root]
        taken = sorted((o, e) for o, e, f, n in placed if f <= last and first <= n)
        offset = 0
        for start, end in taken:
            if start - offset >= sizes[root]:
                break
            offset = max(offset, end)
        offsets[root] = offset
        placed.append((offset, offset + sizes[root], first, last))
    total = max((end for _, end, _, _ in placed), default=0)
    return Arena(offsets, total, sum(sizes.values()))


def _lives(graph: GraphIR) -> dict[int, tuple[int, int]]:
    """Return first and last node of each root storage in the arena."""
    outside = {v.storage for v in graph.step_inputs.values()} | set(graph.constants)
    lives: dict[int, tuple[int, int]] = {}

    def touch(value: GraphValue, index: int) -> None:
        root, _ = graph.root(value.storage)
        if root not in outside:
            first, last = lives.get(root, (index, index))
            lives[root] = (min(first, index), max(last, index))

    for index, node in enumerate(graph.nodes):
        for operand in (*node.operands, *node.outputs):
            if isinstance(operand, GraphValue):
                touch(operand, index)
    for value in graph.outputs.values():
        touch(value, len(graph.nodes))
    return lives
