"""The conformance kit on ops of one or two int8 planes: sound rows pass, others are named."""

import numpy as np
import pytest

from radiance_abi import Call, Kernel, KernelLibrary, eq, isin, le
from radiance_abi.testing import cases, check
from radiance_abi.vocabulary import STANDARD

_F32 = isin("dtype", "f32")
_MOST = {1: 127, 2: 16256}


def _split(codes: np.ndarray, planes: int, lowest: int = -64) -> np.ndarray:
    """Lay codes into planes, the second in ``lowest`` .. ``lowest`` + 127."""
    if planes == 1:
        return codes
    low = (codes - lowest) % 128 + lowest
    return np.hstack([(codes - low) // 128, low])


def _quantise(call: Call, y: np.ndarray, planes: int, lowest: int = -64) -> None:
    """Write the codes of ``y``, which the three last operands take."""
    q, scale, asum = call.arrays()[-3:]
    assert q is not None
    assert scale is not None
    assert asum is not None
    most = np.float32(_MOST[planes])
    groups = y.reshape(len(y), -1, int(call.params["group"]))
    amax = np.abs(groups).max(axis=2)
    factor = np.where(amax > 0, most / amax, np.float32(0))
    codes = np.rint(groups * factor[..., None]).astype(np.int32)
    spelt = _split(codes.reshape(y.shape), planes, lowest)
    q[:, : spelt.shape[1]] = spelt
    scale[:], asum[:] = amax / most, codes.sum(axis=2)


def _rmsnorm(call: Call) -> np.ndarray:
    x, w = call.arrays()[:2]
    assert x is not None
    assert w is not None
    wide = x.astype(np.float64)
    rms = np.sqrt((wide**2).mean(axis=1, keepdims=True) + float(call.params["eps"]))
    gain = w.astype(np.float64) + float(call.params["wadd"])
    return np.asarray((wide / rms * gain).astype(np.float32))


def _normed(call: Call) -> None:
    _quantise(call, _rmsnorm(call), int(call.params["planes"]))


def _of_one_plane(call: Call) -> None:
    _quantise(call, _rmsnorm(call), 1)


def _of_positive_remainders(call: Call) -> None:
    _quantise(call, _rmsnorm(call), int(call.params["planes"]), lowest=0)


def _dequant(call: Call) -> None:
    q, scale, y = call.arrays()
    assert q is not None
    assert scale is not None
    assert y is not None
    codes = q.astype(np.int32)
    if call.params["planes"] == 2:
        high, low = np.split(codes, 2, axis=1)
        codes = 128 * high + low
    factors = np.repeat(scale.astype(np.float64), int(call.params["group"]), axis=1)
    y[:] = codes * factors


def _library(*rows: Kernel) -> KernelLibrary:
    return KernelLibrary("mylib", version="1", kernels=rows)


@pytest.mark.parametrize(
    ("op", "run", "where"),
    [
        ("rmsnorm_quant_i8", _normed, (_F32, le("planes", 2))),
        ("rmsnorm_quant_i8", _of_one_plane, (_F32, eq("planes", 1))),
        ("dequant", _dequant, (_F32, le("planes", 2))),
    ],
)
def test_sound_rows_pass(op: str, run: object, where: tuple[object, ...]) -> None:
    """A row for both numbers of planes passes, and one for a single number that says so."""
    row = Kernel(op=op, name="sound", run=run, where=where)  # type: ignore[arg-type]
    report = check(_library(row), count=12)
    assert report.passed, "\n".join(report.lines())


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (_of_one_plane, "expected the sum of its codes"),
        (_of_positive_remainders, "expected a second plane in -64..63, got"),
    ],
)
def test_rows_that_get_planes_wrong_are_found(run: object, told: str) -> None:
    """A row that takes two planes for one, or splits codes elsewhere, is a fault."""
    where = (_F32, eq("planes", 2))
    row = Kernel(op="rmsnorm_quant_i8", name="odd", run=run, where=where)  # type: ignore[arg-type]
    report = check(_library(row))
    assert not report.passed
    assert told in "\n".join(report.lines())


def test_each_number_of_planes_is_met() -> None:
    """Two cases are one of either, so a row that knows a single number never passes for both."""
    row = Kernel(op="rmsnorm_quant_i8", name="odd", run=_of_one_plane, where=(_F32,))
    made = cases(row, STANDARD["rmsnorm_quant_i8"], np.random.default_rng(), 2)
    assert {case.params["planes"] for case in made} == {1, 2}
    assert not check(_library(row), count=2).passed
