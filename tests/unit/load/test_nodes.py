"""Memory of several nodes: who is used, and that pages are dealt out in turn."""

import os
from pathlib import Path

import pytest

from radiance_core.load import memory
from radiance_core.load.memory import Reservation, padded
from radiance_core.load.nodes import interleave, numbers, used_nodes


def policy_of(address: int) -> str:
    """Return what the system says of the pages at an address, such as ``interleave:0-1``."""
    lines = Path("/proc/self/numa_maps").read_text(encoding="ascii").splitlines()
    return next(line.split()[1] for line in lines if int(line.split()[0], 16) == address)


def machine(folder: Path, memory_nodes: str, cpus: dict[int, str]) -> Path:
    """Return a folder like the kernel's."""
    (folder / "has_memory").write_text(f"{memory_nodes}\n")
    for node, listed in cpus.items():
        (folder / f"node{node}").mkdir()
        (folder / f"node{node}" / "cpulist").write_text(f"{listed}\n")
    return folder


def test_lists_of_the_kernel_are_read() -> None:
    """Single numbers, ranges, and an empty list, as of a node without processors."""
    assert numbers("0\n") == {0}
    assert numbers("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert numbers("\n") == set()


def test_nodes_of_usable_processors_count(tmp_path: Path) -> None:
    """A node whose processors are not ours, and one without any, are left alone."""
    mine = min(os.sched_getaffinity(0))
    others = max(os.sched_getaffinity(0)) + 1
    root = machine(tmp_path, "0-1,3", {0: f"{others}-{others + 7}", 1: str(mine), 3: ""})
    assert used_nodes(root) == [1]
    assert used_nodes(tmp_path / "missing") == []
    (tmp_path / "has_memory").write_text("what\n")
    assert used_nodes(tmp_path) == []


def test_pages_are_dealt_out_where_there_are_several_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has taken the policy down for all of a reservation, which holds zeros as ever."""
    if not Path("/proc/self/numa_maps").exists() or not used_nodes():
        pytest.skip("this kernel knows no nodes of memory")
    size = 5 << 20
    asked: list[bool] = []

    def first_node_only(address: int, nbytes: int, nodes: list[int]) -> bool:
        asked.append(interleave(address, nbytes, nodes[:1]))
        return asked[-1]

    node = used_nodes()[0]
    monkeypatch.setattr(memory, "used_nodes", lambda: [node, node + 1])
    monkeypatch.setattr(memory, "interleave", first_node_only)
    array = Reservation(padded(size)).take(size)
    array[-1] = 1
    if asked == [False]:
        pytest.skip("this system lets nobody place pages")
    assert policy_of(array.ctypes.data) == f"interleave:{node}"
    assert not array[:-1].any()
    assert not interleave(array.ctypes.data, size, [1000]), "there is no such node"
