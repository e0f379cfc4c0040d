"""The executor's threads: work is shared out, idle ones cost nothing, all end with it."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from processor_time import slowness

import radiance_core.execute.executor as executor_module
from radiance_abi import KernelLibrary, native
from radiance_core.execute.executor import LoadedStep, StepExecutor
from radiance_core.execute.program import (
    Band,
    NodeTemplate,
    OperandTemplate,
    ProgramError,
    StepProgram,
)

from .programs import (
    MAX_SYMBOLS,
    MOST,
    TOKENS,
    fault_node,
    kernel,
    symbols_of,
)

HERE = Path(__file__).parent


ANY = symbols_of(4, 4, 2)


def who_node(library: KernelLibrary, us: int) -> NodeTemplate:
    y = OperandTemplate(0, 0, "i32", (MOST, 1), (1, 1), TOKENS, 0, None)
    band = Band(MOST, kernel(library, "who"), (MOST, us))
    return NodeTemplate("who", "blk.0 who", (y,), ("M", "us"), (band,), TOKENS, TOKENS)


def thread_states() -> dict[str, str]:
    """Return by thread of this process whether it sleeps, and how often it began to."""
    states = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            status = (task / "status").read_text()
        except OSError:
            continue  # it has ended
        state = status.split("\nState:\t")[1][0]
        begun = status.split("\nvoluntary_ctxt_switches:\t")[1].split("\n")[0]
        states[task.name] = f"{state} {begun}"
    return states


def sleepers(others: set[str]) -> dict[str, str]:
    """Return the states of all threads but ``others``, once all of these sleep."""
    end = time.monotonic() + 60
    while True:
        time.sleep(0.01)
        mine = {t: s for t, s in thread_states().items() if t not in others}
        if all(s.startswith("S") for s in mine.values()):
            return mine
        assert time.monotonic() < end, f"a thread does not sleep: {mine}"


def wait_until(condition: Callable[[], bool]) -> bool:
    """Return whether a condition comes true: a joined thread may be listed for a moment more."""
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


def test_tiles_are_shared_out_and_single_ones_are_not(library: KernelLibrary) -> None:
    """Long tiles run on several workers; a call of one tile runs on the caller and wakes nobody."""
    others = set(thread_states())
    executor = StepExecutor(3)
    handle = executor.load(StepProgram((who_node(library, 300),), 1), MAX_SYMBOLS)
    y = np.full(MOST, -1, np.int32)
    slots = np.array([y.ctypes.data], np.uint64)
    seen: set[int] = set()
    # A team shrinks while a busy machine takes its processors away.
    end = time.monotonic() + 60
    while len(seen) < 2 and time.monotonic() < end:
        executor.run(handle, symbols_of(MOST, 0, 1), slots)
        seen |= set(y.tolist())
    assert seen <= {0, 1, 2}
    assert len(seen) > 1
    assert any(_wakes_nobody(executor, handle, slots, others) for _ in range(50))
    assert y[0] == 0
    executor.close()


def _wakes_nobody(
    executor: StepExecutor, handle: LoadedStep, slots: np.ndarray, others: set[str]
) -> bool:
    """Return whether no thread woke in 200 steps of one tile; once in a while a team grows back."""
    before = sleepers(others)
    assert len(before) == 2
    for _ in range(200):
        executor.run(handle, symbols_of(1, 0, 1), slots)
    return {t: s for t, s in thread_states().items() if t not in others} == before


def test_idle_threads_cost_nothing(library: KernelLibrary) -> None:
    """Between steps all threads sleep: none of them is given a processor.

    One that is about to sleep may look asleep while it waits for a processor to do so on.
    """
    others = set(thread_states())
    executor = StepExecutor(4)
    handle = executor.load(StepProgram((who_node(library, 1),), 1), MAX_SYMBOLS)
    y = np.zeros(MOST, np.int32)
    executor.run(handle, symbols_of(MOST, 0, 1), np.array([y.ctypes.data], np.uint64))
    assert len(sleepers(others)) == 3
    assert any(_is_idle_for(0.4, list(sleepers(others))) for _ in range(50))
    executor.close()


def _is_idle_for(seconds: float, threads: list[str]) -> bool:
    """Return whether no thread ran for a while."""
    start = [_processor_time(t) for t in threads]
    time.sleep(seconds)
    return [_processor_time(t) for t in threads] == start


def _processor_time(thread: str) -> str:
    """Return the nanoseconds for which a thread of this process has run."""
    return Path("/proc/self/task", thread, "schedstat").read_text().split()[0]


def test_close_joins_the_threads(library: KernelLibrary) -> None:
    """No thread is left after close, also with more threads than processors; a run is refused."""
    others = set(thread_states())
    executor = StepExecutor(9)
    handle = executor.load(StepProgram((fault_node(library, 0, 99),), 1), MAX_SYMBOLS)
    y = np.zeros(MOST, np.int32)
    slots = np.array([y.ctypes.data], np.uint64)
    for _ in range(50):
        executor.run(handle, symbols_of(MOST, 0, 1), slots)
    assert (y == 50).all()
    assert len(set(thread_states()) - others) == 8
    executor.close()
    assert wait_until(lambda: set(thread_states()) <= others)
    with pytest.raises(ProgramError, match="executor: expected an open one, got a run after close"):
        executor.run(handle, ANY, slots)


def test_a_dropped_executor_ends_its_threads() -> None:
    """Threads end with the object when nobody calls close."""
    others = set(thread_states())
    executor = StepExecutor(3)
    assert len(set(thread_states()) - others) == 2
    del executor
    assert wait_until(lambda: set(thread_states()) <= others)


def test_other_python_threads_run_during_a_step(library: KernelLibrary) -> None:
    """The GIL is free while C runs: another thread counts on."""
    executor = StepExecutor(1)
    handle = executor.load(StepProgram((who_node(library, 20000),), 1), MAX_SYMBOLS)
    y = np.zeros(MOST, np.int32)
    slots = np.array([y.ctypes.data], np.uint64)
    most = 0
    # Of a busy machine the other thread may be given little for a while.
    for _ in range(20):
        ticks: list[float] = []
        done = threading.Event()

        def count(ticks: list[float] = ticks, done: threading.Event = done) -> None:
            while not done.wait(0.01):
                ticks.append(time.monotonic())

        thread = threading.Thread(target=count)
        thread.start()
        executor.run(handle, symbols_of(16, 0, 1), slots)
        done.set()
        thread.join()
        most = max(most, len(ticks))
        if most > 5:
            break
    assert most > 5
    executor.close()


@pytest.mark.parametrize("tiles", [1, 8])
def test_dispatch_of_300_trivial_nodes_is_below_150_us(library: KernelLibrary, tiles: int) -> None:
    """The executor's own cost on two threads, at the quietest of many moments.

    A slower machine than the limit is for may take as many times longer as it does for other work.
    """
    executor = StepExecutor(2)
    node = fault_node(library, 0, 99)
    handle = executor.load(StepProgram((node,) * 300, 1), MAX_SYMBOLS)
    y = np.zeros(MOST, np.int32)
    slots = np.array([y.ctypes.data], np.uint64)
    symbols = symbols_of(tiles, 0, 1)
    best, slower, end = float("inf"), float("inf"), time.monotonic() + 60
    while best >= 150e-6 * slower and time.monotonic() < end:
        slower = min(slower, slowness())
        for _ in range(100):
            start = time.perf_counter()
            executor.run(handle, symbols, slots)
            best = min(best, time.perf_counter() - start)
    assert best < 150e-6 * slower
    executor.close()


def test_refused_threads_are_reported() -> None:
    """Where the system makes no more threads, those made before end and the number is named."""
    code = """if True:
        import os, resource, time
        from radiance_core.execute.executor import StepExecutor
        StepExecutor(1)
        before = len(os.listdir("/proc/self/task"))
        held = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (held + (64 << 20),) * 2)
        try:
            StepExecutor(400)
        except Exception as err:
            print(type(err).__name__, err)
        end = time.monotonic() + 60
        while (more := len(os.listdir("/proc/self/task")) - before) and time.monotonic() < end:
            time.sleep(0.001)  # a joined thread may be listed for a moment more
        print(more, "more")
    """
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0].startswith(
        "ConfigurationError executor: expected to start 399 threads, the system"
    )
    assert said[1] == "0 more"


@pytest.mark.parametrize("threads", [1, 2, 4, 7])
def test_thread_sanitizer_finds_no_race(compiler: str, tmp_path: Path, threads: int) -> None:
    """The C code under ThreadSanitizer: random steps, pauses and faults, results checked."""
    core = Path(executor_module.__file__).parent
    flags = ["-std=c11", "-O1", "-g", "-pthread", "-fsanitize=thread", f"-I{core}", native.cflags()]
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }")
    probed = subprocess.run(
        [compiler, *flags, str(probe), "-o", str(tmp_path / "probe")], check=False
    )
    if probed.returncode or _sanitized(tmp_path / "probe").returncode:
        pytest.skip("ThreadSanitizer does not work here")
    binary = tmp_path / "stress"
    subprocess.run([compiler, *flags, str(HERE / "stress.c"), "-o", str(binary)], check=True)
    done = _sanitized(binary, str(threads), "1500")
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def _sanitized(binary: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program under ThreadSanitizer, again where the system put it at an address it lacks.

    That is drawn at each start, and before anything of the program runs.
    """
    for _ in range(50):
        done = subprocess.run([binary, *arguments], capture_output=True, text=True, check=False)
        if "unexpected memory mapping" not in done.stderr:
            break
    return done
