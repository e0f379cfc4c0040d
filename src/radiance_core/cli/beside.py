"""Blocking work beside the rest of a start, on a thread that nobody waits for in the end."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """Work on a thread of its own.

    ``result``: of the work, or what it raised.

    Args:
        name: of the thread.
        work: gets this object, to say that it has ``begun``.
    """

    def __init__(self, name: str, work: Callable[["Beside[T]"], T]) -> None:
        self.result: Future[T] = Future()
        self._work = work
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_busy(self) -> bool:
        """Whether the work still goes on."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Let the work begin."""
        self._thread.start()

    def begun(self) -> None:
        """Say, as the work, that nobody needs to wait for the beginning any longer."""
        self._begun.set()

    def wait_begun(self, seconds: float) -> None:
        """Wait until the work has said that it has begun, or has ended, at most so long."""
        self._begun.wait(seconds)

    def _run(self) -> None:
        self.result.set_running_or_notify_cancel()  # who no longer waits cannot call it off
        try:
            result = self._work(self)
        except BaseException as error:
            self.result.set_exception(error)
        else:
            self.result.set_result(result)
        finally:
            self._begun.set()
