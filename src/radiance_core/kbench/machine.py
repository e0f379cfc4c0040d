"""What this machine can do at most: bytes read a second, products of i8 and of f32 a second."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from radiance_abi.errors import ConfigurationError

LIBRARY = "libradiance_peak.so"
_READ_BYTES = 1 << 28
_MEASURE_S = 0.5
_ROUNDS = 500_000


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What all threads reach together, each measured alone: reading, and products of two kinds.

    Multiplications and additions count as two. 0 where the machine has no such instructions.
    """

    threads: int
    bytes_per_s: float
    i8_per_s: float
    f32_per_s: float


def ceilings(threads: int) -> Ceilings:
    """Measure with ``threads`` threads; takes about two seconds.

    Raises:
        ConfigurationError: the shared object that counts products is missing.
    """
    library = _open(Path(__file__).with_name(LIBRARY))
    return Ceilings(
        threads,
        _read(threads),
        _counted(library.rad_peak_i8, threads),
        _counted(library.rad_peak_f32, threads),
    )


def best_seconds(job: Callable[[], object], least_s: float) -> float:
    """Return the shortest of as many runs as fit into ``least_s``: others share the machine."""
    best, end = float("inf"), time.perf_counter() + least_s
    while True:
        start = time.perf_counter()
        job()
        now = time.perf_counter()
        best = min(best, now - start)
        if now >= end:
            return best


def _open(path: Path) -> Any:
    ffi = cffi.FFI()
    ffi.cdef("int64_t rad_peak_i8(int64_t rounds); int64_t rad_peak_f32(int64_t rounds);")
    try:
        return ffi.dlopen(str(path))
    except OSError as error:
        raise ConfigurationError(
            f"speed: expected {path} of this installation, got: {error}; install radiance "
            "again, or leave speed out with --no-speed"
        ) from error


def _read(threads: int) -> float:
    data = np.ones(_READ_BYTES // 8, np.int64)
    parts = np.array_split(data, threads)
    with ThreadPoolExecutor(threads) as pool:
        return data.nbytes / best_seconds(lambda: list(pool.map(np.sum, parts)), _MEASURE_S)


def _counted(count: Callable[[int], int], threads: int) -> float:
    rounds = [_ROUNDS] * threads
    with ThreadPoolExecutor(threads) as pool:
        took = best_seconds(lambda: list(pool.map(count, rounds)), _MEASURE_S)
    return threads * count(_ROUNDS) / took
