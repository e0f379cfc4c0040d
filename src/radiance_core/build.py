"""The composition root: from settings to a model that can run steps, one stage after another.

config -> discover plugins -> read metadata -> declare graph -> resolve kernels -> plan memory
       -> load weights -> bind step program
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from radiance_abi.architectures import Context
from radiance_core import discover, hardware
from radiance_core.bind import Bound, bind
from radiance_core.declare import Metadata, declare, read_metadata
from radiance_core.execute.executor import StepExecutor
from radiance_core.execute.program import SYMBOLS, Executor
from radiance_core.graph.errors import ModelConfigError
from radiance_core.load.loading import Loading
from radiance_core.plan.arena import Arena, pack
from radiance_core.plan.budget import MIB, Budget, Limits, plan_budget
from radiance_core.plan.sites import Site, SiteKey, find_sites
from radiance_core.plan.staging import input_shapes, staging_bytes
from radiance_core.resolve.resolver import Resolver
from radiance_core.resolve.stage import Resolution, refuse_reference, resolve
from radiance_core.resolve.tuning import UNTUNED, Tuning
from radiance_core.resolve.tuning import Machine as MeasuredOn
from radiance_core.resolve.tuning_file import NONE, find_tuning
from radiance_core.runtime import StepModel

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What decides how a model is built; 0 means "derive it" where said.

    ``max_context``: tokens of one conversation, 0 for the model's own. ``threads``: 0 for all
    usable processors. ``max_out_rows``: logits rows of one step, 0 for one per sequence
    and one for each of its ``max_drafts`` guessed tokens.
    ``card_bytes``: what stands for the card, 0 for half of memory. ``executor``: "c" or "twin".
    ``kv_dtype``: element type of the conversation cache, None for what the kernels prefer.
    ``activation_planes``: int8 planes of activations that meet integer weights, 1 or 2.
    ``tuning``: a file of choices for the axes of kernels, "auto" or "none".
    """

    model: Path
    kernels: tuple[str, ...] | None = None
    max_seqs: int = 32
    max_tokens: int = 512
    max_context: int = 0
    max_out_rows: int = 0
    max_drafts: int = 0
    headroom_mib: int = 96
    card_bytes: int = 0
    threads: int = 0
    accept_reference: bool = False
    kv_dtype: str | None = None
    activation_planes: int = 2
    executor: str = "c"
    tuning: str = NONE


@dataclass(frozen=True, slots=True)
class Plan:
    """A model before anything is allocated: everything that can be shown first."""

    settings: BuildSettings
    libraries: discover.Libraries
    metadata: Metadata
    resolution: Resolution
    sites: Mapping[SiteKey, Site]
    arena: Arena
    budget: Budget
    largest: Mapping[str, int]
    machine: hardware.Machine
    stage_seconds: dict[str, float] = field(default_factory=dict)
    tuning: Tuning = UNTUNED


