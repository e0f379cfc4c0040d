"""What this machine has, as measured: memory, control-group limits, processors, features."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
STATUS = Path("/proc/self/status")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_LEVELS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of memory: what this process may use in all, what is free, the group's limit."""

    total: int
    available: int
    cgroup_limit: int | None


@dataclass(frozen=True, slots=True)
class Machine:
    """Processor name, its instruction sets worth naming, usable processors, memory.

    ``small_pages`` says why the system refuses huge ones, and what to do; None where it has them.
    """

    cpu: str
    features: tuple[str, ...]
    num_cpus: int
    memory: Memory
    small_pages: str | None = None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _own_groups(root: Path, own: Path) -> Iterator[Path]:
    """Yield the folder of this process's control group and of every group around it."""
    text = _read(own) or ""
    rest = next((line[3:] for line in text.splitlines() if line.startswith("0::")), "/")
    folder = root / rest.lstrip("/")
    yield folder
    while folder != root and root in folder.parents:
        folder = folder.parent
        yield folder


def cgroup_memory(root: Path = CGROUP, own: Path = OWN) -> tuple[int, int] | None:
    """Return (limit, free) bytes of the enclosing control groups, each the least, or None.

    What a group uses is told without its reclaimable file pages, which do not stand in the way.
    """
    limits, free = [], []
    for folder in _own_groups(root, own):
        limit = _read(folder / "memory.max") or ""
        if limit.isdigit():
            used = _read(folder / "memory.current") or "0"
            limits.append(int(limit))
            free.append(int(limit) - int(used) + _reclaimable(folder))
    return (min(limits), max(min(free), 0)) if limits else None


def _reclaimable(folder: Path) -> int:
    for line in (_read(folder / "memory.stat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key == "inactive_file":
            return int(value)
    return 0


def memory(root: Path = CGROUP, own: Path = OWN) -> Memory:
    """Measure memory: the machine's, or less where a control group sets a limit."""
    total, available = _whole_memory()
    group = cgroup_memory(root, own)
    if group is None or group[0] >= total:
        return Memory(total, available, None)
    limit, free = group
    return Memory(limit, min(available, free), limit)


def _whole_memory() -> tuple[int, int]:
    """Return the machine's bytes of memory, and how many of them are to be had."""
    lines = (line.partition(":") for line in MEMINFO.read_text(encoding="ascii").splitlines())
    kib = {key: int(rest.split()[0]) for key, _, rest in lines if key.startswith("Mem")}
    return kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024


def cgroup_cpus(root: Path = CGROUP, own: Path = OWN) -> float | None:
    """Return the processors' worth of time that the tightest control group allows, or None."""
    found = []
    for folder in _own_groups(root, own):
        quota, _, period = (_read(folder / "cpu.max") or "").partition(" ")
        if quota.isdigit() and period.isdigit():
            found.append(int(quota) / int(period))
    return min(found, default=None)


def usable_cpus(root: Path = CGROUP, own: Path = OWN) -> int:
    """Return how many threads make sense here: affinity, cut to the group's quota."""
    count = len(os.sched_getaffinity(0))
    quota = cgroup_cpus(root, own)
    return count if quota is None else max(1, min(count, round(quota)))


def small_pages(setting: Path = HUGE_PAGES, status: Path = STATUS) -> str | None:
    """Return why memory that asks for huge pages gets small ones, and what to do; None if not."""
    text = _read(setting)
    if text is None:
        return f"this system has none ({setting}: no such file); run on a kernel that has them"
    if "[never]" in text:
        return f"{setting} says never; as root: echo madvise > {setting}"
    lines = (line.split() for line in (_read(status) or "").splitlines())
    if ["THP_enabled:", "0"] in lines:
        return f"{status} says THP_enabled: 0; start radiance from what does not disable them"
    return None


def machine() -> Machine:
    """Look at this machine."""
    text = _read(Path("/proc/cpuinfo")) or ""
    pairs = (line.partition(":") for line in text.splitlines())
    fields = {key.strip(): value.strip() for key, colon, value in pairs if colon}
    flags = set(fields.get("flags", "").split())
    return Machine(
        fields.get("model name", "unknown processor"),
        tuple(level for level in _LEVELS if level in flags),
        usable_cpus(),
        memory(),
        small_pages(),
    )
