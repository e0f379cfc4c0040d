"""The engine's thread: takes requests in, runs steps, hands tokens out; never dies silently.

One file, because the order in which that thread does things is what there is to read.
"""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future

from radiance_core.engine.admission import WaitingLine, admit
from radiance_core.engine.batch import Batch
from radiance_core.engine.counters import Counters
from radiance_core.engine.faults import run_apart
from radiance_core.engine.interface import EngineState, EngineStopped
from radiance_core.engine.observation import Observation
from radiance_core.engine.pace import Pace
from radiance_core.engine.pages import StateCache
from radiance_core.engine.preemption import hold_pages
from radiance_core.engine.results import take_results
from radiance_core.engine.running_step import RunningStep
from radiance_core.engine.schedule import Bounds, next_step
from radiance_core.engine.sequence import Sequence, held_by
from radiance_core.execute.program import StepAborted
from radiance_core.log_events import get_logger
from radiance_core.runtime import StepModel

log = get_logger(__name__)

STOPPED = "The engine stopped before the answer was complete."


class EngineLoop:
    """Runs sequences on one thread.

    A sequence waits, then runs, perhaps waits again, then is gone; whichever way it goes it gets a
    last delta, unless it was cancelled. Waiting and running change under one lock; the rest is the
    thread's own.

    Args:
        model: the built model; this thread alone runs it.
        max_seqs: sequences in a step.
        max_tokens: tokens in a step.
        keep_prefixes: whether what one request computed serves later ones.
        max_drafts: tokens of one sequence that a step may guess.
    """

    def __init__(
        self,
        model: StepModel,
        max_seqs: int,
        max_tokens: int,
        *,
        keep_prefixes: bool = True,
        max_drafts: int = 0,
    ) -> None:
        self._model = model
        self._max_seqs = max_seqs
        self.cache = StateCache(
            model.groups, max_tokens, model.copy_page, model.clear_page, keep=keep_prefixes
        )
        self._batch = Batch(model)
        self._bounds = Bounds(max_tokens, self._batch.max_outs, max_drafts)
        self.pace = Pace()
        self._running_step = RunningStep()
        self._waiting = WaitingLine()
        self._running: list[Sequence] = []
        self._arrivals = 0
        self._resets: list[Future[bool]] = []
        self._wake = threading.Condition()
        self._stopping = False
        self._ended = False
        self._state: EngineState = "loading"
        self.failure = ""
        self.counters = Counters()
        self.observation = Observation()
        self.busy_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._state = "ready"
        self._thread.start()

    @property
    def state(self) -> EngineState:
        """What the thread is at: a thread that is gone without having been stopped has failed."""
        if self._state == "ready" and not self._thread.is_alive():
            return "draining" if self._stopping else "failed"
        return self._state

    @property
    def num_waiting(self) -> int:
        """Requests that do not run now."""
        return len(self._waiting)

    @property
    def num_waiting_tokens(self) -> int:
        """Tokens of the requests that do not run now."""
        return self._waiting.num_tokens

    @property
    def num_running(self) -> int:
        """Requests that hold cache pages."""
        return len(self._running)

    def submit(self, seq: Sequence) -> None:
        """Queue a sequence.

        Raises:
            EngineStopped: the thread takes none any more, so nobody would ever answer.
        """
        with self._wake:
            if self._ended:
                raise EngineStopped(f"engine: it is {self.state}: {self.failure or 'it has ended'}")
            self._arrivals += 1
            seq.arrival, seq.arrived_s = self._arrivals, time.monotonic()
            self._waiting.add(seq)
            self._wake.notify()

    def cancel(self, seq: Sequence) -> None:
        """Let go of a sequence after this step, which ends at once if nobody else is in it."""
        with self._wake:
            seq.cancelled = True
            self._running_step.look()
            self._wake.notify()

    def displace(self, tenant: str, max_waiting: int) -> bool:
        """See ``WaitingLine.displace``."""
        with self._wake:
            return self._waiting.displace(tenant, max_waiting)

    def reset_cache(self) -> "Future[bool]":
        """Ask for the cached prompts to be forgotten; the result says whether all were."""
        done: Future[bool] = Future()
        # Who asked may be gone by then; nobody can take the request back.
        done.set_running_or_notify_cancel()
        with self._wake:
            if self._ended:
                done.set_result(False)
            else:
                self._resets.append(done)
                self._wake.notify()
        return done

    def stop(self, timeout_s: float | None = None) -> bool:
        """End the thread, and its current step early; what still runs ends with an error.

        Args:
            timeout_s: how long to wait for the thread. When it takes longer, those who wait are
                told all the same, and the thread is left behind.

        Returns:
            Whether the thread has ended, so that nothing uses the model any more.
        """
        with self._wake:
            self._stopping = True
            self._running_step.stop()
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if self._thread.is_alive() or not self._ended:
            self._fail_all(STOPPED)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while self._wait():
                self._step()
        except BaseException as error:
            # A fault in the engine itself: say so for ever, rather than hang those who wait.
            self.failure = f"{type(error).__name__}: {error}"
            self._state = "failed"
            log.exception("engine_failed")
        finally:
            self._fail_all(STOPPED)

    def _fail_all(self, text: str) -> None:
        """End every sequence, and let none in from now on."""
        with self._wake:
            self._ended = True
            left = [*self._running, *self._waiting.in_order()]
            self._running.clear()
            self._waiting.clear()
            self.observation.infos = ()
            resets, self._resets = self._resets, []
        for seq in left:
            seq.fail(text)
        for reset in resets:
            reset.set_result(False)

    def _wait(self) -> bool:
        """Sleep until there is work; admit and drop sequences; return False to end."""
        with self._wake:
            self._tidy()
            while not self._running and not self._stopping:
                self.busy_since = None
                self.observation.publish(self._waiting.in_order(), ())
                self._wake.wait()
                self._tidy()
            return not self._stopping

    def _tidy(self) -> None:
        """Drop what was cancelled, running or not; forget what is to be forgotten; let in."""
        for seq in [s for s in self._running if s.cancelled]:
            self._leave(seq)
            self.counters.requests_cancelled += 1
        self.counters.requests_cancelled += len(self._waiting.take_cancelled())
        while self._resets:
            self._resets.pop().set_result(self.cache.reset())
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        counters = self.counters
        for seq in admit(self._waiting, self._running, self.cache, self._max_seqs):
            if seq.entries == 1 and seq.request.reuse_cache and self.cache.keeps:
                counters.prefix_cache_queries += seq.prompt_tokens
                counters.prefix_cache_hits += seq.computed

    def _leave(self, seq: Sequence) -> None:
        self._running.remove(seq)
        (self.cache.condemn if seq.is_poisoned else self.cache.leave)(held_by(seq))
        seq.held = None

    def _step(self) -> None:
        start = time.monotonic()
        self.busy_since = start
        step = next_step(self._running, self._bounds, self.pace.tokens)
        with self._wake:
            step, gone = hold_pages(step, self._running, self.cache)
            for seq in gone:
                self._waiting.add(seq)
            seqs = [w.seq for w in step.work]
            abort = self._running_step.begin(seqs, stopping=self._stopping)
        self.counters.preemptions += len(gone)
        self._publish()
        num_prompt = step.num_prompt_tokens
        try:
            for part in run_apart(self._model, self._batch, step, Sequence.fail, abort):
                take_results(part, self._batch.drawing, self.cache, self.counters)
        except StepAborted:
            self.counters.steps_aborted += 1
        else:
            seconds = time.monotonic() - start
            self.counters.count_step(step.kind, seconds)
            self.pace.measure(num_prompt, seconds)
        with self._wake:
            self._running_step.end()
        self._retire(seq for seq in seqs if seq.finished)

    def _publish(self) -> None:
        if self.observation.is_due:
            with self._wake:
                waiting = self._waiting.in_order()
            self.observation.publish(waiting, self._running)

    def _retire(self, done: Iterable[Sequence]) -> None:
        for seq in done:
            with self._wake:
                if seq in self._running:
                    self._leave(seq)
            self.counters.requests_finished += not seq.failed
            self.counters.requests_failed += seq.failed
