"""benchmarks/real_models.py: what it needs is said before minutes are spent."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import real_models


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without accelerate nothing is read, and the text says what to install."""
    monkeypatch.setattr(real_models, "find_spec", lambda _: None)
    with pytest.raises(SystemExit, match=r"expected accelerate, .*; pip install accelerate"):
        next(real_models.reference(Path("nowhere.gguf"), 1, 1))
