"""The axes of products: they are declared and act, and a call without a state has the defaults."""

import numpy as np
import pytest

import radiance_libavx
from radiance_abi.encoding import Encoding
from radiance_abi.testing import random_weight, run, same_bits
from radiance_abi.testing.case import Case
from radiance_abi.testing.running import geometry_of, prepared
from radiance_abi.vocabulary import STANDARD

[LIBRARY] = radiance_libavx.radiance_kernel_libraries()
PRODUCTS = [k for k in LIBRARY.kernels if "gemm" in k.op]
ROWS, COLUMNS = 2048, 512


@pytest.fixture(scope="module")
def case() -> Case:
    rng = np.random.default_rng()
    weight = random_weight(Encoding.parse("i8*f16[1x32]"), (ROWS, COLUMNS), rng)
    a = rng.standard_normal((1, COLUMNS), np.float32)
    params = {"M": 1, "N": ROWS, "K": COLUMNS, "dtype": "f32"}
    return Case(STANDARD["gemm_nt"], params, {"a": a, "b": weight})


def num_pieces(case: Case, piece_kib: int) -> int:
    [kernel] = [k for k in PRODUCTS if k.op == "gemm_nt"]
    call = prepared(kernel, case.with_params(piece_kib=piece_kib))
    try:
        assert kernel.tiles is not None
        return kernel.tiles(call)
    finally:
        assert kernel.fini is not None
        kernel.fini(call.state)


def test_products_declare_their_axes() -> None:
    """Each of them, with the same values."""
    assert len(PRODUCTS) >= 8
    for kernel in PRODUCTS:
        assert [(a.name, a.default) for a in kernel.axes] == [("ahead", 8192), ("piece_kib", 64)]
        assert geometry_of(kernel, {})["piece_kib"] == 64


def test_pieces_grow_with_the_axis(case: Case) -> None:
    """A weight of 1.06 MiB is read in fewer pieces, the more of it each reads."""
    counts = [num_pieces(case, kib) for kib in (16, 32, 64, 128, 256)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[2] > counts[3] > counts[4]


def test_a_call_without_a_state_has_the_defaults(case: Case) -> None:
    """A caller that leaves init out gets the pieces and the bits of the defaults."""
    [kernel] = [k for k in PRODUCTS if k.op == "gemm_nt"]
    call = prepared(kernel, case)
    assert kernel.tiles is not None
    assert kernel.fini is not None
    with_state = kernel.tiles(call)
    kernel.fini(call.state)
    call.state = None
    assert kernel.tiles(call) == with_state
    kernel.run(call, 0, with_state, 0)
    y = call.tensors[2]
    assert y is not None
    assert same_bits(run(kernel, case), {"y": y.numpy()}) is None
