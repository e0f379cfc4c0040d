"""benchmarks/instructions.py: what it reads out of what perf and callgrind print."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import instructions

ANNOTATED = """
--------------------------------------------------------------------------------
Ir
--------------------------------------------------------------------------------
1,000 (100.0%)  PROGRAM TOTALS

--------------------------------------------------------------------------------
Ir             file:function
--------------------------------------------------------------------------------
  150 (15.00%)  ???:0x0000000000001234 [/usr/lib/libc.so.6]
  800 (80.00%)  ???:void a::(anonymous namespace)::run<(a::B)3>(int, char (*)(int)) [/x/libk.so]
   50 ( 5.00%)  t.c:main
"""


def test_functions_come_by_their_own_instructions() -> None:
    """The most first, without arguments and folders; the total of all is none of them."""
    assert instructions.functions_of(ANNOTATED) == [
        (800, "void a::run<(a::B)3>  [libk.so]"),
        (150, "0x0000000000001234  [libc.so.6]"),
        (50, "main"),
    ]


def test_the_total_is_that_of_the_dump() -> None:
    """The last line of totals counts, and lines of functions do not."""
    dump = "summary: 12\nfn=(1)\n3 44\ntotals: 5678\n"
    assert instructions.total_of(dump) == 5678


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ("123456,,instructions:u,1000,100.00,,\n", 123456),
        ("a line of the program\n77,,instructions:u,1,100.00,,\n", 77),
        ("<not supported>,,instructions:u,0,100.00,,\n", None),
        ("<not counted>,,instructions:u,0,0.00,,\n", None),
        ("Error: no permission\n", None),
        ("", None),
    ],
)
def test_perf_counts_or_does_not(told: str, count: int | None) -> None:
    """A number is a count; all else says that perf cannot count here."""
    assert instructions.count_of(told) == count


def test_what_perf_counts_is_the_difference_of_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting, loading and what comes before a part cancel out."""
    each = {"prompt": 1000, "token": 70}

    def counted(command: list[str]) -> int:
        part, repeats = command[-3], int(command[-1])
        return 999_999 + each[part] * repeats

    monkeypatch.setattr(instructions, "counted_by_perf", counted)
    assert list(instructions.by_perf()) == [("prompt", 1000, []), ("token", 70, [])]
