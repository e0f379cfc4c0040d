"""docs/reference/ops.md and ``python -m radiance_abi``."""

from pathlib import Path

import pytest

from radiance_abi.__main__ import main
from radiance_abi.ops_document import document
from radiance_abi.vocabulary import STANDARD
from radiance_abi.vocabulary_notes import GROUPS

ROOT = Path(__file__).resolve().parents[2]


def test_every_standard_op_has_one_meaning() -> None:
    """Notes and schemas name the same ops, each once."""
    noted = [op for meanings in GROUPS.values() for op in meanings]
    assert sorted(noted) == sorted(STANDARD)


def test_the_page_is_what_the_generator_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/reference/ops.md cannot drift from the schemas."""
    assert main(["ops"]) == 0
    printed = capsys.readouterr().out
    assert printed == document()
    assert printed == (ROOT / "docs/reference/ops.md").read_text(encoding="utf-8")


def test_the_page_spells_every_schema_whole() -> None:
    """Each op's line holds all params and operands of its schema."""
    page = document()
    for schema in STANDARD.values():
        head, _, operands = str(schema).partition(") ")
        (line,) = [row for row in page.splitlines() if row.startswith(f"| `{schema.op}` |")]
        assert head.partition("(")[2] in line
        assert operands.strip() in line


def test_a_name_that_is_not_installed_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 1 and the text offers what was probably meant."""
    assert main(["check", "libre"]) == 1
    error = capsys.readouterr().err
    assert "expected an installed entry point, got 'libre'" in error
    assert "did you mean 'libref'?" in error


def test_nothing_asked_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a question the program says what it can be asked."""
    with pytest.raises(SystemExit):
        main([])
    assert "expected --include, --cflags or a command" in capsys.readouterr().err
