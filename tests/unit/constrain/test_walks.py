"""Whatever is drawn under a mask, the whole text satisfies what was asked."""

import json
import re

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from vocabulary import takes, walk

from radiance_core.constrain.errors import ConstraintError

NAMES = st.sampled_from(["a", "b", "name", "é", "x y", 'q"', "true"])
WORDS = st.text(st.sampled_from('ab01é🙂 \n"\\{}[],:'), max_size=6)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-200, 200), WORDS, st.sampled_from([0.5, -1.25, 1e3])
)
COUNTS = st.integers(0, 4)
LEAVES = st.one_of(
    st.builds(lambda a, n: {"type": "string", "minLength": a, "maxLength": a + n}, COUNTS, COUNTS),
    st.builds(lambda a, n: {"type": "integer", "minimum": a, "maximum": a + n},
              st.integers(-1000, 1000), st.integers(0, 3000)),
    st.builds(lambda a, n: {"type": "number", "exclusiveMinimum": a, "maximum": a + n},
              st.integers(-50, 50), st.integers(1, 90)),
    st.builds(lambda n: {"type": "integer", "multipleOf": n}, st.integers(1, 30)),
    st.builds(lambda values: {"enum": values}, st.lists(SCALARS, min_size=1, max_size=4)),
    st.builds(lambda value: {"const": value}, st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    )),
    st.sampled_from([
        {"type": "boolean"}, {"type": ["null", "integer"]}, {"type": "number"}, {},
        {"type": "string", "pattern": "^[a-z]{2,4}$"}, {"type": "string", "pattern": "b1?"},
        {"type": "string", "pattern": "^.{3}$"}, {"type": "string", "format": "uuid"},
    ]),
)  # fmt: skip


def objects(inner):
    def build(properties, required, free, low):
        names = [name for name in properties if name in required]
        made = {"type": "object", "properties": properties, "required": names}
        if free is not None:
            made["additionalProperties"] = free
        if low and len(names) == len(properties):
            made["minProperties"] = min(low, len(names) + 1)
        return made

    free = st.none() | st.booleans() | inner
    return st.builds(
        build, st.dictionaries(NAMES, inner, max_size=3), st.sets(NAMES), free, st.integers(0, 3)
    )


def arrays(inner):
    return st.builds(
        lambda first, items, low, more: {
            "type": "array",
            **({"prefixItems": first} if first else {}),
            "items": items,
            "minItems": low,
            "maxItems": low + more,
        },
        st.lists(inner, max_size=2),
        inner | st.just(True),
        st.integers(0, 2),
        st.integers(0, 2),
    )


def mixtures(inner):
    return st.builds(lambda several: {"anyOf": several}, st.lists(inner, min_size=1, max_size=3))


SCHEMAS = st.recursive(LEAVES, lambda i: objects(i) | arrays(i) | mixtures(i), max_leaves=6)
SLOW = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@given(schema=SCHEMAS, seed=st.integers(0, 2**32))
@settings(max_examples=200, **SLOW)
def test_every_whole_text_satisfies_its_schema(compiler, schema, seed):
    """Random draws under the masks of a random schema give JSON that jsonschema takes."""
    try:
        source = compiler.compile_now("json_schema", json.dumps(schema))
    except ConstraintError as err:
        assume("no text can satisfy" not in str(err) and "nsatisfiable" not in str(err))
        raise
    text, whole = walk(source, seed)
    if whole:
        value = json.loads(text.decode())
        jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(
            value
        )


@given(schema=SCHEMAS, seed=st.integers(0, 2**32))
@settings(max_examples=40, **SLOW)
def test_unfinished_texts_are_beginnings(compiler, schema, seed):
    """A text that is cut may be gone on with: there is a token until it is whole."""
    try:
        source = compiler.compile_now("json_schema", json.dumps(schema))
    except ConstraintError:
        assume(False)
    walk(source, seed, limit=60, longing=0.0)


ATOMS = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "é", "日", "(?:ab)", r"\.", "[0-9é]"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds(lambda x, y: x + y, inner, inner),
        st.builds(lambda x, y: f"(?:{x}|{y})", inner, inner),
        st.builds(lambda x, op: f"(?:{x}){op}", inner,
                  st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}"])),
    ),
    max_leaves=6,
)  # fmt: skip


