"""What rad-tune shows while it works."""

import sys

import pytest

from radiance_core.tune.main import _progress


@pytest.mark.parametrize("on_terminal", [True, False])
def test_progress_is_for_terminals(
    on_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal one line is drawn over and over; into a file nothing of it goes."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: on_terminal, raising=False)
    _progress("1 of 5: ahead of gemm")
    _progress("")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == ("\r\x1b[K1 of 5: ahead of gemm\r\x1b[K" if on_terminal else "")
