"""A graph builder over made-up tensors, libraries that need no kernels, and ops of our own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from radiance_abi import Encoding, plain
from radiance_abi.architectures import Context, Source
from radiance_abi.ops import OpSchema, parse_schema
from radiance_abi.vocabulary import STANDARD
from radiance_core.graph.builder import GraphBuilder
from radiance_core.graph.ir import Node
from radiance_core.graph.weights import WeightCatalog

CTX = Context(format="gguf", max_tokens=32, max_seqs=4, max_context=64)


@dataclass(frozen=True)
class Facts:
    """What a checkpoint says of a tensor."""

    shape: tuple[int, ...]
    encoding: Encoding


def f32(*shape: int) -> Facts:
    """A plain f32 tensor."""
    return Facts(shape, plain("f32"))


def builder(
    tensors: Mapping[str, Facts] | None = None,
    names: Mapping[str, Source] | None = None,
    schemas: Sequence[str] = (),
    serves: Callable[[Node], bool] = lambda node: True,
) -> GraphBuilder:
    """A builder; without ``names`` every tensor is a weight of its own name."""
    tensors = tensors or {}
    names = {n: Source((n,)) for n in tensors} if names is None else names
    known: dict[str, OpSchema] = dict(STANDARD)
    known |= {s.op: s for s in map(parse_schema, schemas)}
    return GraphBuilder(CTX, known, WeightCatalog(names, tensors, "model.gguf"), serves)