@given(regex=EXPRESSIONS, seed=st.integers(0, 2**32), text=st.text("ab0é日.\n", max_size=5))
@settings(max_examples=200, **SLOW)
def test_an_expression_takes_what_python_takes(compiler, regex, seed, text):
    """Walks give full matches of Python's re, and any text is taken exactly if re takes it."""
    source = compiler.compile_now("regex", regex)
    assert takes(source, text) == bool(re.fullmatch(regex, text))
    written, whole = walk(source, seed, limit=60)
    if whole:
        assert re.fullmatch(regex, written.decode())


@given(
    choices=st.lists(
        st.text(min_size=1, max_size=8).filter(str.isprintable), min_size=1, max_size=8
    ),
    seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=60, **SLOW)
def test_a_choice_is_one_of_them(compiler, choices, seed):
    """The text is one of the choices, letter by letter, whatever they hold."""
    source = compiler.compile_now("choice", json.dumps(choices))
    written, whole = walk(source, seed, longing=0.5)
    assert whole
    assert written.decode() in choices
    assert all(takes(source, choice) for choice in choices)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("regex", "", "regex: expected an expression, got an empty text."),
        ("regex", "yes\\", "regex: expected a character after the last backslash, got the end; w"),
        ("regex", "\\", "regex: expected a character after the last backslash, got the end; wri"),
        ("regex", "a\\\\\\", "regex: expected a character after the last backslash, got the end"),
        ("regex", "(?ix)a #b\nc", "regex: expected one line under the flag x, got more; write it "),
        ("regex", "(a", "regex: expected one that can be enforced, got: unclosed group."),
        ("regex", "(?=a)b", "got: look-around, including look-ahead and look-behind, is not supp"),
        ("regex", r"(a)\1", "got: backreferences are not supported."),
        ("regex", r"\bfoo\b", "got: lookarounds not supported yet; WordUnicode in regex"),
        ("regex", "[^\\s\\S]", "got: no text can satisfy it."),
        ("regex", "(" * 65 + "a" + ")" * 65, "regex: expected nesting of at most 64 levels"),
        ("regex", "a" * 40_000, "regex: expected at most 32768 characters, got 40000; shorten it."),
        ("regex", "\ud800", "regex: expected Unicode text, got half of a surrogate pair at 0."),
        ("regex", "é" * 600_000, "regex: expected at most 1048576 bytes, got more; shorten it."),
        ("choice", "[]", "choice: expected a list of 1 to 10000 texts."),
        ("choice", "[", "choice: expected a list of texts in JSON, got: Expecting value"),
        ("choice", '{"a": 1}', "choice: expected a list of 1 to 10000 texts."),
        ("choice", json.dumps(["x"] * 10_001), "choice: expected a list of 1 to 10000 texts."),
        ("choice", '["a", ""]', "choice: expected texts of at least one character each."),
        ("choice", "[1]", "choice: expected texts of at least one character each."),
        ("choice", json.dumps(["x" * 300_000]), "choice: expected at most 262144 characters"),
        ("lark", "start: (", "lark: expected one that can be enforced, got: "),
        ("lark", 'begin: "a"', "got: no start rule found."),
        ("lark", "start: " + "(" * 99, "lark: expected nesting of at most 64 levels, got more in "),
        ("lark", 'start: "a"\n' * 60_000, "lark: expected at most 50000 parts, got more; shorten"),
        ("lark", 'start: "a"\n%llguidance {}', "lark: line 2: %llguidance: how a grammar is enf"),
        ("lark", "start[temperature=2]: /a/", "line 1: temperature: a grammar's own temperatures"),
        ("lark", "start: %json {", "lark: line 1: expected a JSON schema after %json, got: "),
        ("lark", 'start: %json {"not": {}}', "lark: line 1: not: what must not be cannot be"),
    ],
)  # fmt: skip
def test_what_is_no_constraint_is_told(compiler, kind, text, said):
    """Each fault has its words."""
    with pytest.raises(ConstraintError) as caught:
        compiler.compile_now(kind, text)
    assert said in str(caught.value)


def test_lark_holds_schemas_strings_and_comments(compiler):
    """A grammar may hold schemas, read as strictly as others, and brackets inside its texts."""
    grammar = """
    // a comment ((((( with brackets
    start: "((((" NAME " = " value   # another [[[[
    NAME: /[a-c(]{1,3}/
    value: %json {"type": "object", "properties": {"}": {"const": "{"}}, "uniqueItems": false}
    """
    source = compiler.compile_now("lark", grammar)
    assert takes(source, '((((ab = {"}":"{"}')
    assert not takes(source, '((((ab = {"}":"x"}')
    assert not takes(source, '((((ad = {"}":"{"}')
