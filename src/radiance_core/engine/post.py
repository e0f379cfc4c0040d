"""Deltas on their way from the engine's thread to the event loop of whoever asked."""

import asyncio
import weakref
from collections import deque

from radiance_core.engine.interface import Delta


class PostOffice:
    """Delivers to one event loop. All that a step has for it costs one wake-up of the loop.

    Args:
        events: the loop; it may close at any time.
    """

    def __init__(self, events: asyncio.AbstractEventLoop) -> None:
        self._events = weakref.ref(events)
        self._sent: deque[tuple[asyncio.Queue[Delta], Delta]] = deque()
        self._is_called = False

    def mailbox(self) -> "Mailbox":
        """Return a mailbox for one request; call it on the loop."""
        return Mailbox(self)

    def send(self, to: "asyncio.Queue[Delta]", delta: Delta) -> bool:
        """Hand a delta over, from any thread; False when the loop is gone."""
        events = self._events()
        if events is None or events.is_closed():
            return False
        self._sent.append((to, delta))
        # Set before the loop is called and cleared before it looks, so no delta is left lying.
        if not self._is_called:
            self._is_called = True
            try:
                events.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                return False
        return True

    def _deliver(self) -> None:
        self._is_called = False
        while self._sent:
            to, delta = self._sent.popleft()
            to.put_nowait(delta)


class Mailbox:
    """Takes the deltas of one request."""

    def __init__(self, office: PostOffice) -> None:
        self._office = office
        self._queue: asyncio.Queue[Delta] = asyncio.Queue()

    def put(self, delta: Delta) -> bool:
        """Hand a delta over, from any thread; False when nobody can take it any more."""
        return self._office.send(self._queue, delta)

    async def get(self) -> Delta:
        """Return the next delta."""
        return await self._queue.get()
