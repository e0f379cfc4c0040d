"""Memory for weights: what a reservation hands out."""

import random

from radiance_core.load.memory import ALIGN, Reservation, padded


def test_arrays_are_aligned_apart_and_zero() -> None:
    """Arrays of any sizes begin at multiples of 256, hold zeros and share no byte."""
    sizes = [random.randrange(1, 5 << 20) for _ in range(9)] + [0, 1, ALIGN, ALIGN + 1]
    memory = Reservation(sum(map(padded, sizes)))
    arrays = [memory.take(size) for size in sizes]
    for i, (array, size) in enumerate(zip(arrays, sizes, strict=True)):
        assert array.nbytes == size
        assert array.ctypes.data % ALIGN == 0
        assert not array.any()
        array[:] = i + 1
    assert all((array == i + 1).all() for i, array in enumerate(arrays))


def test_an_array_outlives_the_reservation() -> None:
    """An array keeps its pages when nothing else refers to them."""
    array = Reservation(padded(1000)).take(1000)
    array[:] = 7
    assert bytes(array) == b"\x07" * 1000
