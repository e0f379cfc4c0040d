"""How quiet the machine is, and rests between measurements."""

import os
import statistics
import time

import psutil

BUSY = 0.05


class Rests:
    """Pauses in which no contender runs; what is busy then is somebody else."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.busy: list[float] = []

    def rest(self) -> None:
        """Wait, and note which share of the processors others took meanwhile."""
        before = psutil.cpu_times()
        time.sleep(self._seconds)
        after = psutil.cpu_times()
        whole = sum(after) - sum(before)
        # Time that the host gave to other guests counts as taken too.
        free = after.idle + after.iowait - before.idle - before.iowait
        self.busy.append(1 - free / whole if whole > 0 else 0.0)

    def report(self, *, processor_time: bool = False) -> str:
        """Say how quiet it was, with a warning when figures mean little."""
        load = " ".join(f"{v:.1f}" for v in os.getloadavg())
        if not self.busy:
            return f"load average {load}"
        middle, most = statistics.median(self.busy), max(self.busy)
        text = (
            f"load average {load}; between measurements others took {middle:.0%} of the "
            f"processors (median of {len(self.busy)}, most {most:.0%})"
        )
        if middle > BUSY and processor_time:
            text += ", which one thread's own time shows little of"
        elif middle > BUSY:
            text += ". WARNING: the machine is busy: figures mean little, ratios only a little more"
        return text


def pin(threads: int) -> list[int]:
    """Keep this process and all it starts to as many processors as there are threads."""
    chosen = sorted(os.sched_getaffinity(0))[:threads]
    os.sched_setaffinity(0, chosen)
    return chosen
