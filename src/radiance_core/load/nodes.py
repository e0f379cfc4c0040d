"""Machines whose memory hangs on several nodes: pages of weights dealt out to them in turn.

A step's tiles go to whichever thread is free, and threads to whichever processor is, so no node is
the right one for a row of a weight. In turn, every step reads from all memory controllers at once;
left alone, what one thread wrote first lies on its node and all others wait for that.
"""

import ctypes
import os
import platform
from collections.abc import Sequence
from pathlib import Path

NODES = Path("/sys/devices/system/node")
_MBIND = {"x86_64": 237, "aarch64": 235}
_MPOL_INTERLEAVE = 3
_WORD_BITS = 64


def numbers(text: str) -> set[int]:
    """Return the numbers of a kernel's list such as ``0-3,8``."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def used_nodes(root: Path = NODES) -> list[int]:
    """Return the nodes with memory whose processors this process may use; none where unknown."""
    try:
        nodes = sorted(numbers((root / "has_memory").read_text(encoding="ascii")))
        cpus = {
            n: numbers((root / f"node{n}" / "cpulist").read_text(encoding="ascii")) for n in nodes
        }
    except (OSError, ValueError):
        return []
    usable = os.sched_getaffinity(0)
    return [n for n in nodes if cpus[n] & usable]


def interleave(address: int, nbytes: int, nodes: Sequence[int]) -> bool:
    """Ask for pages that are not written yet to come from these nodes in turn.

    Args:
        address: of the first byte, a multiple of a page.
        nbytes: how many.
        nodes: numbers of nodes.

    Returns:
        Whether the system said yes; if not, pages come from where they are written first.
    """
    number = _MBIND.get(platform.machine())
    if number is None:
        return False
    words = max(nodes) // _WORD_BITS + 1
    mask = (ctypes.c_uint64 * words)()
    for n in nodes:
        mask[n // _WORD_BITS] |= 1 << n % _WORD_BITS
    long, size = ctypes.c_long, ctypes.c_ulong
    # The kernel takes one bit fewer than it is told of.
    status = ctypes.CDLL(None).syscall(
        long(number), size(address), size(nbytes), long(_MPOL_INTERLEAVE), mask,
        size(words * _WORD_BITS + 1), long(0),
    )  # fmt: skip
    return bool(status == 0)
