"""What this machine can do at most: bytes read a second, and products of three kinds of numbers."""

import time
from collections.abc import Callable, Mapping
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


NUMBERS = ("i8", "bf16", "f32")
"""What products are made of, as far as the machine has instructions of their own for it."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What all threads reach together, each measured alone: reading, and products by ``NUMBERS``.

    Multiplications and additions count as two. 0 where the machine has no such instructions.
    """

    threads: int
    bytes_per_s: float
    products_per_s: Mapping[str, float]


def ceilings(threads: int) -> Ceilings:
    """Measure with ``threads`` threads; takes about two seconds.

    Raises:
        ConfigurationError: the shared object that counts products is missing.
    """
    library = _open(Path(__file__).with_name(LIBRARY))
    counts = {numbers: getattr(library, f"rad_peak_{numbers}") for numbers in NUMBERS}
    products = {numbers: _counted(count, threads) for numbers, count in counts.items()}
    return Ceilings(threads, _read(threads), products)


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
    ffi.cdef("".join(f"int64_t rad_peak_{numbers}(int64_t rounds);" for numbers in NUMBERS))
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
    if count(1) == 0:
        return 0.0
    rounds = [_ROUNDS] * threads
    with ThreadPoolExecutor(threads) as pool:
        took = best_seconds(lambda: list(pool.map(count, rounds)), _MEASURE_S)
    return threads * count(_ROUNDS) / took
