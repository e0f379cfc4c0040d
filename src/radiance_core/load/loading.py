"""Loading beside the rest of a start: C begins at once, Python does its part when waited for.

What C lays out takes no lock of the interpreter. What Python does takes it between any two pieces,
and each time it would wait for whatever else the start does; so that part runs when nothing else
does.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from radiance_abi import native
from radiance_abi.errors import AbiError
from radiance_core.load.memory import Reservation, padded
from radiance_core.load.weights import Checkpoint, load_site, not_laid_out
from radiance_core.plan.sites import Site, SiteKey


class Loading:
    """Sites that are being filled.

    ``storages``: the memory of every site, of which nothing may be read before ``finish``.

    Args:
        sites: what to fill.
        checkpoint: the open model.
        num_threads: 1 or more; one of them is the caller of ``finish``.
        waiting: called by ``finish`` when all that is left is to wait for C.
    """

    def __init__(
        self,
        sites: Mapping[SiteKey, Site],
        checkpoint: Checkpoint,
        num_threads: int,
        waiting: Callable[[], None] | None = None,
    ) -> None:
        self._waiting = waiting
        self._checkpoint = checkpoint
        self._num_threads = num_threads
        self._batch = checkpoint.batch()
        self._in_c: list[Site] = []
        self._in_python: list[tuple[Site, np.ndarray]] = []
        self._errors: list[BaseException] = []
        memory = Reservation(sum(padded(site.nbytes) for site in sites.values()))
        self.storages: dict[SiteKey, np.ndarray] = {}
        for key, site in sites.items():
            stored = self.storages[key] = memory.take(site.nbytes)
            if not self._give_to_c(site, stored):
                self._in_python.append((site, stored))
        self._threads = self._start()

    def finish(self) -> dict[SiteKey, np.ndarray]:
        """Return the storages when every site is filled; this thread works too.

        Raises:
            WeightError: a kernel could not lay a weight out; what has not begun is not begun.
        """
        self._fill_in_python()
        if self._waiting is not None:
            self._waiting()
        if self._batch is None:
            return self.storages
        if self._threads:
            self._work()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        if self._in_c and self._batch.failure is not None:
            number, first, last, status = self._batch.failure
            site = self._in_c[number]
            error = native.failed(status, site.kernel.native, "relayout", site.geometry)
            raise not_laid_out(site, first, last, error) from error
        return self.storages

    def _give_to_c(self, site: Site, stored: np.ndarray) -> bool:
        """Have C fill a site if it can."""
        layout, kernel = site.layout, site.kernel
        if self._batch is None or layout is None or not kernel.native:
            return False
        if len(site.weight.shape) == 1:
            return False
        try:
            call = native.relayout_call(
                kernel.native, site.weight.encoding, layout, site.geometry, site.operand
            )
        except AbiError:  # told when Python comes to it, with the weight's name
            return False
        names = site.weight.source.names
        if call is None or not self._batch.add(names, layout.row_block, call, stored):
            return False
        self._in_c.append(site)
        return True

    def _start(self) -> list[threading.Thread]:
        """Let all threads but the caller's begin with what C does, and one in any case."""
        if self._batch is None or not self._in_c:
            return []
        self._batch.start()
        threads = [
            # Nobody waits for them in the end: a start that fails need not load all weights first.
            threading.Thread(target=self._work, name="lay out", daemon=True)
            for _ in range(max(1, self._num_threads - 1))
        ]
        for thread in threads:
            thread.start()
        return threads

    def _work(self) -> None:
        assert self._batch is not None, "threads begin when there is one"
        try:
            self._batch.work()
        except BaseException as error:
            self._errors.append(error)

    def _fill_in_python(self) -> None:
        """Fill what C does not; pages of the file are let go when a tensor's readers are done."""
        left: dict[str, int] = {}
        for site, _ in self._in_python:
            for name in site.weight.source.names:
                left[name] = left.get(name, 0) + 1
        with ThreadPoolExecutor(self._num_threads) as pool:
            pending = []
            for site, stored in self._in_python:
                pieces: list[Callable[[], None]] = []
                load_site(site, self._checkpoint, stored, pieces.append)
                pending.append((site, [pool.submit(piece) for piece in pieces]))
            for site, futures in pending:
                try:
                    for future in futures:
                        future.result()
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
                for name in site.weight.source.names:
                    left[name] -= 1
                    if left[name] == 0:
                        self._checkpoint.release(name)
