"""What the machine allows: control groups of any nesting, faked as folders."""

import os
from pathlib import Path

import psutil
import pytest

from radiance_core import hardware
from radiance_core.hardware import (
    cgroup_cpus,
    cgroup_memory,
    machine,
    memory,
    small_pages,
    usable_cpus,
)

GIB, MIB = 2**30, 2**20


class Groups:
    """A tree of control groups, and the file that says in which one we are."""

    def __init__(self, path: Path) -> None:
        self.root = path / "cgroup"
        self.root.mkdir()
        self.own = path / "own"
        self.inside("/")

    def inside(self, group: str) -> None:
        self.own.write_text(f"0::{group}\n")

    def set(self, group: str, **files: object) -> None:
        folder = self.root / group.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            (folder / name.replace("_", ".", 1)).write_text(f"{value}\n")


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(tmp_path)


@pytest.fixture(autouse=True)
def big_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = tmp_path / "meminfo"
    whole.write_text(
        f"MemTotal:       {64 * MIB} kB\nMemFree:        {9 * MIB} kB\n"
        f"MemAvailable:   {40 * MIB} kB\nHugePages_Total:       0\n"
    )
    monkeypatch.setattr(hardware, "MEMINFO", whole)


def test_memory_is_what_another_program_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of one look at the real machine the same is read as by psutil."""
    (tmp_path / "meminfo").write_bytes(Path("/proc/meminfo").read_bytes())
    monkeypatch.setattr(hardware, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    theirs, ours = psutil.virtual_memory(), hardware._whole_memory()
    assert ours == (theirs.total, theirs.available)
    monkeypatch.setattr(psutil, "PROCFS_PATH", "/proc")
    assert usable_cpus() <= len(psutil.Process().cpu_affinity() or [])


def test_no_limit_is_the_machine(groups: Groups) -> None:
    """Without files, with "max", and with a limit above the machine, the machine counts."""
    for limit in (None, "max", 100 * GIB):
        if limit is not None:
            groups.set("/", memory_max=limit, memory_current=5)
        m = memory(groups.root, groups.own)
        assert (m.total, m.available, m.cgroup_limit) == (64 * GIB, 40 * GIB, None)


def test_a_limit_stands_for_the_machine(groups: Groups) -> None:
    """A group's limit is all there is, and what it uses is gone."""
    groups.set("/", memory_max=8 * GIB, memory_current=3 * GIB)
    m = memory(groups.root, groups.own)
    assert (m.total, m.available, m.cgroup_limit) == (8 * GIB, 5 * GIB, 8 * GIB)


def test_file_pages_are_not_in_the_way(groups: Groups) -> None:
    """Pages of files that the system can drop count as free."""
    stat = f"anon 1\ninactive_file {2 * GIB}\nactive_file 7"
    groups.set("/", memory_max=8 * GIB, memory_current=3 * GIB, memory_stat=stat)
    assert cgroup_memory(groups.root, groups.own) == (8 * GIB, 7 * GIB)


def test_the_tightest_of_nested_limits_counts(groups: Groups) -> None:
    """Limits of every enclosing group hold; limit and free memory may come from different ones."""
    groups.inside("/a/b/c")
    groups.set("/", memory_max=32 * GIB, memory_current=30 * GIB)
    groups.set("/a", memory_max=6 * GIB, memory_current=1 * GIB)
    groups.set("/a/b", memory_max="max", memory_current=1 * GIB)
    groups.set("/a/b/c", memory_max=10 * GIB, memory_current=1 * GIB)
    groups.set("/other", memory_max=1, memory_current=0)
    assert cgroup_memory(groups.root, groups.own) == (6 * GIB, 2 * GIB)


def test_more_in_use_than_allowed(groups: Groups) -> None:
    """A group above its limit has nothing free, not less than nothing."""
    groups.set("/", memory_max=1 * GIB, memory_current=2 * GIB)
    assert memory(groups.root, groups.own).available == 0


def test_strange_files_are_no_limit(groups: Groups) -> None:
    """A group that is not visible here, and files with other text, limit nothing."""
    groups.inside("/not/mounted/here")
    assert cgroup_memory(groups.root, groups.own) is None
    groups.own.write_text("12:memory:/old\n")
    groups.set("/", memory_max="lots", cpu_max="nonsense")
    assert cgroup_memory(groups.root, groups.own) is None
    assert cgroup_cpus(groups.root, groups.own) is None
    assert cgroup_memory(groups.root, groups.root / "no such file") is None


def test_processors(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are what affinity and the tightest quota allow, and never none."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert usable_cpus(groups.root, groups.own) == 8
    groups.inside("/a/b")
    groups.set("/a", cpu_max="250000 100000")
    groups.set("/a/b", cpu_max="max 100000")
    assert cgroup_cpus(groups.root, groups.own) == 2.5
    assert usable_cpus(groups.root, groups.own) == 2
    groups.set("/a/b", cpu_max="20000 100000")
    assert usable_cpus(groups.root, groups.own) == 1
    groups.set("/a/b", cpu_max="9900000 100000")
    groups.set("/a", cpu_max="9900000 100000")
    assert usable_cpus(groups.root, groups.own) == 8


@pytest.mark.parametrize("given", ["always [madvise] never", "[always] madvise never"])
def test_huge_pages_are_given_or_said_why_not(given: str, tmp_path: Path) -> None:
    """A system without them, one that never gives them and a process without each are told."""
    setting, status = tmp_path / "enabled", tmp_path / "status"
    assert small_pages(setting, status) == (
        f"this system has none ({setting}: no such file); run on a kernel that has them"
    )
    setting.write_text(f"{given}\n")
    assert small_pages(setting, status) is None
    status.write_text("Name:\tpython3\nTHP_enabled:\t1\n")
    assert small_pages(setting, status) is None
    status.write_text("Name:\tpython3\nTHP_enabled:\t0\n")
    assert small_pages(setting, status) == (
        f"{status} says THP_enabled: 0; start radiance from what does not disable them"
    )
    setting.write_text("always madvise [never]\n")
    assert small_pages(setting, status) == (
        f"{setting} says never; as root: echo madvise > {setting}"
    )


def test_this_machine() -> None:
    """The real machine has a name, a processor and memory, and known features only."""
    m = machine()
    assert m.cpu
    assert 1 <= m.num_cpus <= (os.cpu_count() or 1)
    assert set(m.features) <= set(hardware._LEVELS)
    assert 0 < m.memory.available <= m.memory.total
    assert m.small_pages == small_pages()
