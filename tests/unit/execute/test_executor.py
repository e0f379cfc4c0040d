"""The step executor equals its twin on any program and thread count; faults stay inside a step."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

from radiance_abi import Call, ConfigurationError, Kernel, KernelError, KernelLibrary
from radiance_core.execute.calls import choose_band
from radiance_core.execute.executor import StepExecutor
from radiance_core.execute.program import (
    Band,
    Executor,
    NodeTemplate,
    ProgramError,
    StepProgram,
)
from radiance_core.execute.twin import TwinExecutor

from .programs import (
    COLS,
    MAX_SYMBOLS,
    MOST,
    NUM_POOLS,
    TOKENS,
    Memory,
    fault_node,
    kernel,
    mix_node,
    python_kernels,
    random_program,
    symbols_of,
)

ANY = symbols_of(4, 4, 2)


def run_on(
    executor: Executor, program: StepProgram, steps: list[np.ndarray], seed: int
) -> np.ndarray:
    """Return the pools after running the steps one after the other."""
    memory = Memory.random(seed)
    handle = executor.load(program, MAX_SYMBOLS)
    for symbols in steps:
        executor.run(handle, symbols, memory.slots)
    executor.close()
    return memory.pools


def test_equal_to_the_twin_on_random_programs(library: KernelLibrary) -> None:
    """Results equal the twin's bit by bit for 1 to 4 threads, C and Python kernels mixed."""
    rng = np.random.default_rng()
    every = [kernel(library, "tiled"), kernel(library, "whole"), *python_kernels()]
    for kernels in (every[:2], every, every[2:], every):
        seed = int(rng.integers(1 << 31))
        program = random_program(rng, kernels, 25)
        steps = [
            symbols_of(
                decode, int(rng.integers(0, MOST - decode + 1)), int(rng.integers(0, MOST + 1))
            )
            for decode in (int(rng.integers(0, MOST + 1)) for _ in range(12))
        ]
        want = run_on(TwinExecutor(), program, steps, seed)
        assert (want != Memory.random(seed).pools).any()
        for num_threads in (1, 2, 3, 4):
            got = run_on(StepExecutor(num_threads), program, steps, seed)
            assert (got == want).all(), f"{num_threads} threads, seed {seed}"


def test_every_value_of_a_symbol_runs_the_right_rows(library: KernelLibrary) -> None:
    """For each token count the rows below it change and the others do not; 0 skips the node."""
    rng = np.random.default_rng()
    node = mix_node(rng, [kernel(library, "tiled")], 0, rows=TOKENS)
    program = StepProgram((node,), NUM_POOLS)
    executor = StepExecutor(3)
    handle = executor.load(program, MAX_SYMBOLS)
    for tokens in range(MOST + 1):
        memory, before = Memory.random(tokens), Memory.random(tokens)
        memory.pools[node.operands[2].slot] |= 1  # y * 3 + ... is never y itself for most values
        before.pools[node.operands[2].slot] |= 1
        executor.run(handle, symbols_of(tokens, 0, 1), memory.slots)
        changed = (memory.pools != before.pools)[node.operands[2].slot, :, :COLS].any(1)
        assert not changed[tokens:].any()
        assert tokens < 8 or changed[:tokens].any()
    executor.close()


def test_an_empty_part_is_skipped_even_when_its_slots_are(library: KernelLibrary) -> None:
    """A node without rows may have empty slots; with rows an empty slot is named."""
    executors: list[Executor] = [TwinExecutor(), StepExecutor(2)]
    for executor in executors:
        node = mix_node(np.random.default_rng(), [kernel(library, "tiled")], 3, rows=TOKENS)
        handle = executor.load(StepProgram((node,), NUM_POOLS), MAX_SYMBOLS)
        nothing = np.zeros(NUM_POOLS, np.uint64)
        executor.run(handle, symbols_of(0, 0, 1), nothing)
        with pytest.raises(
            ProgramError, match=r"blk\.3 mix: operand 0: expected an address in slot"
        ):
            executor.run(handle, symbols_of(1, 0, 1), nothing)
        executor.close()


@pytest.mark.parametrize("at", [-1, 0, 5])
@pytest.mark.parametrize("make", [TwinExecutor, lambda: StepExecutor(1), lambda: StepExecutor(4)])
def test_a_negative_status_ends_the_step(
    library: KernelLibrary, make: Callable[[], Executor], at: int
) -> None:
    """The error names node, kernel, geometry and status; only the next step runs on."""
    executor = make()
    bad = StepProgram((fault_node(library, -3, at), fault_node(library, 0, 99, slot=1)), 2)
    handle = executor.load(bad, MAX_SYMBOLS)
    good = executor.load(StepProgram((fault_node(library, 0, 99),), 1), MAX_SYMBOLS)
    y, later = np.zeros((2, MOST), np.int32)
    doing = "count its tiles" if at == -1 else "run"
    text = (
        rf"blk\.7 fault: expected kernel fault of fault to {doing}, got status -3 \(ALIGN\) at "
        rf"M=32 status=-3 at={at}, in a step of TOKENS=8 SEQS=2"
    )
    for _ in range(3):
        with pytest.raises(KernelError, match=text) as caught:
            executor.run(handle, ANY, np.array([y.ctypes.data, later.ctypes.data], np.uint64))
        assert caught.value.status == -3
    assert not later.any()
    y[:] = 0
    executor.run(good, ANY, np.array([y.ctypes.data], np.uint64))
    assert y.tolist() == [1] * 8 + [0] * (MOST - 8)
    executor.close()


