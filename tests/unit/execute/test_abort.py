"""A step ends early when another thread asks for it."""

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from radiance_abi import KernelLibrary
from radiance_core.execute.executor import StepExecutor
from radiance_core.execute.program import (
    Band,
    Executor,
    NodeTemplate,
    OperandTemplate,
    ProgramError,
    StepAborted,
    StepProgram,
)
from radiance_core.execute.twin import TwinExecutor

from .programs import MAX_SYMBOLS, MOST, TOKENS, Memory, kernel, mix_node, symbols_of

ANY = symbols_of(4, 4, 2)


def long_node(library: KernelLibrary) -> NodeTemplate:
    """A node of one tile per row; each writes who runs it, and ends when the word is set."""
    word = OperandTemplate(1, 0, "i32", (1,), (1,), -1, 0, None)
    y = OperandTemplate(0, 0, "i32", (MOST, 1), (1, 1), TOKENS, 0, None)
    band = Band(MOST, kernel(library, "until"), (MOST,))
    return NodeTemplate("until", "blk.0 until", (word, y), ("M",), (band,), TOKENS, TOKENS)


@pytest.mark.parametrize("make", [TwinExecutor, lambda: StepExecutor(1), lambda: StepExecutor(3)])
def test_a_set_word_ends_a_step_before_its_first_node(
    library: KernelLibrary, make: Callable[[], Executor]
) -> None:
    """Nothing runs once the word is set; cleared, the same program runs whole again."""
    executor, memory = make(), Memory.random(3)
    nodes = tuple(mix_node(np.random.default_rng(4), library.kernels[:1], i) for i in range(3))
    handle = executor.load(StepProgram(nodes, len(memory.slots)), MAX_SYMBOLS)
    word, before = np.ones(1, np.int32), memory.pools.copy()
    with pytest.raises(
        StepAborted, match=r"blk\.0 mix: expected the step to run to its end, got a"
    ):
        executor.run(handle, ANY, memory.slots, word)
    assert np.array_equal(memory.pools, before)
    word[0] = 0
    executor.run(handle, ANY, memory.slots, word)
    assert not np.array_equal(memory.pools, before)
    with pytest.raises(
        ProgramError, match=r"abort word of a step: expected int32\(1,\), got int64"
    ):
        executor.run(handle, ANY, memory.slots, word.astype(np.int64))
    executor.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_word_set_by_another_thread_ends_a_long_node(
    library: KernelLibrary, threads: int
) -> None:
    """A node of 32 long tiles ends between two pieces; what it left is not taken as done."""
    executor = StepExecutor(threads)
    done, word, go_on = np.full(MOST, -1, np.int32), np.zeros(1, np.int32), np.ones(1, np.int32)
    handle = executor.load(StepProgram((long_node(library),), 2), MAX_SYMBOLS)

    def end_soon() -> None:
        while (done == -1).all():
            time.sleep(0.001)
        word.fill(1)

    ending = threading.Thread(target=end_soon)
    ending.start()
    slots = np.array([done.ctypes.data, word.ctypes.data], np.uint64)
    with pytest.raises(StepAborted, match=r"blk\.0 until"):
        executor.run(handle, symbols_of(MOST, 0, 1), slots, word)
    ending.join()
    assert (done == -1).any(), "tiles were left out"
    word[0], slots[1] = 0, go_on.ctypes.data
    executor.run(handle, symbols_of(MOST, 0, 1), slots, word)
    assert not (done == -1).any()
    executor.close()
