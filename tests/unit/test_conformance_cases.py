"""What the conformance kit draws: params, weights and operands that a row may be given."""

from typing import Any

import numpy as np
import pytest
from kit_rows import gemm, gemm_row, swiglu

from radiance_abi import (
    AbiError,
    Encoding,
    Kernel,
    Layout,
    eq,
    ge,
    isin,
)
from radiance_abi.encoding import decode
from radiance_abi.kernels import Constraint
from radiance_abi.ops import parse_schema
from radiance_abi.testing import (
    ENCODINGS,
    NotReadError,
    Weight,
    cases,
    random_weight,
    run,
)
from radiance_abi.testing.case import numpy_dtype
from radiance_abi.testing.geometry import draw
from radiance_abi.testing.running import planes_of_rows, row_ranges
from radiance_abi.vocabulary import STANDARD


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_random_weights_are_valid_and_of_their_size(encoding: Encoding) -> None:
    """Planes pass check_planes, decode to finite numbers that are neither tiny nor huge, vary."""
    rng = np.random.default_rng()
    weight = random_weight(encoding, (144, 256), rng, 0.5)
    values = weight.values
    assert np.isfinite(values).all()
    assert 0.01 < np.abs(values).mean() < 5
    assert values.std() > 0.01
    for low, high in row_ranges(weight, Layout("x", "f32", (144, 256))):
        part = decode(encoding, planes_of_rows(weight, low, high), (high - low, 256), np.float64)
        assert np.array_equal(part, values[low:high])


def test_drawn_params_satisfy_odd_constraints() -> None:
    """Constraints that no usual size meets are still met, and groups still divide."""
    where = (Constraint("n", "div", 48), ge("n", 2000), eq("group", 24), isin("dtype", "f16"))
    kernel = Kernel(op="quant_act_i8", name="odd", run=swiglu, where=where)
    for turn in range(20):
        drawn = draw(kernel, STANDARD["quant_act_i8"], np.random.default_rng(), turn)
        assert all(c.holds(drawn[c.key]) for c in where)
        assert int(drawn["n"]) % int(drawn["group"]) == 0


def test_every_encoding_that_a_row_reads_gets_a_case() -> None:
    """Nested blocks of 256 columns are met whatever the row says of its groups."""
    where = (eq("group", 32), Constraint("K", "div", 32), isin("dtype", "f32"))

    hooks: dict[str, Any] = {"layout": lambda *arguments: Layout("any", "f32", arguments[1])}
    kernel = Kernel(op="gemm_nt_q", name="grouped", run=gemm, where=where, **hooks)
    made = cases(kernel, STANDARD["gemm_nt_q"], np.random.default_rng())
    weights = [case.operands["b"] for case in made]
    assert {w.encoding for w in weights if isinstance(w, Weight)} == set(ENCODINGS)


def test_attention_gets_a_long_past() -> None:
    """However few the cases of a row are, one has many hundred keys before a sequence's rows."""
    row = Kernel(op="attn_paged", name="mine", run=swiglu, where=(isin("dtype", "f32"),))
    (case,) = cases(row, STANDARD["attn_paged"], np.random.default_rng(), 1)
    assert case.array("seqused").max() > 1100


def test_heads_that_cannot_be_shared_are_named() -> None:
    """Constraints under which no query heads divide among key heads make a row unusable."""
    where = (eq("n_head", 5), eq("n_head_kv", 3))
    kernel = Kernel(op="rope", name="odd", run=swiglu, where=where)
    with pytest.raises(AbiError, match="rope odd: no n_head is a multiple of n_head_kv here"):
        draw(kernel, STANDARD["rope"], np.random.default_rng())


def test_a_word_that_nobody_knows_must_be_constrained() -> None:
    """The kit cannot guess the words of a param that only one library has."""
    schema = parse_schema("mine(M~, flavour:s) x[M]:f32 -> y[M]:f32")
    kernel = Kernel(op="mine", name="a", run=swiglu)
    with pytest.raises(AbiError, match="no word is known for param flavour; constrain it"):
        draw(kernel, schema, np.random.default_rng())


def test_cases_say_what_an_operand_is() -> None:
    """Asking for a weight as an array, or for items of a sub-byte type, is an error in words."""
    kernel = gemm_row()
    case = next(iter(cases(kernel, STANDARD["gemm_nt"], np.random.default_rng())))
    with pytest.raises(AbiError, match="gemm_nt: expected an array for operand b, got Weight"):
        case.array("b")
    with pytest.raises(AbiError, match="operand: expected a dtype of whole bytes, got u4"):
        numpy_dtype("u4")
    with pytest.raises(NotReadError, match="mine does not read f32"):
        run(gemm_row(layout=lambda *_: None), case)
