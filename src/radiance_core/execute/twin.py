"""The executor's twin in Python: the same functions, one thread, no tables; the oracle."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from radiance_core.execute.calls import aborted, choose_band, outside, run_node
from radiance_core.execute.program import StepProgram
from radiance_core.execute.states import States
from radiance_core.execute.validity import check_program, check_run


@dataclass(frozen=True, slots=True)
class TwinStep:
    """A loaded program of the twin."""

    program: StepProgram
    max_symbols: tuple[int, ...]
    states: States


class TwinExecutor:
    """Runs step programs in Python; results are bit for bit those of ``StepExecutor``."""

    def __init__(self) -> None:
        self._loaded: list[TwinStep] = []

    def load(self, program: StepProgram, max_symbols: Sequence[int]) -> TwinStep:
        """See ``Executor.load``."""
        check_program(program, max_symbols)
        step = TwinStep(program, tuple(max_symbols), States(program))
        self._loaded.append(step)
        return step

    def run(
        self,
        handle: TwinStep,
        symbols: np.ndarray,
        slots: np.ndarray,
        abort: np.ndarray | None = None,
    ) -> None:
        """See ``Executor.run``."""
        check_run(handle.program, symbols, slots, abort)
        values, addresses = symbols.tolist(), slots.tolist()
        for i, (value, largest) in enumerate(zip(values, handle.max_symbols, strict=True)):
            if not 0 <= value <= largest:
                raise outside(i, value, largest)
        for node, states in zip(handle.program.nodes, handle.states.rows, strict=True):
            if abort is not None and abort[0]:
                raise aborted(node.name)
            if node.rows < 0 or values[node.rows]:
                band = choose_band(node, values)
                run_node(node, node.bands[band], states[band], values, addresses)

    def close(self) -> None:
        """Free the states of all programs."""
        while self._loaded:
            self._loaded.pop().states.close()
