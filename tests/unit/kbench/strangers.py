"""Kernel libraries in a few lines of numpy: a right one, and what strangers do wrong."""

import numpy as np

from radiance_abi import Call, Kernel, KernelLibrary, Layout
from radiance_abi.encoding import decode
from radiance_abi.testing.case import codes_of


def add(call: Call) -> None:
    """Compute what is asked, where it is asked."""
    a, b, y = call.arrays()
    y[...] = a + b


def one_wrong(call: Call) -> None:
    """Be off by one at one place."""
    add(call)
    y = call.arrays()[2]
    if len(y) > 3:
        y[3, 17] += 1


def last_wrong(call: Call) -> None:
    """Leave the last element of each row out."""
    a, b, y = call.arrays()
    y[:, :-1] = (a + b)[:, :-1]


def past_the_end(call: Call) -> None:
    """Write one element too many."""
    add(call)
    y = call.arrays()[2]
    np.lib.stride_tricks.as_strided(y[-1], (y.shape[1] + 1,), y.strides[1:])[-1] = 0


def changes_input(call: Call) -> None:
    """Use an input as scratch memory."""
    add(call)
    call.arrays()[0][0, 0] = 7


def ignores_strides(call: Call) -> None:
    """Take rows to lie next to each other."""
    a, b, y = (x.reshape(x.shape) for x in call.arrays())
    dense = [
        np.lib.stride_tricks.as_strided(x, x.shape, (x.shape[1] * x.itemsize, x.itemsize))
        for x in (a, b)
    ]
    y[...] = dense[0] + dense[1]


def raises(call: Call) -> None:
    """End in an exception of Python's."""
    raise ZeroDivisionError("in the kernel")


def silu(call: Call) -> None:
    """Divide x by 1 + exp(-x) in f32."""
    x, y = call.arrays()
    y[...] = x / (1 + np.exp(-x))


def depends_on_rows(call: Call) -> None:
    """Round otherwise in a batch than alone, by less than a tolerance."""
    silu(call)
    y = call.arrays()[1]
    y *= np.float32(1 + 2.0**-22 * (len(y) > 1))


def mul(call: Call) -> None:
    """Multiply in f32."""
    a, b, y = call.arrays()
    y[...] = a * b


def silu_mul(call: Call) -> None:
    """The chain, rounded as the chain is."""
    pair, y = call.arrays()
    half = y.shape[1]
    y[...] = pair[:, :half] / (1 + np.exp(-pair[:, :half])) * pair[:, half:]


def silu_mul_unlike(call: Call) -> None:
    """The chain's value with other roundings."""
    pair, y = call.arrays()
    half = y.shape[1]
    wide = pair.astype(np.float64)
    y[...] = wide[:, :half] / (1 + np.exp(-wide[:, :half])) * wide[:, half:]


def gemm_nt(call: Call) -> None:
    """Multiply each row by a weight, apart from the others."""
    a, b, y = call.arrays()
    wide = b.astype(np.float32)
    for row, out in zip(a, y, strict=True):
        out[...] = wide @ row.copy()


def gemm_nt_add(call: Call) -> None:
    """The chain: the product, stored, plus the residual."""
    a, b, res, y = call.arrays()
    wide = b.astype(np.float32)
    for row, more, out in zip(a, res, y, strict=True):
        out[...] = wide @ row.copy() + more


def gemm_nt_add_unlike(call: Call) -> None:
    """The chain's value, rounded once."""
    a, b, res, y = call.arrays()
    wide = b.astype(np.float64)
    for row, more, out in zip(a, res, y, strict=True):
        out[...] = wide @ row.astype(np.float64) + more


def as_f32(encoding, shape, geometry, operand) -> Layout:
    """Ask for every weight decoded."""
    return Layout("decoded", "f32", shape)


def decoded(encoding, layout, planes, stored, first, last, geometry, operand) -> None:
    """Decode rows."""
    stored[first:last] = decode(encoding, planes, (last - first, layout.shape[1]))


def decoded_but_tables(encoding, layout, planes, stored, *more) -> None:
    """Take a table for what it is not."""
    decoded(encoding, layout, planes, stored, *more)
    stored *= np.float32(1 + ("table" in planes))


def gemm_nt_q(call: Call) -> None:
    """Multiply codes row by row in f64."""
    a, a_scale, _, b, y = call.arrays()
    codes = codes_of(a, int(call.params["planes"])).astype(np.float64)
    rows = codes * np.repeat(a_scale.astype(np.float64), int(call.params["group"]), axis=1)
    wide = b.astype(np.float64)
    for i, row in enumerate(rows):
        y[i] = wide @ row


def two_planes_by_rows(call: Call) -> None:
    """Round two planes otherwise in a batch than alone, by less than a tolerance."""
    gemm_nt_q(call)
    y = call.arrays()[-1]
    y *= np.float32(1 + 2.0**-22 * (len(y) > 1 and call.params["planes"] == 2))


def library(*rows: Kernel) -> KernelLibrary:
    """Return a stranger's library."""
    return KernelLibrary("stranger", kernels=rows)


def row(op: str, run, **more) -> Kernel:
    """Return a row named after its function."""
    return Kernel(op=op, name=run.__name__, run=run, **more)
