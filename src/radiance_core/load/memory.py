"""Memory for weights: one reservation on huge pages, cut up in the order in which it is asked for.

A step reads every weight once, so most of its reads miss the translation cache. On small pages, and
the more on a virtual machine where a miss walks two tables, one core of an EPYC reads half of what
it reads on huge ones (16 against 33 GB/s).
"""

import mmap
from contextlib import suppress

import numpy as np

from radiance_core.load.nodes import interleave, used_nodes

ALIGN = 256
HUGE_BYTES = 2 * 2**20


def padded(nbytes: int) -> int:
    """Return the bytes that a reservation spends on an array."""
    return -(-nbytes // ALIGN) * ALIGN


class Reservation:
    """Private pages of the system, resident as they are written, huge where it gives such.

    Args:
        nbytes: what all arrays together take, each of them ``padded``.
    """

    def __init__(self, nbytes: int) -> None:
        pages = mmap.mmap(-1, nbytes + HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if nbytes >= HUGE_BYTES:
            with suppress(OSError):  # a kernel built without huge pages
                pages.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(pages, np.uint8)
        start = -raw.ctypes.data % HUGE_BYTES
        if len(nodes := used_nodes()) > 1:
            interleave(raw.ctypes.data + start, nbytes, nodes)
        self._left = raw[start : start + nbytes]

    def take(self, nbytes: int) -> np.ndarray:
        """Return the next bytes, zeros at a multiple of 256; they keep the whole alive."""
        taken, self._left = self._left[:nbytes], self._left[padded(nbytes) :]
        assert len(taken) == nbytes, "a reservation covers all that is taken of it"
        return taken
