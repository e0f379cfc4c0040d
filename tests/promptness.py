"""How soon something happens, on a machine that may be busy with other things.

A busy machine may take the processor away for longer than what is promised, now and then; what
comes late as often as not is a fault. So of five attempts the median counts, and three on one side
of the limit are enough. One that is busy all the time makes everything take longer: a time is
divided by how much longer work takes there than it would with a processor of its own.
"""

import asyncio
import statistics
import time

_WORK_S = 0.03


async def until(condition, limit_s=240.0):
    """Wait for a condition; return how long it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < limit_s, "it did not come true in time"
        await asyncio.sleep(0.005)
    return time.monotonic() - started


def strain():
    """Return how many times the processor time that it needs a piece of work takes: 1 or more."""
    began, own = time.perf_counter(), time.thread_time()
    while (worked := time.thread_time() - own) < _WORK_S:
        pass
    return max(1.0, (time.perf_counter() - began) / worked)


def usually(attempt, below_s):
    """Return the median of the times that attempts say they took, on a machine without strain."""
    times = []
    while not _is_decided(times, below_s):
        before = strain()
        times.append(attempt() / max(before, strain()))
    return _median(times, below_s)


async def usually_async(attempt, below_s):
    """Return what ``usually`` does, of attempts that are coroutines."""
    times = []
    while not _is_decided(times, below_s):
        before = strain()
        times.append(await attempt() / max(before, strain()))
    return _median(times, below_s)


def _is_decided(times, below_s):
    soon = sum(t < below_s for t in times)
    return max(soon, len(times) - soon) == 3


def _median(times, below_s):
    """Return what lies on the side of the limit where three are."""
    is_soon = times[-1] < below_s
    return statistics.median_low(times) if is_soon else statistics.median_high(times)
