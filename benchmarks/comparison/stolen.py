"""What remains when another program keeps one of the processors busy."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from comparison.contenders import Running
from comparison.rounds import Lane, prompt

SETTLE_S = 1.0
"""Rest after the busy program: who gave a processor up tries it again only now and then."""

_BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@contextmanager
def busy_processor(number: int) -> Iterator[None]:
    """Keep a processor busy with a program that never waits."""
    thief = subprocess.Popen([sys.executable, "-c", _BUSY, str(number)])
    try:
        yield
    finally:
        thief.kill()
        thief.wait(30)


def stolen_core(lane: Lane[Running], rounds: int, tokens: int, seed: int = 9) -> None:
    """Measure decode in peace and beside a busy program, each round both, contenders in turn.

    A round goes before that does not count.
    """
    rng, number = np.random.default_rng(seed), min(os.sched_getaffinity(0))
    for turn in range(rounds + 1):
        ids = prompt(rng, 16)

        def job(running: Running, ids=ids, counts=turn > 0) -> None:
            rate = tokens / running.run(ids, tokens)[1]
            with busy_processor(number):
                stolen = tokens / running.run(ids, tokens)[1]
            if counts:
                lane.compared.add(running.name, "quiet", rate)
                lane.compared.add(running.name, "stolen", stolen)
            time.sleep(SETTLE_S)

        lane.each(job)
