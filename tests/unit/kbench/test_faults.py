"""rad-kbench finds what is wrong with a row and says where; of a right row it finds nothing."""

import re
import sys
from pathlib import Path

import msgspec
import pytest

from radiance_abi.testing import ENCODINGS
from radiance_abi.vocabulary import STANDARD
from radiance_core.kbench.fixture import Fixture, bundled, read
from radiance_core.kbench.replay import Drawn, Verdict, judge

sys.path.insert(0, str(Path(__file__).parent))

import strangers

FIXTURES = [read(path) for path in bundled()]


def verdict(*rows, fixtures=FIXTURES) -> Verdict:
    """Judge the last of some rows."""
    library = strangers.library(*rows)
    op = rows[-1].op
    return judge(library, rows[-1], Drawn(fixtures, STANDARD), STANDARD[op], seed=1)


def test_a_right_row_is_right():
    """No fault, and one recorded case a family."""
    found = verdict(strangers.row("add", strangers.add))
    assert (found.faults, found.state, found.num_replayed) == ([], "ok", len(FIXTURES))


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (strangers.one_wrong, r"y\[\d+, \d+\](\.\.\[\d+, \d+\])?: expected (norm )?\S+ within \S+, "
                              r"got \S+"),
        (strangers.last_wrong, r"y\[0, \d+\]: expected \S+ within \S+, got nan"),
        (strangers.past_the_end, "memory beside operand y was written"),
        (strangers.changes_input, "input a was changed"),
        (strangers.ignores_strides, "y: depends on the distance between rows"),
        (strangers.raises, "ZeroDivisionError: in the kernel"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_each_fault_is_found_and_named(run, text):
    """The fault names op, row, family, params, operand, and place and values where there are."""
    found = verdict(strangers.row("add", run))
    assert found.state == "FAIL"
    assert len(found.faults) == len(FIXTURES)
    for fault, fixture in zip(found.faults, FIXTURES, strict=True):
        start = f"add {run.__name__}: {fixture.family}: add M=5 n={fixture.sizes.n_embd} dtype=f32"
        assert fault.startswith(start)
        assert re.search(text, fault), fault


def test_a_row_that_depends_on_its_neighbours_is_found():
    """A difference below every tolerance is a fault: bits are the same alone and in a batch."""
    assert not verdict(strangers.row("silu", strangers.silu)).faults
    found = verdict(strangers.row("silu", strangers.depends_on_rows))
    assert re.search(
        r"y: rows \d+\.\.\d+ of 5 alone gives other bits than in the batch", found.faults[0]
    )


def _only(family: str, **params: object) -> Fixture:
    """Return a fixture of the recorded cases of i8 weights with some params."""
    (fixture,) = (f for f in FIXTURES if f.family == family)
    kept = [
        c
        for c in fixture.cases
        if c.weights.get("b") == "i8*f16[1x32]" and params.items() <= c.params.items()
    ]
    return msgspec.structs.replace(fixture, cases=kept)


def test_two_planes_are_judged_alone_and_in_a_batch():
    """A row that is right with one plane, and bends two in a batch, is found among the recorded."""
    hooks = {"layout": strangers.as_f32, "relayout": strangers.decoded}
    one, two = (_only("smollm2", planes=n) for n in (1, 2))
    right = verdict(strangers.row("gemm_nt_q", strangers.gemm_nt_q, **hooks), fixtures=[one, two])
    assert (right.faults, right.num_replayed) == ([], 4)
    bent = strangers.row("gemm_nt_q", strangers.two_planes_by_rows, **hooks)
    assert not [f for f in verdict(bent, fixtures=[one]).faults if "smollm2" in f]
    found = verdict(bent, fixtures=[two]).faults[0]
    assert re.search(r"smollm2: .* M=100 .*y: rows \d+\.\.\d+ of 100 alone gives other bits", found)


def test_encodings_that_no_fixture_holds_are_drawn():
    """A row that misreads tables alone is found, though none is recorded."""
    hooks = {"layout": strangers.as_f32, "relayout": strangers.decoded}
    known = [_only("smollm2", M=1)]
    right = verdict(strangers.row("gemm_nt", strangers.gemm_nt, **hooks), fixtures=known)
    assert (right.faults, right.num_replayed) == ([], 1)
    assert right.num_drawn == len(ENCODINGS) - 1
    hooks["relayout"] = strangers.decoded_but_tables
    wrong = verdict(strangers.row("gemm_nt", strangers.gemm_nt, **hooks), fixtures=known)
    assert len(wrong.faults) == sum("table" in str(e) for e in ENCODINGS)
    assert all("table=i8" in fault for fault in wrong.faults)


def test_a_claim_to_be_a_fusion_is_held_to_every_byte():
    """The chain's bytes pass; a value that is as right, but rounded otherwise, does not."""
    parts = [strangers.row("silu", strangers.silu), strangers.row("mul", strangers.mul)]
    true = verdict(*parts, strangers.row("silu_mul", strangers.silu_mul, replaces="silu+mul"))
    assert (true.faults, true.chains) == ([], len(FIXTURES))
    unlike = strangers.row("silu_mul", strangers.silu_mul_unlike, replaces="silu+mul")
    false = verdict(*parts, unlike)
    assert re.search(
        r"replaces silu\+mul: y\[\d+, \d+\]: the chain gives \S+, the fusion \S+ \(\d+ of \d+",
        false.faults[0],
    )
    assert not verdict(*parts, strangers.row("silu_mul", strangers.silu_mul_unlike)).faults


def test_a_product_with_a_residual_is_held_to_its_chain():
    """The second operand of the sum is the residual, not the weight of the same name."""
    parts = [strangers.row("gemm_nt", strangers.gemm_nt), strangers.row("add", strangers.add)]
    claim = {"replaces": "gemm_nt+add"}
    true = verdict(*parts, strangers.row("gemm_nt_add", strangers.gemm_nt_add, **claim))
    assert true.faults == []
    assert true.chains == true.num_replayed > 0
    unlike = strangers.row("gemm_nt_add", strangers.gemm_nt_add_unlike, **claim)
    false = verdict(*parts, unlike)
    assert re.search(r"replaces gemm_nt\+add: y\[\d+, \d+\]: the chain gives", false.faults[0])
    assert not verdict(*parts, strangers.row("gemm_nt_add", strangers.gemm_nt_add_unlike)).faults


def test_a_claim_that_cannot_be_checked_is_a_fault():
    """Without a row for a part of the chain nobody knows."""
    alone = strangers.row("silu_mul", strangers.silu_mul, replaces="silu+mul")
    assert (
        "replaces silu+mul: cannot be checked: the library has no row for silu"
        in verdict(alone).faults[0]
    )


def test_other_operands_than_recorded_are_no_answer():
    """A fixture that cannot be drawn again is a fault that says what to do, not a pass."""
    spoilt = msgspec.structs.replace(
        FIXTURES[0],
        cases=[msgspec.structs.replace(c, operands="0") for c in FIXTURES[0].cases],
    )
    found = verdict(strangers.row("add", strangers.add), fixtures=[spoilt])
    assert "expected the operands that were recorded of add" in found.faults[0]
    assert "record it again with --record" in found.faults[0]


def test_a_row_without_a_recorded_case_is_run_on_drawn_ones():
    """Each row is run on something, and the report says on what."""
    found = verdict(strangers.row("add", strangers.add), fixtures=[])
    assert (found.state, found.num_replayed) == ("drawn", 0)
    assert found.num_drawn >= 3
    wrong = verdict(strangers.row("add", strangers.last_wrong), fixtures=[])
    assert wrong.state == "FAIL"
