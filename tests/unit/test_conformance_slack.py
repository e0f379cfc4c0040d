"""How far a kernel may be from a formula: as far as its stages may round otherwise, no farther."""

from typing import Any

import numpy as np
import pytest

from radiance_abi.testing.case import Case, numpy_dtype, smallest
from radiance_abi.testing.formulas import FORMULAS, difference
from radiance_abi.vocabulary import STANDARD


def _neighbour(x: np.ndarray, steps: int) -> np.ndarray:
    """Return the numbers of x's type that lie ``steps`` above x in magnitude."""
    return (np.abs(x).view(np.uint16) + np.uint16(steps)).view(x.dtype)


def _products(name: str, rng: np.random.Generator, size: float, steps: int) -> tuple[Case, Any]:
    """Return a case of silu_mul, and its result when silu is stored ``steps`` numbers too far."""
    kind = numpy_dtype(name)
    gate = np.abs(rng.normal(size=(4, 32)) * size).astype(np.float32).astype(kind)
    up = np.exp(rng.normal(size=gate.shape) * 2).astype(np.float32).astype(kind)
    x = gate.astype(np.float64)
    stored = _neighbour((x / (1 + np.exp(-x))).astype(np.float32).astype(kind), steps)
    got = (stored.astype(np.float32) * up.astype(np.float32)).astype(kind)
    operands = {"gate_up": np.concatenate([gate, up], axis=1)}
    params = {"M": 4, "n": 32, "dtype": name}
    return Case(STANDARD["silu_mul"], params, operands), got


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("size", [1e-9, 1e-7, 3e-5, 1e-2, 1.0])
def test_a_stage_may_round_to_either_side(name: str, size: float) -> None:
    """One place off is rounding, however small the stage and large what it is multiplied by."""
    rng = np.random.default_rng()
    for steps in (0, 1):
        case, got = _products(name, rng, size, steps)
        want = FORMULAS["silu_mul"](case)["y"]
        assert difference("y", want, {"y": got}, name) == ""


@pytest.mark.parametrize("size", [1e-7, 3e-5, 1e-2, 1.0])
def test_a_stage_may_not_be_anywhere(size: float) -> None:
    """Four places off is a fault, also among the smallest numbers of f16."""
    case, got = _products("f16", np.random.default_rng(), size, 4)
    want = FORMULAS["silu_mul"](case)["y"]
    assert "beyond" in difference("y", want, {"y": got}, "f16")


def test_a_stage_that_nothing_multiplies_moves_its_result_by_one_spacing() -> None:
    """gemm_nt_add adds to what it stored: two spacings off by rounding, five are a fault."""
    weight = np.zeros((8, 64), np.float16)
    operands = {
        "a": np.zeros((2, 64), np.float16),
        "b": weight,
        "res": np.zeros((2, 8), np.float16),
    }
    case = Case(STANDARD["gemm_nt_add"], {"M": 2, "N": 8, "K": 64, "dtype": "f16"}, operands)
    want = FORMULAS["gemm_nt_add"](case)["y"]
    for spacings, found in ((2, ""), (5, "beyond")):
        got = np.full((2, 8), spacings * smallest("f16"), np.float16)
        fault = difference("y", want, {"y": got}, "f16")
        assert found in fault
        assert bool(found) == bool(fault)
