"""GBNF: what is read, what is refused with line and column, and that its texts stay the same."""

import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processor_time import least
from vocabulary import takes, walk

from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.gbnf import parse
from radiance_core.constrain.gbnf_lark import lark_of
from radiance_core.constrain.gbnf_nodes import CharClass, Choice, Literal, Reference, Repeat, Series

JSON = r"""
# The grammar that llama.cpp shows first, in our own words.
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (
              string ":" ws value
              ("," ws string ":" ws value)*
           )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4})   # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= ([ \t\n] ws)?
"""


def matches(node, rules, text, start, depth=0):
    """Return the places where a match that begins at ``start`` may end: the oracle, by search."""
    if depth > 40:
        return set()
    match node:
        case Literal(literal):
            return {start + len(literal)} if text.startswith(literal, start) else set()
        case CharClass(ranges, negated):
            inside = start < len(text) and any(a <= ord(text[start]) <= b for a, b in ranges)
            return {start + 1} if start < len(text) and inside != negated else set()
        case Reference(name):
            return matches(rules[name], rules, text, start, depth + 1)
        case Series(parts):
            ends = {start}
            for part in parts:
                ends = {e for s in ends for e in matches(part, rules, text, s, depth + 1)}
            return ends
        case Choice(options):
            return {e for o in options for e in matches(o, rules, text, start, depth + 1)}
        case Repeat(part, low, high):
            ends, now = (set(), {start}) if low else ({start}, {start})
            for count in range(1, (len(text) + low + 1 if high is None else high) + 1):
                now = {e for s in now for e in matches(part, rules, text, s, depth + 1)}
                if count >= low:
                    ends |= now
            return ends
    return {start + 1} if start < len(text) else set()


PARTS = st.recursive(
    st.sampled_from(['"a"', '"b"', '"ab"', "[ab]", "[^a]", '""', ".", "x", "y", r'"\x61"']),
    lambda inner: st.one_of(
        st.builds(lambda a, b: f"{a} {b}", inner, inner),
        st.builds(lambda a, b: f"({a} | {b})", inner, inner),
        st.builds(lambda a, b: f"({a} | # either\n {b})", inner, inner),
        st.builds(lambda a, op: f"({a}){op}", inner,
                  st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "{,2}"])),
    ),
    max_leaves=5,
)  # fmt: skip
TEXTS = ["".join(t) for n in range(5) for t in itertools.product("ab", repeat=n)]


@given(
    root=PARTS, x=PARTS.filter(lambda p: "x" not in p.replace("\\x", "") and "y" not in p),
    y=PARTS.filter(lambda p: "x" not in p.replace("\\x", "") and "y" not in p),
    more=st.sampled_from(["", "\nx_tail ::= \"b\" x_tail | x\n"]),
)  # fmt: skip
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_regular_grammar_keeps_its_texts(compiler, root, x, y, more):
    """Of all short texts exactly those are taken that a search by definition takes."""
    grammar = f"# rules\nroot ::= {root}\nx ::= {x}\ny ::= {y}\n{more}"
    rules = parse(grammar)
    expected = {t for t in TEXTS if len(t) in matches(rules["root"], rules, t, 0)}
    try:
        source = compiler.compile_now("gbnf", grammar)
    except ConstraintError as err:
        assert "no text can satisfy it" in str(err)  # noqa: PT017 (the other way is right too)
        assert not expected
        return
    assert {t for t in TEXTS if takes(source, t)} == expected


RECURSIVE = [
    ('root ::= "a" root "b" | "ab"', "ab", 6),
    ('root ::= "a" root | "b" root | "b"', "ab", 4),
    ("root ::= pair*\npair ::= \"(\" root \")\"", "()", 6),
    ('root ::= item\nitem ::= [ab] | "(" item ("," item)? ")"', "a(,)", 5),
    ('root ::= sum\nsum ::= term ("+" term)*\nterm ::= [1]+ | "(" sum ")"', "1+()", 5),
    ('root ::= root "a" | "b"', "ab", 5),
    ("root ::= ( [ab] root )?", "ab", 4),
    ('root ::= "a" (root "b" | "b")', "ab", 6),
]  # fmt: skip


@pytest.mark.parametrize(("grammar", "letters", "longest"), RECURSIVE)
def test_a_recursive_grammar_keeps_its_texts(compiler, grammar, letters, longest):
    """Nesting, lists, sums and rules that call themselves at an end take exactly their texts."""
    rules = parse(grammar)
    source = compiler.compile_now("gbnf", grammar)
    texts = ["".join(t) for n in range(longest + 1) for t in itertools.product(letters, repeat=n)]
    expected = {t for t in texts if len(t) in matches(rules["root"], rules, t, 0)}
    assert expected
    assert {t for t in texts if takes(source, t)} == expected


