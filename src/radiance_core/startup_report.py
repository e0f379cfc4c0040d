"""The startup report: model, machine, kernels, budget, settings, warnings, time per stage."""

import textwrap
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from radiance_core.build import Plan
from radiance_core.chat_format.choose import describe_format
from radiance_core.chat_format.format import ChatFormat
from radiance_core.config import Config, spell
from radiance_core.model_files import Checkpoint
from radiance_core.model_files.gguf_types import FILE_TYPES
from radiance_core.plan.budget import MIB
from radiance_core.settings import SETTINGS

WIDTH = 11
COLUMNS = 100
_SIZE_COLUMNS = 11


def _size(nbytes: float) -> str:
    """Spell bytes for people."""
    sign, nbytes = ("-" if nbytes < 0 else ""), abs(nbytes)
    if nbytes >= 2**30:
        return f"{sign}{nbytes / 2**30:.1f} GiB"
    return f"{sign}{nbytes / MIB:.1f} MiB"


def _row(head: str, text: str) -> str:
    return "\n".join(_lines(head, text, COLUMNS))


def _lines(head: str, text: str, columns: int) -> list[str]:
    """Wrap a row at words, what goes on standing where it began; a longer word stays whole."""
    begin = f"  {head:<{WIDTH}} "
    indent = " " * (len(begin) + len(text) - len(text.lstrip()))
    return textwrap.wrap(
        begin + text, columns, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _sized_row(head: str, text: str, size: str) -> str:
    """Wrap a row whose size stands at the right of its last line."""
    room = COLUMNS - _SIZE_COLUMNS - 1
    *lines, last = _lines(head, text, room)
    return "\n".join([*lines, f"{last:<{room}} {size:>{_SIZE_COLUMNS}}"])


def model_line(plan: Plan) -> str:
    """Name the model, its family, size, kind of file and context."""
    checkpoint = plan.metadata.checkpoint
    return (
        f"{model_id(checkpoint.path)}  {plan.metadata.arch.id}  {_size(checkpoint.total_bytes)}  "
        f"{_kind(checkpoint)}  ctx {plan.budget.max_context:,}"
    )


def _kind(checkpoint: Checkpoint) -> str:
    """Say what the weights are: a GGUF file's type as people call it, else the encodings."""
    if checkpoint.format == "gguf":
        stated = checkpoint.metadata.get("general.file_type")
        if isinstance(stated, int) and stated in FILE_TYPES:
            return FILE_TYPES[stated]
    sizes: dict[str, int] = {}
    for t in checkpoint.tensors.values():
        sizes[str(t.encoding)] = sizes.get(str(t.encoding), 0) + t.nbytes
    most = sorted(sizes, key=lambda e: -sizes[e])[:2]
    return ", ".join(most) + (f" and {len(sizes) - 2} more" if len(sizes) > 2 else "")


def model_id(path: Path) -> str:
    """Return the name that a model is served under: its file or folder, without the ending."""
    return path.resolve().name.removesuffix(".gguf")


def kernels_line(plan: Plan) -> str:
    """Count the ops that each library serves."""
    ops: dict[str, set[str]] = {}
    bands = 0
    for n in plan.resolution.nodes:
        for b in n.bands:
            ops.setdefault(b.library.name, set()).add(n.node.schema.op)
            bands = max(bands, len(n.bands))
    each = ", ".join(f"{name} {len(mine)} ops" for name, mine in ops.items())
    served = f"{each} · " if len(ops) > 1 else f"{''.join(ops)}: "
    distinct = len({o for mine in ops.values() for o in mine})
    ms = plan.stage_seconds.get("resolve", 0.0) * 1e3
    reference = sorted(set(plan.resolution.reference_ops().values())) or ["none"]
    cut = f"up to {bands} bands" if bands > 1 else "1 band each"
    return (
        f"{served}{distinct} ops, {len(plan.resolution.nodes)} nodes, {cut} "
        f"resolved in {ms:.0f} ms · reference: {', '.join(reference)}{_activations(plan)}"
    )


def _activations(plan: Plan) -> str:
    """Say which numbers weights meet, where those are not what the model computes with anyway.

    Where int8 was asked for, also that: it narrows to bf16 what meets bf16 weights, or nothing.
    """
    nodes = [n.node for n in plan.resolution.nodes]
    counts = {node.params["planes"] for node in nodes if "planes" in node.params}
    names = [name for planes, name in ((2, "int16"), (1, "int8")) if planes in counts]
    products = {node.schema.op: node for node in nodes if "gemm" in node.schema.op}
    names += ["bf16"] if any("_bf16" in op for op in products) else []
    if plan.settings.activation_planes == 1:
        plain = (n.params for n in products.values() if "_bf16" not in n.schema.op)
        names += sorted({str(p["dtype"]) for p in plain if "dtype" in p and "planes" not in p})
    return f" · activations: {' and '.join(names)}" if names else ""


def tuning_line(plan: Plan) -> str:
    """Say which file of choices was read and how much of it applies; "" when no kernel has axes."""
    bands = [b for n in plan.resolution.nodes for b in n.bands if b.axes]
    source = plan.tuning.source
    if source is None:
        return "defaults of all kernels (rad-tune measures)" if bands else ""
    used = len({id(b.choice) for b in bands if b.choice is not None})
    others = plan.tuning.passed_over
    rest = (
        f"; for libraries that are not loaded: {', '.join(f'{n} {c}' for n, c in others.items())}"
    )
    applies = "choice applies" if used == 1 else "choices apply"
    return f"{source}: {used} {applies} to this model{rest if others else ''}"


def machine_line(plan: Plan) -> str:
    """Say what the machine is, as measured."""
    m = plan.machine
    group = "none" if m.memory.cgroup_limit is None else _size(m.memory.cgroup_limit)
    return (
        f"{m.cpu} ({' '.join(m.features) or 'no vector extension of note'})  {m.num_cpus} cores  "
        f"{_size(m.memory.total)}, {_size(m.memory.available)} free (cgroup: {group})"
    )


def settings_line(config: Config) -> str:
    """Spell the settings that are not the default, and where each came from."""
    set_here = [
        f"--{s.name} {'(hidden)' if s.secret else spell(config.values[s.name])} "
        f"({config.sources[s.name]})"
        for s in SETTINGS
        if config.sources[s.name] != "default" and s.name != "model"
    ]
    return " · ".join(set_here) or "all default"


def warnings_of(plan: Plan) -> list[str]:
    """Say what an operator should know, each with its remedy."""
    found = []
    ops = plan.resolution.reference_ops()
    if ops:
        found.append(
            f"{len(ops)} ops are served by a reference library, far slower than this machine can: "
            f"{', '.join(sorted(ops))}. Add a library that implements them to --kernels."
        )
    found += [
        f"{r.found} was refused: {r.reason}" for r in plan.libraries.refused if not r.declined
    ]
    found += plan.tuning.warnings
    if plan.machine.small_pages is not None:
        found.append(
            "no huge pages, without which decoding takes up to 1.5 times as long: "
            f"{plan.machine.small_pages}."
        )
    if plan.budget.cache_bytes > plan.machine.memory.available:
        found.append(
            f"the conversation cache may grow to {_size(plan.budget.cache_bytes)} and "
            f"{_size(plan.machine.memory.available)} are free now; lower --memory-mib or "
            "--max-num-seqs."
        )
    return found


def report(plan: Plan, config: Config, version: str) -> str:
    """Return the report but its last lines, which need the model loaded."""
    lines = [f"STARTUP REPORT  radiance {version} · {time.strftime('%Y-%m-%d')}"]
    lines.append(_row("model", model_line(plan)))
    lines.append(_row("machine", machine_line(plan)))
    lines.append(_row("kernels", kernels_line(plan)))
    if tuning := tuning_line(plan):
        lines.append(_row("tuning", tuning))
    head = "budget"
    for text, nbytes in plan.budget.lines():
        lines.append(_sized_row(head, text, _size(nbytes)))
        head = ""
    lines.append(_row("settings", settings_line(config)))
    for index, text in enumerate(warnings_of(plan) or ["none"]):
        lines.append(_row("warnings" if index == 0 else "", text))
    return "\n".join(lines)


def chat_line(form: ChatFormat) -> str:
    """Say how the model spells tool calls and thoughts, and where that is known from."""
    return _row("chat", describe_format(form))


def ready_line(total_s: float, stages: Mapping[str, float]) -> str:
    """Spell the time to ready; what the stages do not explain is named "other"."""
    named = {name: s for name, s in stages.items() if s >= 0.005}
    parts = [f"{name} {s:.2f}" for name, s in named.items()]
    parts.append(f"other {max(total_s - sum(named.values()), 0):.2f}")
    return _row("ready in", f"{total_s:.2f} s   {' · '.join(parts)}")


def placement_text(plan: Plan) -> str:
    """Spell where every weight and pool goes (``--debug-placement``)."""
    lines = ["weights: host memory, laid out for the kernel that reads them"]
    for site in plan.sites.values():
        layout = site.layout.name if site.layout else "as it is"
        lines.append(
            f"  {site.weight.name:<36} {site.weight.encoding!s:<28} {layout:<18} "
            f"{_size(site.nbytes):>11}"
        )
    lines.append(
        f"activations: one arena of {_size(plan.arena.total_bytes)} "
        f"({_size(plan.arena.unpacked_bytes)} if nothing were shared)"
    )
    lines += _pools(plan)
    return "\n".join(lines)


def _pools(plan: Plan) -> Iterable[str]:
    for g in plan.budget.groups:
        window = f" window {g.window}" if g.window else ""
        yield (
            f"cache {g.name}: {g.num_layers} layers, {g.pages} pages of {g.block_size} tokens, "
            f"{g.dtype}{window}, {_size(g.total_bytes)}"
        )
