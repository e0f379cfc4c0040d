"""Op schemas: what a line may say, how it is spelled back, and every way to get one wrong."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiance_abi.errors import AbiError
from radiance_abi.ops import Operand, OpSchema, Param, extent, parse_schema
from radiance_abi.vocabulary import STANDARD


@pytest.mark.parametrize("schema", STANDARD.values(), ids=list(STANDARD))
def test_standard_schemas_survive_spelling(schema: OpSchema) -> None:
    """Spelling a schema and parsing that gives an equal one."""
    assert parse_schema(str(schema)) == schema


def test_every_mark_is_read() -> None:
    """Each mark of the spelling ends up in its own field."""
    s = parse_schema(
        "mine(M~, n, eps:f, k?, size!, kind!:s, dtype:s, f:f=0.25, m:s=neox) "
        "x[M,n], inout y?[_,2*n/k+3], weight w[n]:*, state c[_,n]:kind -> z[M]:i32"
    )
    assert s.op == "mine"
    assert s.ranged == "M"
    assert s.params == (
        Param("M", "i", ranged=True),
        Param("n", "i"),
        Param("eps", "f"),
        Param("k", "i", optional=True),
        Param("size", "i", optional=True, derived=True),
        Param("kind", "s", optional=True, derived=True),
        Param("dtype", "s"),
        Param("f", "f", optional=True, default=0.25),
        Param("m", "s", optional=True, default="neox"),
    )
    assert s.inputs == (
        Operand("x", "in", ("M", "n")),
        Operand("y", "inout", ("_", "2*n/k+3"), optional=True),
        Operand("w", "weight", ("n",), "*"),
        Operand("c", "state", ("_", "n"), "kind"),
    )
    assert s.outputs == (Operand("z", "out", ("M",), "i32"),)
    assert s.param("eps") == Param("eps", "f")
    assert s.param("nope") is None


names = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True).filter(lambda n: n != "dtype")


@st.composite
def schemas(draw: st.DrawFn) -> OpSchema:
    """Any schema that makes sense."""
    ints = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    params = [Param(n, "i", ranged=i == 0 and draw(st.booleans())) for i, n in enumerate(ints)]
    for n in draw(st.lists(names, max_size=3, unique=True)):
        if n in ints:
            continue
        default = draw(st.none() | st.floats(allow_nan=False, allow_infinity=False))
        params.append(Param(n, "f", optional=default is not None, default=default))
    params.append(Param("dtype", "s"))
    dims = st.sampled_from([*ints, "_", *(f"2*{n}" for n in ints), f"{ints[0]}+1"])
    operands = []
    for i in range(draw(st.integers(1, 4))):
        role = draw(st.sampled_from(["in", "weight", "inout", "state"]))
        extents = tuple(draw(st.lists(dims, min_size=1, max_size=3)))
        dtype = draw(st.sampled_from(["dtype", "*", "i8", "bf16"]))
        operands.append(Operand(f"in{i}", role, extents, dtype, draw(st.booleans())))
    for i in range(draw(st.integers(0, 2))):
        operands.append(Operand(f"out{i}", "out", (draw(dims),), "f32"))
    return OpSchema("op_" + ints[0], tuple(params), tuple(operands))


@given(schemas())
def test_any_schema_survives_spelling(schema: OpSchema) -> None:
    """Spelling loses nothing, whatever the schema; floats keep every digit."""
    assert parse_schema(str(schema)) == schema


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("not a schema", "schema: expected 'op(params) inputs -> outputs', got 'not a schema'"),
        ("op(n) x[n]:i8", "schema: expected 'op(params) inputs -> outputs'"),
        ("Op(n) -> y[n]:i8", "schema: expected 'op(params) inputs -> outputs'"),
        ("op(n-) -> y[n]:i8", "schema of op: expected a param such as 'M~', 'eps:f' or 'wadd:f=0'"),
        ("op(n:x) -> y[n]:i8", "expected a param such as"),
        ("op(n=abc) -> y[n]:i8", "param n: expected a default that is int, got 'abc'"),
        ("op(e:f=x) -> y[2]:i8", "param e: expected a default that is float, got 'x'"),
        ("op(n) x -> y[n]:i8", "schema of op: expected an operand such as 'x[M,n]'"),
        ("op(n) some x[n]:i8 -> y[n]:i8", "expected an operand such as"),
        ("op(n) -> weight y[n]:i8", "y stands after '->' and cannot be weight"),
        ("op(n, n) -> y[n]:i8", "schema of op: param 'n' is named twice"),
        ("op(n) x[n]:i8 -> x[n]:i8", "schema of op: operand 'x' is named twice"),
        ("op(n~, m~) -> y[n]:i8", "at most one param may be ranged ('~')"),
        ("op(e~:f) -> y[2]:i8", "a ranged param ('~') counts, so it must be an int"),
        (
            "op(n) x[n-1]:i8 -> y[n]:i8",
            "operand x: expected an extent such as n, 2*n, n/group or _",
        ),
        ("op(n) x[n,k]:i8 -> y[n]:i8", "operand x: extent k: 'k' is no int param of the op"),
        ("op(e:f) x[e]:i8 -> y[2]:i8", "operand x: extent e: 'e' is no int param of the op"),
        ("op(n) x[n] -> y[n]:i8", "operand x: type 'dtype' is neither a dtype nor a string param"),
        (
            "op(n) x[n]:f99 -> y[n]:i8",
            "operand x: type 'f99' is neither a dtype nor a string param",
        ),
    ],
)
def test_a_wrong_line_says_what_is_wrong(line: str, says: str) -> None:
    """Every error of the spelling names the op and the part."""
    with pytest.raises(AbiError, match=re.escape(says)):
        parse_schema(line)


@pytest.mark.parametrize(
    ("dim", "params", "value"),
    [
        ("7", {}, 7),
        ("n", {"n": 5}, 5),
        ("2*n", {"n": 5}, 10),
        ("n/g", {"n": 12, "g": 4}, 3),
        ("n_head*d", {"n_head": 3, "d": 8}, 24),
        ("n+2*k", {"n": 1, "k": 4}, 9),
        ("_", {}, None),
        ("n", {}, None),
        ("n*m", {"n": 2}, None),
        ("n", {"n": "text"}, None),
    ],
)
def test_extents(dim: str, params: dict[str, object], value: int | None) -> None:
    """An extent is computed from params, and unknown when a param is."""
    assert extent(dim, params) == value


@pytest.mark.parametrize("params", [{"n": 10, "g": 4}, {"n": 10, "g": 0}])
def test_an_extent_that_does_not_divide(params: dict[str, int]) -> None:
    """A remainder is an error that names the extent and the divisor."""
    with pytest.raises(AbiError, match=rf"extent n/g: 10 is not a multiple of g={params['g']}"):
        extent("n/g", params)
