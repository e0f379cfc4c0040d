"""The conformance kit on layout hooks: what they store and give back."""

from typing import Any

import numpy as np
import pytest
from kit_rows import gemm_row, given_back, library_of, relaid, text_of

from radiance_abi.testing import (
    ConformanceError,
    cases,
    check,
    examine,
    run,
)
from radiance_abi.vocabulary import STANDARD


def test_sound_layouts_pass() -> None:
    """A copy as layout is lossless."""
    report = check(library_of(gemm_row()), count=2)
    assert report.passed, text_of(report)


def test_planes_that_come_back_changed_are_found() -> None:
    """Unrelayout is checked bit for bit."""

    def loses(*arguments: Any) -> dict[str, np.ndarray]:
        return {"codes": given_back(*arguments)["codes"] + np.float32(1)}

    text = text_of(check(library_of(gemm_row(unrelayout=loses)), count=2))
    assert "plane codes of rows" in text
    assert "came back changed" in text


def test_layouts_need_a_way_back() -> None:
    """A layout without unrelayout is a fault; one without relayout is, too."""
    text = text_of(check(library_of(gemm_row(unrelayout=None)), count=2))
    assert "without an unrelayout hook; planes must come back" in text
    text = text_of(check(library_of(gemm_row(relayout=None)), count=2))
    assert "a layout hook without relayout" in text


def test_relayout_by_parts_must_equal_relayout_at_once() -> None:
    """What is stored does not depend on how rows were handed over."""

    def counts(*arguments: Any) -> None:
        relaid(*arguments)
        stored, first = arguments[3], arguments[4]
        stored[first] += first

    text = text_of(check(library_of(gemm_row(relayout=counts)), count=2))
    assert "relayout in row ranges gives other bytes than all rows at once" in text


def test_run_refuses_a_layout_that_cannot_be_made() -> None:
    """Using the pieces by hand gives the same words as the report."""
    kernel = gemm_row()
    case = next(iter(cases(kernel, STANDARD["gemm_nt"], np.random.default_rng())))
    with pytest.raises(ConformanceError, match="layout copy without a relayout hook"):
        run(gemm_row(relayout=None), case)


def test_a_row_that_reads_nothing_known_is_noted() -> None:
    """No case is made up for weights that a row refuses."""
    kernel = gemm_row(layout=lambda *_: None)
    outcome = examine(kernel, [kernel], STANDARD["gemm_nt"], np.random.default_rng())
    assert outcome.num_cases == 0
    assert outcome.notes == ("reads none of the kit's encodings, so it was not run",)
