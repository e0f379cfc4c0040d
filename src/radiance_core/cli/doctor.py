"""``radiance doctor``: a report to paste; what is wrong comes with a remedy."""

import platform
import sys
from collections.abc import Callable
from typing import TypeVar

import importlib_metadata

from radiance_abi.errors import RadianceError
from radiance_core import hardware
from radiance_core.cli.plugins import plugins_text
from radiance_core.config import Config, strange_variables
from radiance_core.discover import core_version

T = TypeVar("T")
PACKAGES = ("radiance-abi", "numpy", "cffi", "aiohttp", "tokenizers", "jinja2", "msgspec", "pluggy")


def doctor_text(model: str | None, settings: Callable[[], Config]) -> tuple[str, bool]:
    """Return the report, and whether everything is sound.

    Args:
        model: one that is to be served; None takes the one of the settings, if they name one.
        settings: returns them, or raises what is wrong with them.
    """
    lines = _about()
    lines += [f"note       {note}" for note in strange_variables()]
    faults: list[str] = []

    def part(head: str, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except RadianceError as error:
            faults.append(head)
            lines.extend(["", f"{head}: {error}"])
            return None

    config = part("settings", settings)
    if config is not None:
        model = model or (str(config.values["model"]) if config.values["model"] else None)
    kernels = (config.names("kernels") or None) if config else None
    texts = [part("plugins", lambda: plugins_text(kernels))]
    if model is not None and config is not None:
        texts.append(part("model", lambda: _model(model, config)))
    for text in texts:
        lines += ["", text] if text is not None else []
    lines += ["", "a fault was found, see above" if faults else "no fault found"]
    return "\n".join(lines), not faults


def _about() -> list[str]:
    """Say what everything runs on: versions, processor, memory."""
    m = hardware.machine()
    group = "none" if m.memory.cgroup_limit is None else f"{m.memory.cgroup_limit / 2**30:.1f} GiB"
    quota = hardware.cgroup_cpus()
    return [
        f"radiance {core_version()}  Python {platform.python_version()}  {platform.platform()}",
        f"processor  {m.cpu}, {m.num_cpus} usable"
        + (f" (control group allows {quota:g})" if quota else ""),
        f"features   {' '.join(m.features) or 'none of note'}",
        f"memory     {m.memory.total / 2**30:.1f} GiB, {m.memory.available / 2**30:.1f} free, "
        f"control-group limit {group}",
        f"huge pages {'given on request' if m.small_pages is None else f'none: {m.small_pages}'}",
        f"packages   {', '.join(f'{p} {_version(p)}' for p in PACKAGES)}",
        f"prefix     {sys.prefix}",
    ]


def _version(package: str) -> str:
    try:
        return str(importlib_metadata.version(package))
    except importlib_metadata.PackageNotFoundError:
        return "missing"


def _model(model: str, config: Config) -> str:
    from radiance_core.build import plan_model
    from radiance_core.cli.model_settings import build_settings, resolve_model
    from radiance_core.startup_report import report

    plan = plan_model(build_settings(config, resolve_model(model)))
    return report(plan, config, core_version())
