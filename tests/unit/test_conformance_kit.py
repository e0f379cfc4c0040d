"""The conformance kit finds what is broken: each test breaks one rule and reads the report."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from kit_rows import SOME_F32, library_of, report_on, silu_mul, softmax, swiglu, text_of

from radiance_abi import (
    AbiError,
    Call,
    Kernel,
    KernelError,
    eq,
    ge,
    isin,
    le,
)
from radiance_abi.kernels import Constraint
from radiance_abi.testing import (
    caller,
    check,
)


def test_a_sound_library_passes_and_is_repeatable() -> None:
    """The report says passed, counts cases, and a seed gives the same report again."""
    library = library_of(silu_mul(swiglu))
    report = check(library, seed=7)
    assert report.passed, text_of(report)
    assert report.outcomes[0].num_cases == 6
    assert text_of(check(library, seed=7)) == text_of(report)
    assert "passed: 6 cases, 0 faults" in text_of(report)


def test_a_wrong_number_is_found() -> None:
    """Results off by more than rounding are shown with both numbers and the case."""

    def wrong(call: Call) -> None:
        swiglu(call)
        out = call.arrays()[1]
        assert out is not None
        out *= np.float32(1.0001)

    text = text_of(report_on(silu_mul(wrong)))
    assert "FAIL  silu_mul" in text
    assert ": y[" in text
    assert "]: expected" in text
    assert "dtype=f32" in text


def test_memory_beside_an_operand_is_watched() -> None:
    """Writing one element past the end is named."""

    def past(call: Call) -> None:
        swiglu(call)
        y = call.arrays()[1]
        assert y is not None
        np.lib.stride_tricks.as_strided(y, (y.size + 1,), (4,))[-1] = 0

    assert "memory beside operand y was written" in text_of(report_on(silu_mul(past)))


def test_reading_beside_an_operand_shows() -> None:
    """A result that depends on what lies past an operand is far off."""

    def past(call: Call) -> None:
        swiglu(call)
        gate_up, y = call.arrays()
        assert gate_up is not None
        assert y is not None
        y[0, 0] += np.lib.stride_tricks.as_strided(gate_up, (gate_up.size + 1,), (4,))[-1]

    assert "y[0, 0]: expected" in text_of(report_on(silu_mul(past)))


def test_changed_inputs_are_named() -> None:
    """An input is not scratch memory."""

    def scribbles(call: Call) -> None:
        swiglu(call)
        x = call.arrays()[0]
        assert x is not None
        x[0, 0] += 1

    assert "input gate_up was changed" in text_of(report_on(silu_mul(scribbles)))


def test_an_output_left_unwritten_is_found() -> None:
    """Outputs start as NaN, so that skipping some shows."""

    def lazy(call: Call) -> None:
        swiglu(call)
        y = call.arrays()[1]
        assert y is not None
        y[-1, -1] = np.frombuffer(b"\xff" * 4, np.float32)[0]

    assert "got nan" in text_of(report_on(silu_mul(lazy)))


def test_a_result_that_depends_on_the_batch_is_found() -> None:
    """One bit of difference between a row alone and in a batch is a fault."""

    def by_size(call: Call) -> None:
        softmax(call)
        x, y = call.arrays()
        assert x is not None
        assert y is not None
        if len(x) == 1:
            y[:] = np.nextafter(y, np.float32(1))

    row = Kernel(op="softmax", name="by_size", run=by_size, where=SOME_F32)
    report = check(library_of(row), count=12)
    assert "gives other bits than in the batch" in text_of(report)


def test_two_rows_of_a_library_must_agree_across_their_bands() -> None:
    """A row that serves small batches gives the bits that the one for large batches gives."""

    def other(call: Call) -> None:
        softmax(call)
        y = call.arrays()[1]
        assert y is not None
        y[:] = np.nextafter(y, np.float32(1))

    small = Kernel(op="softmax", name="small", run=other, where=(*SOME_F32, eq("M", 1)), priority=1)
    large = Kernel(op="softmax", name="large", run=softmax, where=(*SOME_F32, ge("M", 2)))
    text = text_of(check(library_of(small, large), count=12))
    assert "alone, which small serves, gives other bits than in the batch" in text


def test_a_result_that_depends_on_the_pieces_is_found() -> None:
    """How tiles are grouped, and which worker runs them, must not matter."""

    def by_worker(call: Call, first: int, last: int, worker: int) -> None:
        x, y = call.arrays()
        assert x is not None
        assert y is not None
        y[first:last] = x[first:last] * (1 + worker * np.float32(2**-23))

    def rows(call: Call) -> int:
        x = call.arrays()[0]
        assert x is not None
        return len(x)

    same = (isin("from", "f32"), isin("to", "f32"))
    row = Kernel(op="cast", name="rows", run=by_worker, tiles=rows, where=same)
    assert "depends on how pieces were handed out" in text_of(check(library_of(row), count=12))


def test_pieces_may_depend_on_the_state() -> None:
    """How many pieces there are is asked of a call with its state, as the core does it."""

    def by_state(call: Call, first: int, last: int, worker: int) -> None:
        x, y = call.arrays()
        assert x is not None
        assert y is not None
        for i in range(first, last):
            y[:, i::4] = x[:, i::4]

    fields: dict[str, Any] = {"init": lambda geometry: 4, "tiles": lambda call: call.state or 1}
    same = (isin("from", "f32"), isin("to", "f32"))
    row = Kernel(op="cast", name="by_state", run=by_state, where=same, **fields)
    report = check(library_of(row), count=12)
    assert report.passed, text_of(report)


def test_strides_are_used() -> None:
    """A kernel that takes rows for contiguous is found by rows that are apart."""
    row = Kernel(op="scale", name="dense", run=_dense_scale, where=SOME_F32)
    text = text_of(check(library_of(row), count=12))
    assert "depends on the distance between rows" in text


def test_a_kernel_may_refuse_strides() -> None:
    """STRIDE is an answer; rows that are apart are then not run."""

    def picky(call: Call) -> None:
        y = call.arrays()[1]
        assert y is not None
        if not y.flags.c_contiguous:
            raise KernelError("dense rows only", -4)
        swiglu(call)

    assert report_on(silu_mul(picky)).passed


def _dense_scale(call: Call) -> None:
    x, y = call.arrays()
    assert x is not None
    assert y is not None
    flat = np.lib.stride_tricks.as_strided(x, (x.size,), (4,)).reshape(x.shape)
    y[:] = flat * np.float32(call.params["factor"])


@pytest.mark.parametrize(
    ("row", "fields", "text"),
    [
        (silu_mul(swiglu), {"abi_version": 2}, "built for ABI 2, this is ABI 1"),
        (silu_mul(swiglu, name="Bad-Name"), {}, "expected lower-case letters"),
        (
            Kernel(op="silu_mul", name="a", run=swiglu, where=(eq("rows", 3),)),
            {},
            "rows is no param of the op; the params are M, n, dtype",
        ),
        (
            Kernel(op="silu_mul", name="a", run=swiglu, where=(isin("n", "f32"),)),
            {},
            "n is an int param; use 'in' for strings",
        ),
        (
            Kernel(op="silu_mul", name="a", run=swiglu, where=(eq("dtype", 3),)),
            {},
            "dtype is a string param",
        ),
        (
            Kernel(op="rmsnorm", name="a", run=swiglu, where=(le("eps", 1),)),
            {},
            "eps is a float, which no constraint matches",
        ),
        (
            Kernel(op="silu_mul", name="a", run=swiglu, where=(Constraint("M", "lt", 3),)),
            {},
            "expected one of eq, le, ge, div, in, got 'lt'",
        ),
        (
            Kernel(op="silu_mul", name="a", run=swiglu, where=(Constraint("M", "div", 0),)),
            {},
            "expected a divisor above 0",
        ),
        (
            Kernel(op="silu_mul", name="a", run=swiglu, where=(Constraint("dtype", "in"),)),
            {},
            "constraint on dtype: expected at least one word",
        ),
        (
            Kernel(op="nosuch", name="a", run=swiglu),
            {},
            "nosuch a: expected an op with a schema; add its line to schemas",
        ),
        (
            silu_mul(swiglu, replaces="silu+nosuch"),
            {},
            "replaces: expected ops with a schema joined by '+', got 'nosuch'",
        ),
        (
            silu_mul(swiglu),
            {"schemas": ("add(M~, dtype:s) x[M] -> y[M]",)},
            "expected the standard one",
        ),
        (silu_mul(swiglu), {"schemas": ("mine(M~)",)}, "expected 'op(params) inputs -> outputs'"),
        (
            silu_mul(swiglu),
            {"schemas": ("o(M~, dtype:s) x[M] -> y[M]",) * 2},
            "schema of o: declared twice",
        ),
    ],
)
def test_declarations_are_checked(row: Kernel, fields: dict[str, Any], text: str) -> None:
    """Each breach of the contract's form is a fault of its own, in words."""
    report = check(library_of(row, **fields))
    assert not report.passed
    assert text in "\n".join(report.declared)


