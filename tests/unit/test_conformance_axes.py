"""The conformance kit holds every value of every axis to the same bits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from radiance_abi import Axis, Call, Kernel, KernelLibrary, isin
from radiance_abi.testing import examine
from radiance_abi.vocabulary import STANDARD

AXES = (Axis("wide", (1, 2, 3), 2), Axis("deep", (0, 7), 0))


def library(run: Callable[[Call], None], **hooks: Any) -> KernelLibrary:
    where = [isin("dtype", "f32")]
    kernel = Kernel(op="add", name="mine", run=run, axes=AXES, where=where, **hooks)
    return KernelLibrary("mine", kernels=[kernel])


def add(call: Call) -> None:
    x, residual, y = call.arrays()
    assert x is not None
    assert residual is not None
    assert y is not None
    y[:] = x + residual


def faults(made: KernelLibrary) -> tuple[str, ...]:
    [kernel] = made.kernels
    return examine(kernel, made.kernels, STANDARD["add"], np.random.default_rng(), 2).faults


def test_every_value_is_met() -> None:
    """A kernel that does not heed its axes is right; it was run with each value of each."""
    seen: set[tuple[str, object]] = set()

    def run(call: Call) -> None:
        seen.update((axis.name, call.params[axis.name]) for axis in AXES)
        add(call)

    made = library(run)
    assert faults(made) == ()
    assert seen == {(axis.name, value) for axis in AXES for value in axis.values}


@pytest.mark.parametrize(("axis", "value"), [("wide", 1), ("wide", 3), ("deep", 7)])
def test_a_value_that_changes_a_bit_is_found(axis: str, value: int) -> None:
    """One odd value among all is named with the result that it changes."""

    def run(call: Call) -> None:
        add(call)
        if call.params[axis] == value:
            y = call.arrays()[2]
            assert y is not None
            y[0, 0] = np.nextafter(y[0, 0], np.float32(np.inf))

    found = faults(library(run))
    assert len(found) == 2
    assert all("y: axes " in fault and f"{axis}={value}" in fault for fault in found)
    assert all("give other bits than the defaults" in fault for fault in found)


def test_init_sees_the_values() -> None:
    """What init makes of an axis is what run finds in the state."""

    def run(call: Call) -> None:
        assert call.state == (call.params["wide"], call.params["deep"])
        add(call)

    assert faults(library(run, init=lambda g: (g["wide"], g["deep"]))) == ()