class _Clock:
    """Times the stages."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def stage(self, name: str, work: Callable[[], T]) -> T:
        start = time.monotonic()
        result = work()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start
        return result


def plan_model(settings: BuildSettings) -> Plan:
    """Go from settings to a full plan; allocates and loads nothing.

    Raises:
        RadianceError: a plugin, the model, or the memory does not allow it; says what to do.
    """
    clock = _Clock()
    libraries = clock.stage("discover", lambda: discover.kernel_libraries(settings.kernels))
    metadata = clock.stage("read", lambda: read_metadata(settings.model))
    limits = _limits(settings, metadata)
    largest = _largest(settings, limits)
    machine = hardware.machine()
    here = measured_on(settings, machine, libraries)
    tuning = clock.stage("tuning", lambda: find_tuning(settings.tuning, here, libraries.chosen))
    resolver = Resolver(libraries.chosen, largest, tuning)
    ctx = _context(settings, metadata, limits)
    graph = clock.stage("declare", lambda: declare(metadata, ctx, libraries, resolver))
    resolution = clock.stage("resolve", lambda: resolve(graph, resolver, settings.kv_dtype))
    if not settings.accept_reference and resolution.reference_ops():
        refuse_reference(resolution, metadata.arch.id, discover.serving(libraries.not_named))
    start = time.monotonic()
    sites = find_sites(resolution)
    arena = pack(graph, largest)
    budget = _budget(settings, machine, resolution, sites, arena, limits, largest)
    clock.seconds["plan"] = time.monotonic() - start
    return Plan(
        settings, libraries, metadata, resolution, sites, arena, budget, largest, machine,
        clock.seconds, tuning,
    )  # fmt: skip


def begin_loading(plan: Plan, waiting: Callable[[], None] | None = None) -> Loading:
    """Begin to load a plan's weights, beside whatever is done before ``load_model``.

    Args:
        plan: of the model.
        waiting: called when there is nothing left to do but to wait for the weights.
    """
    return Loading(plan.sites, plan.metadata.checkpoint, num_threads(plan), waiting)


def measured_on(
    settings: BuildSettings, machine: hardware.Machine, libraries: discover.Libraries
) -> MeasuredOn:
    """Return what times that are measured with these settings hold for."""
    versions = {library.name: library.version for library in libraries.chosen}
    return MeasuredOn(machine.cpu, settings.threads or machine.num_cpus, versions)


def load_model(plan: Plan, loading: Loading | None = None) -> StepModel:
    """Allocate, load and bind what a plan says; ``loading`` has begun to load its weights.

    Raises:
        RadianceError: a weight cannot be laid out, or its file was written to meanwhile.
    """
    loading = loading or begin_loading(plan)
    bound, executor = _bind(plan, loading), make_executor(plan)
    limits = [plan.largest[name] for name in SYMBOLS]
    clock = _Clock()
    try:
        handle = clock.stage("executor", lambda: executor.load(bound.program, limits))
        clock.stage("lay out", loading.finish)
        plan.metadata.checkpoint.check_unchanged()
    except BaseException:
        executor.close()
        raise
    plan.stage_seconds.update(clock.seconds)
    return StepModel(bound, executor, handle, plan.budget)


def bind_model(plan: Plan) -> Bound:
    """Return a plan's step program over loaded weights."""
    loading = begin_loading(plan)
    bound = _bind(plan, loading)
    loading.finish()
    plan.metadata.checkpoint.check_unchanged()
    return bound


def _bind(plan: Plan, loading: Loading) -> Bound:
    """Return the step program over weights that are still being loaded."""
    clock = _Clock()
    storages = loading.storages
    groups = {g.name: g for g in plan.budget.groups}
    bound = clock.stage(
        "bind", lambda: bind(plan.resolution, plan.arena, storages, groups, plan.largest)
    )
    plan.stage_seconds.update(clock.seconds)
    return bound


def make_executor(plan: Plan) -> Executor:
    """Return an executor as a plan says, with no program yet."""
    if plan.settings.executor == "twin":
        from radiance_core.execute.twin import TwinExecutor

        return TwinExecutor()
    return StepExecutor(num_threads(plan))


def num_threads(plan: Plan) -> int:
    """Return how many threads compute."""
    return plan.settings.threads or plan.machine.num_cpus


def _limits(settings: BuildSettings, metadata: Metadata) -> Limits:
    trained = metadata.limits.max_context
    if settings.max_context > trained:
        raise ModelConfigError(
            f"--max-model-len: expected at most {trained}, which the model was trained for, got "
            f"{settings.max_context}"
        )
    return Limits(settings.max_seqs, settings.max_tokens, settings.max_context or trained)


def _context(settings: BuildSettings, metadata: Metadata, limits: Limits) -> Context:
    return Context(
        format=metadata.checkpoint.format,
        max_tokens=limits.max_tokens,
        max_seqs=limits.max_seqs,
        max_context=limits.max_context,
        activation_planes=settings.activation_planes,
    )


def _largest(settings: BuildSettings, limits: Limits) -> dict[str, int]:
    tokens, seqs = max(limits.max_tokens, limits.max_seqs), limits.max_seqs
    largest = {name: tokens if "TOKENS" in name else seqs for name in SYMBOLS}
    largest["OUT_ROWS"] = settings.max_out_rows or seqs * (1 + settings.max_drafts)
    largest["MAX_Q_LEN"] = tokens
    return largest


def _budget(
    settings: BuildSettings,
    machine: hardware.Machine,
    resolution: Resolution,
    sites: Mapping[SiteKey, Site],
    arena: Arena,
    limits: Limits,
    largest: Mapping[str, int],
) -> Budget:
    shapes = input_shapes(resolution.graph, resolution.kv, largest)
    paid = {
        "weights": sum(site.nbytes for site in sites.values()),
        "activations": arena.total_bytes,
        "staging": staging_bytes(resolution.graph, shapes),
        "headroom": settings.headroom_mib * MIB,
    }
    half = settings.card_bytes or machine.memory.total // 2
    words = "--memory-mib" if settings.card_bytes else "half of memory (--memory-mib)"
    return plan_budget((words, half), paid, resolution.graph.kv_groups, resolution.kv, limits)
