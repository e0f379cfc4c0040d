"""Work beside a start: its result arrives, also when it is an error, and waiting ends."""

import threading

import pytest

from radiance_core.cli.beside import Beside


def test_the_result_arrives_and_the_beginning_can_be_waited_for() -> None:
    """Who waits for the beginning goes on when the work says so; the result comes later."""
    go = threading.Event()

    def work(self: Beside[int]) -> int:
        self.begun()
        assert go.wait(60)
        return 5

    beside = Beside("work", work)
    beside.start()
    beside.wait_begun(60)
    assert beside.is_busy
    assert not beside.result.done()
    assert not beside.result.cancel(), "nobody calls off what runs"
    go.set()
    assert beside.result.result(60) == 5


def test_an_error_ends_the_waiting_too() -> None:
    """Work that fails before it has begun holds nobody up."""

    def work(_: Beside[int]) -> int:
        raise ZeroDivisionError("no")

    beside = Beside("work", work)
    beside.start()
    beside.wait_begun(60)
    with pytest.raises(ZeroDivisionError, match="no"):
        beside.result.result(60)


def test_waiting_has_a_limit() -> None:
    """Work that never says that it has begun is not waited for without end."""
    go = threading.Event()
    beside = Beside("work", lambda _: go.wait(60))
    beside.start()
    beside.wait_begun(0.01)
    assert beside.is_busy
    go.set()
    assert beside.result.result(60)
