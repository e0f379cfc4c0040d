"""Read a checkpoint's metadata, find the architecture that knows it, and let that declare."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from radiance_abi.architectures import Architecture, Context, Graph
from radiance_abi.architectures import Limits as ModelLimits
from radiance_abi.encoding import decode
from radiance_core import discover
from radiance_core.graph.builder import GraphBuilder
from radiance_core.graph.errors import ModelConfigError
from radiance_core.graph.ir import GraphIR
from radiance_core.graph.raw import RawConfig
from radiance_core.graph.sampler import declare_sampler
from radiance_core.graph.weights import WeightCatalog
from radiance_core.model_files import Checkpoint, open_checkpoint
from radiance_core.resolve.resolver import Resolver


@dataclass(frozen=True, slots=True)
class Metadata:
    """A checkpoint with the architecture that reads it."""

    checkpoint: Checkpoint
    arch: Architecture
    raw: RawConfig
    cfg: Any
    limits: ModelLimits


def read_metadata(path: Path) -> Metadata:
    """Open the checkpoint, find its architecture and read its configuration strictly."""
    checkpoint = open_checkpoint(path)
    raw = RawConfig(
        checkpoint.metadata,
        checkpoint.format,
        str(path),
        checkpoint.tensors,
        lambda name: _decoded(checkpoint, name),
    )
    arch = find_architecture(checkpoint, str(path))
    cfg = arch.read(raw)
    raw.finish()
    return Metadata(checkpoint, arch, raw, cfg, arch.limits(cfg))


def find_architecture(checkpoint: Checkpoint, where: str) -> Architecture:
    """Return the architecture of the pair (id, quant); an exact quant wins over the empty one.

    Raises:
        ModelConfigError: the file names no architecture, or none is installed that serves it.
    """
    key = "general.architecture" if checkpoint.format == "gguf" else "model_type"
    name = checkpoint.metadata.get(key)
    if not isinstance(name, str):
        raise ModelConfigError(
            f"{where}: key {key}: expected the name of an architecture, got {name!r}"
        )
    arch_id = name.replace("_", "") if checkpoint.format != "gguf" else name
    quant = ""
    config = checkpoint.metadata.get("quantization_config")
    if checkpoint.format != "gguf" and isinstance(config, dict):
        quant = str(config.get("quant_method", ""))
    found = discover.architectures()
    arch = found.items.get((arch_id, quant)) or found.items.get((arch_id, ""))
    if arch is None:
        served = ", ".join(sorted({f"{i}" + (f" ({q})" if q else "") for i, q in found.items}))
        broken = "".join(f" {r.reason}" for r in found.refused)
        raise ModelConfigError(
            f"{where}: architecture {arch_id!r} is served by no installed plugin; installed: "
            f"{served or 'none'}. Install the package that has it.{broken}"
        )
    result: Architecture = arch
    return result


def declare(
    metadata: Metadata, ctx: Context, libraries: discover.Libraries, resolver: Resolver
) -> GraphIR:
    """Let the architecture declare its graph, and append the sampler."""
    catalog = WeightCatalog(
        metadata.arch.names(metadata.cfg, metadata.raw),
        metadata.checkpoint.tensors,
        str(metadata.checkpoint.path),
    )
    builder = GraphBuilder(ctx, libraries.schemas, catalog, resolver.serves)
    # An architecture sees the contract only; it hands back no value that it was not given.
    metadata.arch.build(cast("Graph", builder), metadata.cfg, ctx)
    logits = builder.finish().outputs["logits"]
    drawn = declare_sampler(builder, logits, ctx.max_seqs * ctx.max_context)
    for name, value in drawn.items():
        builder.output(name, value)
    return builder.finish()


def _decoded(checkpoint: Checkpoint, name: str) -> np.ndarray:
    facts = checkpoint.tensors[name]
    return decode(facts.encoding, checkpoint.read(name), facts.shape)