@pytest.mark.parametrize("make", [TwinExecutor, lambda: StepExecutor(2)])
def test_an_exception_in_a_python_kernel_ends_the_step(
    library: KernelLibrary, make: Callable[[], Executor]
) -> None:
    """What a Python kernel raises is named with the node; a KernelError keeps its status."""
    raised: list[BaseException] = []

    def boom(_call: Call) -> None:
        raise raised[-1]

    executor = make()
    band = Band(MOST, Kernel(op="fault", name="py", run=boom), (MOST, 0, 0))
    base = fault_node(library, 0, 99)
    raising = NodeTemplate(
        "fault", "blk.9 boom", base.operands, base.param_names, (band,), TOKENS, TOKENS
    )
    program = StepProgram((base, raising, fault_node(library, 0, 99, slot=1)), 2)
    handle = executor.load(program, MAX_SYMBOLS)
    problems = ((ValueError("no luck"), -12), (SystemExit("no luck"), -12))
    for problem, status in (*problems, (KernelError("no luck", -6), -6)):
        raised.append(problem)
        y, later = np.zeros((2, MOST), np.int32)
        with pytest.raises(
            KernelError, match=r"blk\.9 boom: expected kernel py .*TOKENS=8.*: no luck; this step's"
        ) as caught:
            executor.run(handle, ANY, np.array([y.ctypes.data, later.ctypes.data], np.uint64))
        assert caught.value.status == status
        assert y.sum() == 8
        assert not later.any()
    executor.close()


def test_states_are_made_once_and_freed_once(library: KernelLibrary, library_path: Path) -> None:
    """A state is made per node and band, freed at close or when a later init fails."""
    ffi = cffi.FFI()
    ffi.cdef("int live_states(void);")
    lib = ffi.dlopen(str(library_path))
    tiled = kernel(library, "tiled")
    node = mix_node(np.random.default_rng(), [tiled], 0, rows=TOKENS)
    before = lib.live_states()
    for executor in (TwinExecutor(), StepExecutor(2)):
        executor.load(StepProgram((node, node), NUM_POOLS), MAX_SYMBOLS)
        assert lib.live_states() == before + 2 * len(node.bands)
        for k, status in ((-5, -6), (-4, -6)):
            bands = (Band(MOST, tiled, (MOST, COLS, k, None)),)
            bad = NodeTemplate("mix", "bad", node.operands, node.param_names, bands, TOKENS, TOKENS)
            if isinstance(executor, TwinExecutor) and k == -4:
                continue  # the twin asks for scratch only when it runs
            with pytest.raises(KernelError, match=r"got status -6 \(NOMEM\)") as caught:
                executor.load(StepProgram((node, bad), NUM_POOLS), MAX_SYMBOLS)
            assert caught.value.status == status
            assert lib.live_states() == before + 2 * len(node.bands)
        executor.close()
        executor.close()
        assert lib.live_states() == before


@pytest.mark.parametrize("make", [TwinExecutor, lambda: StepExecutor(1)])
def test_an_init_in_python_that_raises(make: Any, library: KernelLibrary) -> None:
    """Whatever it raises becomes an error that names node, kernel, geometry and cause."""

    def init(geometry: Any) -> Any:
        raise ZeroDivisionError(f"by design at {geometry['k']}")

    node = mix_node(np.random.default_rng(), [kernel(library, "tiled")], 0, rows=TOKENS)
    odd = Kernel(op="mix", name="odd", run=lambda call: None, init=init)
    bad = replace(node, name="blk.7 mix", bands=(Band(MOST, odd, (MOST, COLS, 3, None)),))
    with pytest.raises(KernelError) as caught:
        make().load(StepProgram((bad,), NUM_POOLS), MAX_SYMBOLS)
    assert caught.value.status == -12
    said = f"at M={MOST} n={COLS} k=3, got ZeroDivisionError: by design at 3; report it"
    assert f"blk.7 mix: expected kernel odd of mix to make its state {said}" in str(caught.value)


@pytest.mark.parametrize("make", [TwinExecutor, lambda: StepExecutor(2)])
def test_runs_are_checked(library: KernelLibrary, make: Callable[[], Executor]) -> None:
    """Symbols outside the capacity and arrays of the wrong kind are refused before C reads them."""
    executor = make()
    handle = executor.load(StepProgram((fault_node(library, 0, 99),), 1), MAX_SYMBOLS)
    slots = np.zeros(1, np.uint64)
    for value in (-1, MOST + 1):
        with pytest.raises(
            ProgramError, match=rf"expected TOKENS from 0 to 32, got {value}; load the"
        ):
            executor.run(handle, symbols_of(value, 0, 1), slots)
    with pytest.raises(
        ProgramError, match=r"symbols of a step: expected int64\[8\], got int32\(8,\)"
    ):
        executor.run(handle, ANY.astype(np.int32), slots)
    with pytest.raises(ProgramError, match=r"slots of a step: expected 64-bit addresses\[1\], got"):
        executor.run(handle, ANY, np.zeros(2, np.uint64))
    with pytest.raises(ProgramError, match="expected contiguous arrays, got a strided one"):
        executor.run(handle, np.zeros(16, np.int64)[::2], slots)
    executor.close()


def test_construction_is_checked(tmp_path: Path) -> None:
    """A missing shared object and a foolish number of threads are refused with what to do."""
    with pytest.raises(
        ConfigurationError, match=r"expected the shared object .*lib\.so, got no file"
    ):
        StepExecutor(2, tmp_path / "lib.so")
    with pytest.raises(ConfigurationError, match="executor: expected 1 thread or more, got 0"):
        StepExecutor(0)


def test_a_value_above_all_bands_is_named(library: KernelLibrary) -> None:
    """The choice of a band fails by name rather than by taking the last one."""
    with pytest.raises(ProgramError, match=r"blk\.7 fault: expected TOKENS up to 32, got 33"):
        choose_band(fault_node(library, 0, 0), symbols_of(33, 0, 1).tolist())
