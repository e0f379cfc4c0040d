"""How soon something happens, on a machine that may be busy with other things.

A busy machine may take the processor away for longer than what is promised, now and then; what
comes late as often as not is a fault. So of five attempts the median counts, and three on one side
of the limit are enough.
"""

import asyncio
import statistics
import time


async def until(condition, limit_s=120.0):
    """Wait for a condition; return how long it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < limit_s, "it did not come true in time"
        await asyncio.sleep(0.005)
    return time.monotonic() - started


def usually(attempt, below_s):
    """Return the median of the times that attempts say they took."""
    times = []
    while not _is_decided(times, below_s):
        times.append(attempt())
    return _median(times, below_s)


async def usually_async(attempt, below_s):
    """Return the median of the times that attempts, coroutines, say they took."""
    times = []
    while not _is_decided(times, below_s):
        times.append(await attempt())
    return _median(times, below_s)


def _is_decided(times, below_s):
    soon = sum(t < below_s for t in times)
    return max(soon, len(times) - soon) == 3


def _median(times, below_s):
    """Return what lies on the side of the limit where three are."""
    is_soon = times[-1] < below_s
    return statistics.median_low(times) if is_soon else statistics.median_high(times)
