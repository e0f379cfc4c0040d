"""Kernel rows: what constraints hold for, how they read, and rows that cannot be."""

import re

import numpy as np
import pytest

from radiance_abi import AbiError, Axis, Call, Constraint, Kernel, Tensor, div, eq, ge, isin, le
from radiance_abi.quantizers import Option, WeightInfo


@pytest.mark.parametrize(
    ("constraint", "holds", "fails", "text"),
    [
        (eq("n", 4), [4, True + 3], [3, 5, "4", 4.0, None], "n=4"),
        (le("n", 4), [4, 0, -1], [5, "x", None], "n<=4"),
        (ge("n", 4), [4, 99], [3, 4.5, None], "n>=4"),
        (div("n", 4), [0, 4, 400], [3, 6, None, "8"], "n multiple of 4"),
        (div("n", 0), [], [0, 1], "n multiple of 0"),
        (isin("w", "a b", "c"), ["a", "b", "c"], ["d", "", None, 1, "a b"], "w in {a,b,c}"),
    ],
)
def test_constraints(constraint: Constraint, holds: list, fails: list, text: str) -> None:
    """A condition holds for what it says, never for floats or what is absent, and is readable."""
    assert [v for v in holds if not constraint.holds(v)] == []
    assert [v for v in fails if constraint.holds(v)] == []
    assert str(constraint) == text


@pytest.mark.parametrize(("values", "default"), [((1, 2), 3), ((2, 1), 1), ((1, 1, 2), 1), ((), 0)])
def test_axes_must_make_sense(values: tuple[int, ...], default: int) -> None:
    """Values ascend and hold the default."""
    says = f"axis tile: expected ascending values that contain the default, got values {values} and"
    with pytest.raises(AbiError, match=re.escape(says)):
        Axis("tile", values, default)
    assert Axis("tile", (1, 2), 2).default == 2


def test_a_domain_is_host_or_device() -> None:
    """Another domain is refused by the name of the kernel."""
    with pytest.raises(AbiError, match="kernel k: domain: expected host or device, got 'moon'"):
        Kernel(op="silu", name="k", run=lambda call: None, domain="moon")


def test_a_call_gives_arrays_over_its_memory() -> None:
    """Operands come as arrays that share memory, absent ones as None."""
    array = np.zeros((2, 2), np.float32)
    first, absent = Call([Tensor(array, "f32"), None], {}).arrays()
    assert absent is None
    first[0, 0] = 5
    assert array[0, 0] == 5


def test_quantiser_facts_are_plain_values() -> None:
    """What a quantiser is told is a frozen value with sensible blanks."""
    info = WeightInfo("blk.0.w", (4, 32))
    assert (info.layer, info.expert, info.importance) == (None, None, None)
    with pytest.raises(AttributeError):
        info.name = "x"  # type: ignore[misc]
    assert Option("bits", int, 4).default == 4