def test_a_second_row_of_one_name_is_named() -> None:
    """Names are unique in a library for an op."""
    text = "\n".join(report_on(silu_mul(swiglu), silu_mul(swiglu)).declared)
    assert "silu_mul mine: expected one row of this name for the op, got a second" in text


def test_a_library_that_declines_does_not_pass() -> None:
    """What was not run is not called sound."""
    report = report_on(silu_mul(swiglu), declined="no such unit here")
    assert not report.passed
    assert "declined: no such unit here; nothing was run" in text_of(report)


def test_whatever_a_kernel_raises_is_reported() -> None:
    """An exception of any type is a fault of that case, not the end of the check."""

    def raises(call: Call) -> None:
        raise ValueError("not today")

    assert "ValueError: not today" in text_of(report_on(silu_mul(raises)))


def test_an_op_of_its_own_is_said_to_be_unchecked() -> None:
    """The kit has no formula for it and says so."""
    row = Kernel(op="mine", name="a", run=swiglu)
    text = text_of(report_on(row, schemas=("mine(M~, n, dtype:s) x[M,n] -> y[M,n]",)))
    assert "an op of its own: no formula is known, so it was not run" in text


def test_constraints_that_exclude_each_other_are_named() -> None:
    """A row that can never be chosen is a fault."""
    row = Kernel(op="silu_mul", name="never", run=swiglu, where=(le("n", 8), ge("n", 9)))
    assert "expected constraints that some int satisfies, got n<=8, n>=9" in text_of(report_on(row))


def test_the_kit_needs_no_torch() -> None:
    """An author without torch can run it."""
    code = (
        "import sys, radiance_abi.testing, radiance_abi.testing.formulas; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_calling_by_hand_needs_a_row() -> None:
    """An author's own test that misspells an op is told so."""
    call = caller(library_of(silu_mul(swiglu)))
    x = np.ones((2, 8), np.float32)
    out = call("silu_mul", {"n": 4, "dtype": "f32"}, gate_up=x)["y"]
    assert np.allclose(out, 1 / (1 + np.exp(-1.0)))
    with pytest.raises(AbiError, match="mylib: expected a row for the op, got none for silu"):
        call("silu", {"n": 4, "dtype": "f32"}, x=x)


def test_a_kernel_may_take_its_tensors_through_dlpack() -> None:
    """The from_dlpack of numpy reads inputs and writes outputs, dense or strided."""

    def swiglu(call: Call) -> None:
        gate_up, y = (np.from_dlpack(t) for t in call.tensors if t is not None)
        gate, up = np.split(gate_up, 2, axis=-1)
        y[:] = gate / (1 + np.exp(-gate)) * up

    report = report_on(silu_mul(swiglu))
    assert report.passed, text_of(report)
