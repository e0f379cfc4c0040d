"""Deltas from one thread to another's event loop: in order, none lost, few wake-ups."""

import asyncio
import threading

from radiance_core.engine.interface import Delta
from radiance_core.engine.post import PostOffice


async def test_nothing_is_lost_between_threads() -> None:
    """However sender and loop interleave, every delta arrives once and in order."""
    office = PostOffice(asyncio.get_running_loop())
    boxes = [office.mailbox() for _ in range(3)]
    count = 3000

    def send() -> None:
        for i in range(count):
            for box in boxes:
                assert box.put(Delta(str(i), 1))

    thread = threading.Thread(target=send)
    thread.start()
    async with asyncio.timeout(240):
        for box in boxes:
            assert [(await box.get()).text for _ in range(count)] == [str(i) for i in range(count)]
    thread.join()


async def test_one_wake_up_carries_many() -> None:
    """What is sent before the loop comes round costs it one call."""
    events = asyncio.get_running_loop()
    office = PostOffice(events)
    calls = []
    plain = events.call_soon_threadsafe
    events.call_soon_threadsafe = lambda *args: calls.append(args) or plain(*args)  # type: ignore
    try:
        box = office.mailbox()
        for i in range(10):
            assert box.put(Delta(str(i), 1))
        assert [(await box.get()).text for _ in range(10)] == [str(i) for i in range(10)]
        assert len(calls) == 1
        assert box.put(Delta("last", 1))
        assert (await box.get()).text == "last"
        assert len(calls) == 2
    finally:
        del events.call_soon_threadsafe  # type: ignore[attr-defined]


def test_a_loop_that_is_gone_is_told() -> None:
    """A closed loop takes nothing, also when it was closed with deltas still on their way."""
    loop = asyncio.new_event_loop()
    office = PostOffice(loop)

    async def mailbox() -> object:
        return office.mailbox()

    box = loop.run_until_complete(mailbox())
    assert box.put(Delta("a", 1))  # type: ignore[attr-defined]
    loop.close()
    assert not box.put(Delta("b", 1))  # type: ignore[attr-defined]
    del loop
    assert not box.put(Delta("c", 1))  # type: ignore[attr-defined]
