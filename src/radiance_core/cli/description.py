"""What ``/server_info`` and ``/graph`` say about how the model was built, as JSON."""

from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import PurePath

import msgspec

from radiance_core.build import Plan
from radiance_core.cli.model_settings import max_queued
from radiance_core.config import Config
from radiance_core.plan.budget import MIB
from radiance_core.resolve.facts import graph_facts, libraries, tuning_facts
from radiance_core.settings import SETTINGS
from radiance_core.startup_report import model_id


def describe(plan: Plan, config: Config) -> dict[str, object]:
    """Return the facts of a plan; sizes in bytes, no secret and no path."""
    checkpoint = plan.metadata.checkpoint
    sizes: dict[str, int] = {}
    for tensor in checkpoint.tensors.values():
        name = str(tensor.encoding)
        sizes[name] = sizes.get(name, 0) + tensor.nbytes
    return {
        "architecture": plan.metadata.arch.id,
        "weights": {
            "format": checkpoint.format,
            "bytes": checkpoint.total_bytes,
            "bytes_by_encoding": sizes,
        },
        "kernels": libraries(plan.resolution.nodes),
        "reference_ops": sorted(plan.resolution.reference_ops()),
        "tuning": tuning_facts(plan.tuning, plan.resolution.nodes),
        "cache": {
            "capacity_tokens": plan.budget.capacity_tokens,
            "bytes": plan.budget.cache_bytes,
            "bytes_per_token": plan.budget.token_bytes,
            "groups": [asdict(group) for group in plan.budget.groups],
        },
        "settings": settings(plan, config),
        "setting_sources": sources(config),
    }


def describe_graph(plan: Plan) -> Callable[[], bytes]:
    """Return what makes the text of ``/graph``; it takes its time at the first call only."""
    nodes = plan.resolution.nodes
    return cache(lambda: msgspec.json.encode(graph_facts(nodes)))


def settings(plan: Plan, config: Config) -> dict[str, object]:
    """Return the effective settings: derived ones as derived, secrets hidden, no path."""
    shown: dict[str, object] = {}
    for setting in SETTINGS:
        value = config.values[setting.name]
        shown[setting.name] = ("(hidden)" if value else None) if setting.secret else value
    derived = {
        "model": model_id(plan.metadata.checkpoint.path),
        "tuning": PurePath(config.text("tuning")).name,
        "max-model-len": plan.budget.max_context,
        "max-queued-requests": max_queued(config),
        "memory-mib": plan.budget.card // MIB,
        "threads": plan.settings.threads or plan.machine.num_cpus,
    }
    return shown | derived


def sources(config: Config) -> dict[str, str]:
    """Return where each setting came from; of a settings file its name only, not where it lies."""
    return {name: PurePath(source).name for name, source in config.sources.items()}
