"""Threads of a pool find processors of their own, and stay allowed what they were allowed."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from radiance_abi import KernelLibrary
from radiance_core.execute.executor import StepExecutor
from radiance_core.execute.program import Band, NodeTemplate, OperandTemplate, StepProgram

from .programs import MAX_SYMBOLS, MOST, TOKENS, kernel, symbols_of

ALL = os.sched_getaffinity(0)


def who_node(library: KernelLibrary) -> NodeTemplate:
    """A node of one tile a row, each of which takes 50 us and writes who ran it."""
    y = OperandTemplate(0, 0, "i32", (MOST, 1), (1, 1), TOKENS, 0, None)
    band = Band(MOST, kernel(library, "who"), (MOST, 50))
    return NodeTemplate("who", "blk.0 who", (y,), ("M", "us"), (band,), TOKENS, TOKENS)


@pytest.fixture
def pinned_caller() -> Iterator[int]:
    """The processor that this thread may not leave."""
    before = os.sched_getaffinity(0)
    cpu = min(before)
    yield cpu
    os.sched_setaffinity(0, before)


def run_many(executor: StepExecutor, library: KernelLibrary, steps: int) -> set[int]:
    """Run steps and return who took part; each tile of each step is run by somebody."""
    handle = executor.load(StepProgram((who_node(library),), 1), MAX_SYMBOLS)
    seen: set[int] = set()
    for _ in range(steps):
        y = np.full(MOST, -1, np.int32)
        executor.run(handle, symbols_of(MOST, 0, 1), np.array([y.ctypes.data], np.uint64))
        seen |= set(y.tolist())
    return seen


@pytest.mark.parametrize("confined", [False, True])
def test_workers_keep_what_they_were_allowed(
    library: KernelLibrary, pinned_caller: int, *, confined: bool
) -> None:
    """A worker on the caller's processor moves off and may come back; one that may not stays."""
    tasks = Path("/proc/self/task")
    others = {task.name for task in tasks.iterdir()}
    executor = StepExecutor(2)
    (worker,) = (int(task.name) for task in tasks.iterdir() if task.name not in others)
    allowed = {pinned_caller} if confined else ALL
    os.sched_setaffinity(0, {pinned_caller})
    for _ in range(20):
        os.sched_setaffinity(worker, {pinned_caller})  # onto the caller's processor
        os.sched_setaffinity(worker, allowed)
        assert run_many(executor, library, 5) <= {0, 1}
        end = time.monotonic() + 60
        while os.sched_getaffinity(worker) != allowed and time.monotonic() < end:
            time.sleep(0.001)  # it may be on its way
        assert os.sched_getaffinity(worker) == allowed
    executor.close()
