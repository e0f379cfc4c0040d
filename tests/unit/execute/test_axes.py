"""Values of axes reach init, the state, the scratch hook and calls in Python; never a call in C."""

from typing import Any

import numpy as np
import pytest

from radiance_abi import Axis, Call, Kernel
from radiance_core.execute.executor import StepExecutor
from radiance_core.execute.program import SYMBOLS, Band, NodeTemplate, OperandTemplate, StepProgram
from radiance_core.execute.twin import TwinExecutor

TOKENS = SYMBOLS.index("TOKENS")
MOST = 4


def program(run: Any, **hooks: Any) -> StepProgram:
    axes = (Axis("ahead", (1, 2), 1), Axis("piece", (8, 16), 8))
    kernel = Kernel(op="mine", name="k", run=run, axes=axes, **hooks)
    y = OperandTemplate(0, 0, "i32", (MOST, 1), (1, 1), TOKENS, 0, None)
    band = Band(MOST, kernel, (MOST, None), (("ahead", 2), ("piece", 8)))
    node = NodeTemplate("mine", "blk.0 mine", (y,), ("M", "eps"), (band,), TOKENS, TOKENS)
    return StepProgram((node,), 1)


@pytest.mark.parametrize("make", [TwinExecutor, lambda: StepExecutor(1)])
def test_hooks_and_calls_see_the_values(make: Any) -> None:
    """They stand beside the params that are given."""
    seen = []

    def run(call: Call) -> None:
        seen.append((dict(call.params), call.state))

    executor = make()
    try:
        limits = [MOST] * len(SYMBOLS)
        handle = executor.load(program(run, init=lambda geometry: ("state", geometry)), limits)
        memory = np.zeros((MOST, 1), np.int32)
        symbols = np.ones(len(SYMBOLS), np.int64)
        executor.run(handle, symbols, np.array([memory.ctypes.data], np.uint64))
    finally:
        executor.close()
    params = {"M": MOST, "ahead": 2, "piece": 8}
    assert seen == [(params, ("state", params))]
