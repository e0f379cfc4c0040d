"""The native step executor: one C call runs a whole step on a persistent pool of threads."""

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from radiance_abi import ConfigurationError
from radiance_core.execute.calls import (
    aborted,
    choose_band,
    empty_slot,
    failure,
    outside,
    run_node,
)
from radiance_core.execute.program import ProgramError, StepProgram
from radiance_core.execute.states import States
from radiance_core.execute.tables import Tables, ffi
from radiance_core.execute.validity import check_program, check_run

LIBRARY = "libradiance_executor.so"
_RUN, _TILES, _BAND, _SLOT, _SYMBOL, _ABORT = range(6)


@dataclass(frozen=True, slots=True)
class LoadedStep:
    """A program in the form that C runs, with everything that it points at."""

    program: StepProgram
    tables: Tables
    states: States


class StepExecutor:
    """Runs step programs on ``num_threads`` threads, of which the caller is one.

    Threads sleep between steps and cost nothing. The GIL is released while C runs. Nodes whose band
    is a kernel written in Python run on the caller in between.

    Args:
        num_threads: 1 or more.
        library: the shared object, when it is not the installed one.

    Raises:
        ConfigurationError: the shared object is missing or threads cannot be made.
    """

    def __init__(self, num_threads: int, library: Path | None = None) -> None:
        if num_threads < 1:
            raise ConfigurationError(f"executor: expected 1 thread or more, got {num_threads}")
        self._lib = _open(library or Path(__file__).with_name(LIBRARY))
        pool = self._lib.rad_step_create(num_threads)
        if pool == ffi().NULL:
            raise ConfigurationError(
                f"executor: expected to start {num_threads - 1} threads, the system refused; ask "
                f"for fewer or raise the limit of processes (ulimit -u)"
            )
        self.num_threads = num_threads
        self._pool = pool
        self._lock = threading.Lock()
        self._loaded: list[LoadedStep] = []
        self._failure = ffi().new("RadStepFailure *")
        self._end = weakref.finalize(self, self._lib.rad_step_destroy, pool)

    def load(self, program: StepProgram, max_symbols: Sequence[int]) -> LoadedStep:
        """See ``Executor.load``."""
        check_program(program, max_symbols)
        states = States(program)
        try:
            step = LoadedStep(
                program, Tables(program, max_symbols, states, self.num_threads), states
            )
        except BaseException:
            states.close()
            raise
        self._loaded.append(step)
        return step

    def run(
        self,
        handle: LoadedStep,
        symbols: np.ndarray,
        slots: np.ndarray,
        abort: np.ndarray | None = None,
    ) -> None:
        """See ``Executor.run``."""
        check_run(handle.program, symbols, slots, abort)
        tables = handle.tables
        c_symbols = ffi().from_buffer("int64_t[]", symbols)
        c_slots = ffi().from_buffer("uint64_t[]", slots)
        c_abort = ffi().NULL if abort is None else ffi().from_buffer("int32_t[]", abort)
        with self._lock:
            if not self._end.alive:
                raise ProgramError("executor: expected an open one, got a run after close")
            at = 0
            while at < tables.num_nodes:
                at = self._lib.rad_step_run(
                    self._pool, tables.program, at, c_symbols, c_slots, c_abort, self._failure
                )
                if at < 0:
                    raise self._error(handle, symbols)
                if at < tables.num_nodes:
                    _run_python(handle, at, symbols, slots)
                    at += 1

    def close(self) -> None:
        """End the threads, then free the states of all programs. May be called twice."""
        with self._lock:
            self._end()
            while self._loaded:
                self._loaded.pop().states.close()

    def _error(self, handle: LoadedStep, symbols: np.ndarray) -> Exception:
        f = self._failure
        values = symbols.tolist()
        if f.what == _SYMBOL:
            largest = int(handle.tables.program.max_symbols[f.index])
            return outside(f.index, values[f.index], largest)
        node = handle.program.nodes[f.node]
        if f.what == _ABORT:
            return aborted(node.name)
        if f.what == _SLOT:
            return empty_slot(node.name, f.index, node.operands[f.index].slot)
        band = node.bands[choose_band(node, values)]
        doing = "count its tiles" if f.what == _TILES else "run"
        return failure(node, band, doing, f.status, values)


def _run_python(handle: LoadedStep, at: int, symbols: np.ndarray, slots: np.ndarray) -> None:
    node = handle.program.nodes[at]
    values = symbols.tolist()
    band = choose_band(node, values)
    run_node(node, node.bands[band], handle.states.rows[at][band], values, slots.tolist())


def _open(path: Path) -> Any:
    if not path.is_file():
        raise ConfigurationError(
            f"executor: expected the shared object {path}, got no file; install radiance from a "
            f"wheel, or build it in a checkout with: pip install --no-build-isolation -e ."
        )
    return ffi().dlopen(str(path))
