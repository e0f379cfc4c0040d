"""Whatever text comes as a constraint, it is compiled or refused in words."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vocabulary import walk

from radiance_core.constrain import keywords as kw
from radiance_core.constrain.errors import ConstraintError

SLOW = {"deadline": None, "suppress_health_check": list(HealthCheck)}
SIGNS = st.sampled_from([
    *"ab09 \n\t\\\"'/|()[]{}<>*+?.,:;=-^$~&%@#!_é🙂\x00\x7f\u2028",
    "::=", "root ::= ", "start: ", "%json ", "%regex ", "%import ", "(?i)", "\\x{", "\\p{L}",
    "{1,3}", "{2,}", '{"type":', '"anyOf":[', "<|tool|>", "<[2]>", "[lazy]", "[max_tokens=2]",
])  # fmt: skip
TEXTS = st.lists(SIGNS, max_size=30).map("".join)
KINDS = st.sampled_from(["json_schema", "regex", "choice", "lark", "gbnf"])
KEYWORDS = st.sampled_from(
    sorted(kw.ENFORCED | kw.REFUSED.keys() | kw.NAMES | kw.ANNOTATIONS | {"zz", "minlength"})
)
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(["a", "#", "#/$defs/a", "string", "object", "^a", "date", "", "\x01"]),
        st.just({"type": "integer"}),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4)
    | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=10,
)  # fmt: skip


def compile_or_refuse(compiler, kind, text):
    try:
        source = compiler.compile_now(kind, text)
    except ConstraintError as err:
        said = str(err)
        assert ": " in said
        assert not any(
            word in said for word in ("Traceback", "0x", "thread '", "<state>", "panick")
        )
        return
    for seed in range(2):
        try:
            walk(source, seed, limit=20)
        except ConstraintError as err:
            assert "where it cannot go on" in str(err)  # noqa: PT017


@given(kind=KINDS, text=TEXTS)
@settings(max_examples=150, **SLOW)
def test_any_text_is_compiled_or_refused(compiler, kind, text):
    """Random text of the signs that mean something raises the one error, or gives a constraint."""
    compile_or_refuse(compiler, kind, text)


@given(text=TEXTS)
@settings(max_examples=60, **SLOW)
def test_any_rule_is_compiled_or_refused(compiler, text):
    """The same behind the beginning of a grammar."""
    compile_or_refuse(compiler, "gbnf", f"root ::= {text}")
    compile_or_refuse(compiler, "lark", f"start: {text}")


@given(schema=st.dictionaries(KEYWORDS, VALUES, max_size=5))
@settings(max_examples=250, **SLOW)
def test_any_schema_is_compiled_or_refused(compiler, schema):
    """Keywords with values of every type raise the one error, or give a constraint."""
    compile_or_refuse(compiler, "json_schema", json.dumps(schema))
