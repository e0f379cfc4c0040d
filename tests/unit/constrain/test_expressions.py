r"""Expressions mean what they mean in Python, wherever both take them."""

import json
import re

import pytest
from vocabulary import takes

from radiance_core.constrain.errors import ConstraintError

TEXTS = [
    "", "a", "b", "ab", "a b", "aab", "aa", "aaa", "A", "AB", "aB", "\\", "yes\\", "yes", "a\\",
    "/", "a/", "//", "a/b", "\n", "a\n", "a\nb", "\\n", "\r", "a\rb", "a#b", "a\tb", "\t", "é",
    "É", "\x00", "-", "a-b", "_", "1", "٣", "k", "K", "\u212a", " ", "]", "}", "^", "$", "^ab",
    "\u2028", "\xa0",
]  # fmt: skip
SAME = [
    "a|", "|a", "()", "a*?", "a+?", "a??", "a{0}", "}", "]", "[]a]", "[^]a]", "[a-]", "[-a]",
    "^ab$", "(^a)|b", "a(b$)", "^", "$", r"\Aab", "(?i)ab", "(?i)k", "(?i:a)b", "(?x)a b", "(?s).",
    "a.b", ".", "(?s)a.b", "(?P<n>a)", r"a\/", r"\/", "a/", "/", "//", r"\x61", r"\u0061", r"\n",
    "\n", "a\nb", "a\\\nb", "\r", "a\rb", "a\tb", r"\-", r"\ ", r"\#", "#", "a#b", r"\_", r"\d",
    r"\D", r"\w", r"\s", "[^a]", "[/]", "[^/]", r"[\]]", r"[\\]", r"yes\\", r"\\", r"a\\|b",
    "(?i)é", "\x00", r"\(?x|a\n",
]  # fmt: skip


@pytest.mark.parametrize("regex", SAME)
def test_what_is_taken_is_what_python_takes(compiler, regex):
    """No part of an expression is left out on its way: slashes, line ends, escapes, marks."""
    source, expected = compiler.compile_now("regex", regex), re.compile(regex)
    for text in TEXTS:
        assert takes(source, text) == bool(expected.fullmatch(text)), text


@pytest.mark.parametrize("regex", ["yes\\", "a\\\\\\", "a|b\\"])
def test_a_pattern_of_a_schema_does_not_end_in_half_an_escape(compiler, regex):
    """It is refused by its path, as an expression of its own is."""
    schema = {"properties": {"q": {"type": "string", "pattern": regex}}}
    with pytest.raises(ConstraintError, match="a character after the last backslash") as caught:
        compiler.compile_now("json_schema", json.dumps(schema))
    assert caught.value.path == "properties.q.pattern"
