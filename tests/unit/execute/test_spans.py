"""Chunks of a call are claimed once each, whoever claims them in which order."""

import random
import subprocess
from pathlib import Path
from typing import Any

import cffi
import pytest

import radiance_core.execute.executor as executor_module
from radiance_abi import native

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def spans(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The claims of spans.h: start and take."""
    out = tmp_path_factory.mktemp("spans") / "libspans.so"
    core = Path(executor_module.__file__).parent
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{core}"]
    source = str(HERE / "spans_probe.c")
    subprocess.run([compiler, *flags, native.cflags(), source, "-o", str(out)], check=True)
    ffi = cffi.FFI()
    ffi.cdef("void start(uint32_t); int64_t take(int32_t, uint32_t, int64_t, int32_t, int32_t);")
    return ffi.dlopen(str(out))


def claimed(spans: Any, threads: int, generation: int, chunks: int) -> list[int]:
    """Let threads claim in random order, each its own span first; return all that they got."""
    got: list[int] = []
    empty = [0] * threads  # spans that a thread has found so
    while busy := [t for t in range(threads) if empty[t] < threads]:
        thread = random.choice(busy)
        span = (thread + empty[thread]) % threads
        chunk = spans.take(threads, generation, chunks, span, empty[thread] > 0)
        if chunk < 0:
            empty[thread] += 1
        else:
            got.append(chunk)
    return sorted(got)


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 64])
def test_every_chunk_is_claimed_once_in_any_order(spans: Any, threads: int) -> None:
    """Over many calls of any size, fewer chunks than threads included, none is lost or doubled."""
    spans.start(0)
    for generation in range(1, 30):
        chunks = random.choice([1, 2, 5, 16 * threads, random.randrange(1, 20 * threads + 2)])
        assert claimed(spans, threads, generation, chunks) == list(range(chunks))
    assert claimed(spans, threads, 30, 32768) == list(range(32768))


def test_a_thread_reads_its_own_span_in_order(spans: Any) -> None:
    """A thread that nobody helps gets adjacent chunks, first to last."""
    spans.start(0)
    assert [spans.take(3, 1, 17, 1, 0) for _ in range(6)] == [5, 6, 7, 8, 9, 10]
    assert spans.take(3, 1, 17, 1, 0) == -1
    assert [spans.take(3, 1, 17, 2, 1) for _ in range(7)] == [16, 15, 14, 13, 12, 11, -1]


def test_who_comes_late_gets_nothing_and_changes_nothing(spans: Any) -> None:
    """A claim for a call that is over fails, in spans that the next one has and has not begun."""
    spans.start(0)
    assert claimed(spans, 2, 1, 8) == list(range(8))
    assert spans.take(2, 1, 8, 0, 0) == -1
    assert spans.take(2, 2, 6, 0, 0) == 0
    assert [spans.take(2, 1, 8, span, last) for span in (0, 1) for last in (0, 1)] == [-1] * 4
    assert claimed(spans, 2, 2, 6) == [1, 2, 3, 4, 5]


def test_the_number_of_a_call_may_wrap_around(spans: Any) -> None:
    """After the largest generation comes 0, and nothing is lost there."""
    largest = (1 << 32) - 1
    spans.start(largest - 1)
    for generation in (largest, 0, 1):
        assert claimed(spans, 2, generation, 9) == list(range(9))
        assert spans.take(2, (generation - 1) % (1 << 32), 9, 0, 0) == -1
