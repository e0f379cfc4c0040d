"""A team of threads shrinks only while processors are taken away, and grows back after it."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

import radiance_core.execute.executor as executor_module
from radiance_abi import native

HERE = Path(__file__).parent
MS = 1_000_000
LONGEST_PAUSE_MS = 800


@pytest.fixture(scope="module")
def team(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The arithmetic of team.h: start, after and lost."""
    out = tmp_path_factory.mktemp("team") / "libteam.so"
    core = Path(executor_module.__file__).parent
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{core}"]
    source = str(HERE / "team_probe.c")
    subprocess.run([compiler, *flags, native.cflags(), source, "-o", str(out)], check=True)
    ffi = cffi.FFI()
    ffi.cdef(
        "void start(int32_t); int32_t after(int64_t, int64_t, int64_t); "
        "int64_t lost(int64_t, int64_t);"
    )
    return ffi.dlopen(str(out))


def sizes(team: Any, steps: int, step_ms: float, lost: Callable[[int, int], float]) -> list[int]:
    """Sizes after each of many steps, of which ``lost(size, index)`` is lost, from 0 to 1."""
    now, size, seen = 0, 2, []
    for i in range(steps):
        ran = int(step_ms * MS)
        now += ran
        size = team.after(now, ran, int(ran * lost(size, i)))
        seen.append(size)
    return seen


def test_a_stolen_processor_is_given_up_soon_and_tried_seldom(team: Any) -> None:
    """Where two threads lose half of the time, one works alone in nine steps of ten."""
    team.start(2)
    seen = sizes(team, 2000, 4.0, lambda size, _: 0.5 if size == 2 else 0.0)
    assert 1 in seen[: 100 // 4], "after 100 ms at the latest"
    assert seen.count(1) > 0.9 * len(seen)
    assert seen[500:].count(2) > 0, "it is tried again"


def test_a_team_is_whole_again_when_peace_returns(team: Any) -> None:
    """However long a processor was away, all threads take part again within the longest pause."""
    team.start(2)
    taken = sizes(team, 5000, 4.0, lambda size, _: 0.5 if size == 2 else 0.0)
    assert 1 in taken
    now = 5000 * 4 * MS
    seen = [team.after(now + i * 4 * MS, 4 * MS, 0) for i in range(1, 400)]
    assert set(seen[LONGEST_PAUSE_MS // 4 + 1 :]) == {2}
    # The pause forgets as well: a thief that comes later costs no more than the first.
    stolen = [team.after(now + (400 + i) * 4 * MS, 4 * MS, 2 * MS) for i in range(200)]
    assert 1 in stolen
    assert 2 in stolen[stolen.index(1) : stolen.index(1) + LONGEST_PAUSE_MS // 2 // 4]


@pytest.mark.parametrize("step_ms", [0.5, 4.0, 30.0, 700.0])
def test_what_a_busy_machine_takes_now_and_then_changes_nothing(team: Any, step_ms: float) -> None:
    """Losses of up to a fifth of the time, however they fall, leave the team whole."""
    rng = np.random.default_rng()
    team.start(2)
    parts = rng.random(3000) * 0.2
    assert set(sizes(team, 3000, step_ms, lambda _, i: float(parts[i]))) == {2}


def test_one_slice_of_the_scheduler_changes_nothing(team: Any) -> None:
    """Ten milliseconds lost at once, as by a short program, leave the team whole."""
    team.start(2)
    assert set(sizes(team, 300, 2.0, lambda _, i: 5.0 if i % 60 == 7 else 0.0)) == {2}


def test_more_stolen_processors_take_more_members(team: Any) -> None:
    """A team of four goes down to two when two processors are away, and never below one."""
    team.start(4)
    seen = sizes(team, 4000, 4.0, lambda size, _: 0.5 if size > 2 else 0.0)
    assert min(seen) == 2
    assert seen.count(2) > 0.8 * len(seen)
    team.start(4)
    assert min(sizes(team, 4000, 4.0, lambda _size, _index: 0.9)) == 1


def test_only_waiting_longer_than_ones_own_work_is_lost(team: Any) -> None:
    """Waiting for a chunk like one's own, or for a wake, is part of sharing."""
    assert team.lost(40_000, 0) == 0
    assert team.lost(3 * MS, 3 * MS) == 0
    assert team.lost(4 * MS, 20_000) > 3.9 * MS
