"""Resolve a whole graph: attention first, since it fixes what its state group looks like."""

from collections.abc import Mapping
from dataclasses import dataclass

from radiance_core.graph.errors import ResolveError
from radiance_core.graph.ir import GraphIR, KvLayer, Node
from radiance_core.resolve.report import misses_text, reference_text
from radiance_core.resolve.resolver import Resolver
from radiance_core.resolve.result import Miss, ResolvedNode


@dataclass(frozen=True, slots=True)
class KvFormat:
    """How a group's pool is arranged, as its resolved attention kernel wants it."""

    block_size: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """A graph with a kernel for every op in every band."""

    graph: GraphIR
    nodes: tuple[ResolvedNode, ...]
    kv: Mapping[str, KvFormat]

    def reference_ops(self) -> dict[str, str]:
        """Return the ops that resolve to a reference library, and its name."""
        return {
            n.node.schema.op: b.library.name
            for n in self.nodes
            for b in n.bands
            if b.library.reference
        }


def resolve(graph: GraphIR, resolver: Resolver, kv_dtype: str | None = None) -> Resolution:
    """Resolve every node.

    Args:
        graph: what was declared.
        resolver: finds kernels.
        kv_dtype: element type of the conversation cache; None lets the attention kernel prefer.

    Raises:
        ResolveError: some band of some op has no kernel; lists all of them.
    """
    misses: list[Miss] = []
    done: dict[int, ResolvedNode] = {}
    kv: dict[str, KvFormat] = {}
    for index, node in enumerate(graph.nodes):
        if _group(node) is not None and any(p.derived for p in node.schema.params):
            pinned = {"kv_dtype": kv_dtype} if kv_dtype else {}
            done[index], missed = resolver.resolve(node, {**pinned, **_fixed(kv, node)})
            misses += missed
            _take_format(kv, node, done[index])
    for index, node in enumerate(graph.nodes):
        if index not in done:
            done[index], missed = resolver.resolve(node, _fixed(kv, node))
            misses += missed
    if misses:
        raise ResolveError(misses_text(misses))
    for group in graph.kv_groups:
        if group.name not in kv:
            raise ResolveError(
                f"kv group {group.name}: expected an attention op that reads it, got none, so "
                "nothing says how its pool is laid out; the architecture plugin is broken"
            )
    return Resolution(graph, tuple(done[i] for i in range(len(graph.nodes))), kv)


def refuse_reference(resolution: Resolution, arch: str, others: Mapping[str, list[str]]) -> None:
    """Stop when some op resolves only to a reference library.

    Args:
        resolution: the resolved graph.
        arch: architecture id, for the text.
        others: op to installed libraries that serve it but were not loaded.

    Raises:
        ResolveError: names every such op, what would serve it fast, and what does not and why.
    """
    ops = resolution.reference_ops()
    if ops:
        slow = [
            (n.node.schema.op, b) for n in resolution.nodes for b in n.bands if b.library.reference
        ]
        refusals = dict.fromkeys((op, refusal) for op, band in slow for refusal in band.refused)
        raise ResolveError(reference_text(ops, arch, others, list(refusals)))


def _group(node: Node) -> str | None:
    return next((o.group.name for o in node.operands if isinstance(o, KvLayer)), None)


def _fixed(kv: Mapping[str, KvFormat], node: Node) -> dict[str, int | str]:
    fmt = kv.get(_group(node) or "")
    if fmt is None:
        return {}
    known: dict[str, int | str] = {"block_size": fmt.block_size, "kv_dtype": fmt.dtype}
    return {k: v for k, v in known.items() if node.schema.param(k) and k not in node.params}


def _take_format(kv: dict[str, KvFormat], node: Node, resolved: ResolvedNode) -> None:
    name = _group(node)
    if name is None or name in kv or not resolved.bands:
        return
    params = resolved.bands[0].params
    size, dtype = params.get("block_size"), params.get("kv_dtype")
    if not isinstance(size, int) or not isinstance(dtype, str):
        kernel = resolved.bands[0].kernel.name
        raise ResolveError(
            f"{node.schema.op}: kernel {kernel} of {resolved.bands[0].library.name} must fix "
            "block_size (eq) and kv_dtype (in), so that the pool can be laid out"
        )
    kv[name] = KvFormat(size, dtype)
