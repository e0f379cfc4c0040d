"""Rows of a made-up library, right ones, for tests of the conformance kit."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from radiance_abi import (
    Call,
    Encoding,
    Geometry,
    Kernel,
    KernelLibrary,
    Layout,
    isin,
    le,
)
from radiance_abi.encoding import decode, plain
from radiance_abi.testing import (
    Report,
    check,
)

Arrays = list[Any]


SOME_F32 = (isin("dtype", "f32"),)


def library_of(*rows: Kernel, **fields: Any) -> KernelLibrary:
    """Return a library of some rows."""
    return KernelLibrary("mylib", version="0.1", kernels=rows, **fields)


def report_on(*rows: Kernel, **fields: Any) -> Report:
    """Check a library of some rows."""
    return check(library_of(*rows, **fields))


def text_of(report: Report) -> str:
    """Return a report as it is printed."""
    return "\n".join(report.lines())


def swiglu(call: Call) -> None:
    """Compute silu(gate) * up in f32."""
    gate_up, y = call.arrays()
    assert gate_up is not None
    assert y is not None
    gate, up = np.split(gate_up, 2, axis=1)
    y[:] = gate / (1 + np.exp(-gate)) * up


def silu_mul(run_: Callable[[Call], None], name: str = "mine", **fields: Any) -> Kernel:
    """Return a row of silu_mul."""
    return Kernel(op="silu_mul", name=name, run=run_, where=(*SOME_F32, le("M", 64)), **fields)


def softmax(call: Call) -> None:
    """Compute a softmax in f64."""
    x, y = call.arrays()
    assert x is not None
    assert y is not None
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    y[:] = e / e.sum(axis=1, keepdims=True)


def copied(
    encoding: Encoding, shape: tuple[int, ...], geometry: Geometry, operand: int
) -> Layout | None:
    """Ask for f32 weights as they are; read no others."""
    return Layout("copy", "f32", shape) if encoding == plain("f32") else None


def relaid(
    encoding: Encoding,
    layout: Layout,
    planes: Mapping[str, np.ndarray],
    stored: np.ndarray,
    first: int,
    last: int,
    geometry: Geometry,
    operand: int,
) -> None:
    """Copy rows."""
    width = layout.shape[-1]
    stored.reshape(-1, width)[first:last] = decode(encoding, planes, (last - first, width))


def given_back(
    encoding: Encoding,
    layout: Layout,
    stored: np.ndarray,
    first: int,
    last: int,
    geometry: Geometry,
    operand: int,
) -> dict[str, np.ndarray]:
    """Copy rows back."""
    return {"codes": stored.reshape(-1, layout.shape[-1])[first:last].copy()}


def gemm(call: Call) -> None:
    """Multiply in f64, row by row."""
    a, b, y = call.arrays()
    assert a is not None
    assert b is not None
    assert y is not None
    for i in range(len(a)):
        y[i] = (a[i].astype(np.float64) * b).sum(axis=1)


def gemm_row(**hooks: Any) -> Kernel:
    """Return a row of gemm_nt whose layout is a copy."""
    kept = {"layout": copied, "relayout": relaid, "unrelayout": given_back, **hooks}
    return Kernel(op="gemm_nt", name="mine", run=gemm, where=SOME_F32, **kept)
