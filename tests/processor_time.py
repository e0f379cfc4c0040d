"""How much processor time something takes, told in seconds of the machine that limits are for.

Processor time is no fixed amount of work: another machine may be slower by several times, and so
may this one while its cores are shared. A known piece of work is timed before and after; where it
takes longer than it did on that machine, the time counts for as much less. What is too costly is so
each time, so the least of several attempts counts.
"""

import time
from collections.abc import Awaitable, Callable

# About what ``_known`` takes on that machine: a server's core like AMD EPYC's of Zen 3 or Zen 4
# (7 to 10 ms on a shared Zen 3, CPython 3.11). On a slower one a time counts for as much less as
# the known work takes longer, so a limit is on the same work; on a faster one it counts as it is.
_WORK_S = 0.008
ATTEMPTS = 10


def least(
    work: Callable[[], object], below_s: float, clock: Callable[[], float] = time.process_time
) -> float:
    """Return the least time of up to ten attempts; the first that is below the limit is enough.

    Args:
        work: what is timed.
        below_s: the limit that the caller holds the result against.
        clock: says how much time all threads have taken, or one of them.
    """
    best = float("inf")
    for _ in range(ATTEMPTS):
        before, began = _known(), clock()
        work()
        best = min(best, _told(clock() - began, before))
        if best < below_s:
            break
    return best


async def least_async(work: Callable[[], Awaitable[object]], below_s: float) -> float:
    """Return what ``least`` does, of a coroutine and all that its event loop runs meanwhile."""
    best = float("inf")
    for _ in range(ATTEMPTS):
        before, began = _known(), time.process_time()
        await work()
        best = min(best, _told(time.process_time() - began, before))
        if best < below_s:
            break
    return best


def slowness() -> float:
    """Return how many times longer work takes now than on that machine: 1 or more."""
    return max(1.0, _known() / _WORK_S)


def _told(spent: float, before: float) -> float:
    return spent / max(1.0, min(before, _known()) / _WORK_S)


def _known() -> float:
    """Return the processor time of a known piece of work."""
    began, total = time.thread_time(), 0
    for i in range(100_000):
        total += i * i % 7
    return time.thread_time() - began