def test_the_json_grammar_writes_json(compiler):
    """The grammar that everybody copies works, and what is drawn by it is JSON."""
    source = compiler.compile_now("gbnf", JSON)
    assert takes(source, '{"a": [1, -2.5e3, {"b\\n": null}], "é": "🙂"}')
    for bad in ("{", "[]", '{"a":01}', '{"a" 1}', '{"a":1,}'):
        assert not takes(source, bad)
    done = 0
    for seed in range(40):
        text, whole = walk(source, seed, limit=150, longing=0.6)
        if whole:
            json.loads(text.decode())
            done += 1
    assert done > 3


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ("", "gbnf: line 1 column 1: expected a rule named 'root', where a text begins, got the"),
        ('a ::= "x"', "gbnf: line 1 column 10: expected a rule named 'root'"),
        ('root = "x"', "gbnf: line 1 column 6: expected '::=' after the rule's name 'root', got"),
        ("::= x", "gbnf: line 1 column 1: expected the name of a rule, got '::= x'."),
        ('root ::= "a', "gbnf: line 1 column 12: expected '\"' on the line that its beginning is"),
        ('root ::= "a\n"', "gbnf: line 1 column 12: expected '\"' on the line"),
        ("root ::= [a", "gbnf: line 1 column 12: expected ']' on the line"),
        ("root ::= []", "gbnf: line 1 column 12: expected at least one character in a class, got"),
        ("root ::= [b-a]", "gbnf: line 1 column 14: expected a range that ends at or after its b"),
        (r'root ::= "\q"', "gbnf: line 1 column 12: expected one of t r n x u U"),
        (r'root ::= "\x4"', "gbnf: line 1 column 12: expected 2 hexadecimal digits after '\\x'"),
        (r'root ::= "\ud800"', "gbnf: line 1 column 12: expected a code point that a text can h"),
        (r'root ::= "\U00110000"', "gbnf: line 1 column 12: expected a code point that a text"),
        ('root ::= ("a"', "gbnf: line 1 column 14: expected ')', an alternative or another part"),
        ('root ::= "a")', "gbnf: line 1 column 13: expected the end of the rule's line, got ')'."),
        ('root ::= "a"{2,1}', "gbnf: line 1 column 13: expected counts in order and of at most"),
        ('root ::= "a"{20000}', "gbnf: line 1 column 13: expected counts in order and of at mos"),
        ('root ::= "a"{}', "gbnf: line 1 column 13: expected {n}, {n,}, {,m} or {n,m}, got '{}'"),
        ('root ::= "a"*****', "gbnf: line 1 column 17: expected the end of the rule's line"),
        ("root ::= b", "gbnf: line 1 column 10: expected the name of a rule in this grammar, got"),
        ('root ::= "a"\n\n  root ::= "b"', "gbnf: line 3 column 3: expected each rule once"),
        ("root ::= <[12]>", "gbnf: line 1 column 10: expected text; single tokens are not served"),
        ("root ::= " + '"a" ' * 60_000, "gbnf: expected at most 50000 parts, got more; shorten"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_by_line_and_column(grammar, said):
    """Each fault names its place and what was expected there."""
    with pytest.raises(ConstraintError) as caught:
        lark_of(grammar)
    assert str(caught.value).startswith(said)


def test_a_hundred_thousand_parentheses_are_refused_within_50_ms():
    """Depth is an error with its place, long before the end of the text is seen."""
    grammar = "root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000

    def refuse():
        with pytest.raises(ConstraintError, match="64 levels, got more at line 1 column 74"):
            lark_of(grammar)

    assert least(refuse, 0.05) < 0.05


def test_rules_that_double_are_refused():
    """A chain in which each rule uses the next one twice is not written out."""
    rules = "\n".join(f"r{n} ::= r{n + 1} r{n + 1}" for n in range(60))
    with pytest.raises(ConstraintError, match="at most 262144 characters with every rule written"):
        lark_of(f"root ::= r0\n{rules}\nr60 ::= [a-z]")


@pytest.mark.parametrize("size", [50, 3000])
def test_long_chains_of_rules_need_no_stack(size):
    """A chain of rules is written out without recursion."""
    rules = "\n".join(f'r{n} ::= "a" r{n + 1}' for n in range(size))
    try:
        made = lark_of(f'root ::= r0\n{rules}\nr{size} ::= "b"')
    except ConstraintError as err:
        assert "written out" in str(err)  # noqa: PT017 (either is right; a crash is not)
        return
    assert made.count("a") == size + 1


def test_characters_and_escapes(compiler):
    """Every escape, ranges with signs in them, and characters outside the first plane."""
    grammar = r'root ::= "\x41\u00e9\U0001F642\t\r\n\"\\\[\]" [+\-^\]] [a-] [^\n] .'
    assert takes(compiler.compile_now("gbnf", grammar), 'Aé🙂\t\r\n"\\[]^-/\n')
