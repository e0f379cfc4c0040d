"""What is read of a schema, what is refused, and in which words."""

import json

import pytest
from processor_time import least
from vocabulary import takes

from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.json_schema import read_schema

BAD = [
    ("{", "json_schema: expected a schema in JSON, got: Expecting property name", ""),
    ('{"minimum": NaN}', "json_schema: expected a schema in JSON, got: NaN, which is no numbe", ""),
    ('{"const": ' + "9" * 5000 + "}", "got: a number of 5000 digits, where 400 are the most.", ""),
    ("[]", "json_schema: schema: expected a schema, an object or a boolean, got a list.", ""),
    ("false", "json_schema: schema: expected a schema that something satisfies, got false.", ""),
    ({"items": 3}, "items: expected a schema, an object or a boolean, got a number.", "items"),
    ({"items": None}, "items: expected a schema, an object or a boolean, got null.", "items"),
    ({"properties": []}, "properties: expected an object of schemas, got a list.", "properties"),
    ({"anyOf": {}}, "anyOf: expected a list of schemas, got an object.", "anyOf"),
    ({"anyOf": []}, "anyOf: expected a list of schemas, got a list.", "anyOf"),
    ({"maxItems": "1"}, "maxItems: expected a whole number from 0 to 2147483647.", "maxItems"),
    ({"minLength": -1}, "minLength: expected a whole number from 0 to 2147483647.", "minLength"),
    ({"minLength": True}, "minLength: expected a whole number from 0", "minLength"),
    ({"minLength": 10**300}, "minLength: expected a whole number from 0", "minLength"),
    ({"minimum": "0"}, "minimum: expected a number, got a string.", "minimum"),
    ({"minimum": 2**53 + 1}, "minimum: expected a number of at most 2^53", "minimum"),
    ({"maximum": 1e300}, "maximum: expected a number of at most 2^53", "maximum"),
    ({"multipleOf": 0}, "multipleOf: expected a number above 0, got 0.", "multipleOf"),
    ({"pattern": 1}, "pattern: expected an expression as a string, got a number.", "pattern"),
    ({"pattern": "a" * 40000}, "pattern: expected at most 32768 characters, got 40000", "pattern"),
    ({"type": "text"}, "type: expected one of array, boolean, integer, null, number", "type"),
    ({"type": [1]}, "type: expected one of array, boolean, integer, null, number", "type"),
    ({"type": []}, "type: expected a type or a list of them, got an empty list.", "type"),
    ({"format": "regex"}, "format: expected one of date, date-time, duration, email", "format"),
    ({"enum": []}, "enum: expected a list of values, at least one.", "enum"),
    ({"enum": ["a\x01"]}, "enum: expected text, got a control character in it.", "enum"),
    ({"const": {"a": ["\x1f"]}}, "const: expected text, got a control character in it.", "const"),
    ('{"const": 1e999}', "json_schema: const: expected finite numbers.", "const"),
    ({"properties": {"a\x01": {}}}, "got a control character in it.", "properties.a\x01"),
    ({"required": "a"}, "required: expected a list of names.", "required"),
    ({"required": [1]}, "required: expected a list of names.", "required"),
    ({"$ref": 1}, "$ref: expected a reference as a string, got a number.", "$ref"),
    ({"$ref": "http://x.y/z"}, "$ref: expected a reference to a schema in this document", "$ref"),
    ({"$ref": "#/$defs/b"}, "as #/$defs/name, got '#/$defs/b'.", "$ref"),
    ({"$ref": "#/default", "default": {"contentEncoding": "x"}}, "got '#/default'.", "$ref"),
    ({"items": {"$id": "http://a/b"}}, "only the whole document may have a name", "items.$id"),
    ({"$id": 1}, "$id: expected a string, got a number.", "$id"),
    ({"$schema": "http://x/y"}, "$schema: expected draft 4, 6, 7, 2019-09 or 2020-12", "$schema"),
    ({"minProperties": 3, "required": ["a"]}, "minProperties: expected at most one more than the 1 "
     "required keys, got 3: a free key may come twice", "minProperties"),
    ({"minlength": 3}, "no keyword of JSON Schema; did you mean 'minLength'?", "minlength"),
    ({"uniqueitems": True}, "did you mean 'uniqueItems'?", "uniqueitems"),
    ({f"x-{n}": 1 for n in range(33)}, "no keyword of JSON Schema, and 32 others are not", "x-32"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "said", "path"), BAD, ids=lambda v: str(v)[:40])
def test_a_schema_that_is_wrong_is_told_where(schema, said, path):
    """The error names the place and what was expected there."""
    with pytest.raises(ConstraintError) as caught:
        read_schema(schema if isinstance(schema, str) else json.dumps(schema))
    assert said in str(caught.value)
    assert str(caught.value).startswith("json_schema: ")
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"items":' * 50_000 + "{}" + "}" * 50_000, "nesting of at most 64 levels, got more; fla"),
        ("[" * 400_000, "expected nesting of at most 64 levels, got more; flatten it."),
        ('{"enum":[' + "0," * 400_000 + "0]}", "expected at most 50000 values, got more; split"),
        ('"' + "a" * 900_000, "json_schema: expected a schema in JSON, got: "),
        ('"' * 400_001, "json_schema: expected a schema in JSON, got: "),
        ('{"a":"' + "\\" * 500_001, "json_schema: expected a schema in JSON, got: "),
    ],
    ids=["deep", "brackets", "wide", "open", "quotes", "escapes"],
)
def test_bombs_are_refused_at_once(text, said):
    """Depth and number of values are seen before anything is built, in well under a second."""
    with pytest.raises(ConstraintError, match=said.replace("(", r"\(")):
        read_schema(text)
    assert least(lambda: _refuse(text), 0.5) < 0.5


def test_deep_nesting_is_refused_within_50_ms():
    """A schema nested 50,000 levels costs next to nothing."""
    text = '{"items":' * 50_000 + "{}" + "}" * 50_000
    assert least(lambda: _refuse(text), 0.05) < 0.05


def _refuse(text):
    with pytest.raises(ConstraintError):
        read_schema(text)


def test_unknown_keywords_are_named(compiler):
    """What means nothing to JSON Schema is ignored by name, with the path to it."""
    schema = {"type": "object", "order": 1, "properties": {"a": {"anyOf": [{"enumNames": ["x"]}]}}}
    source = compiler.compile_now("json_schema", json.dumps(schema))
    assert source.ignored == ("order", "properties.a.anyOf[0].enumNames")


def test_references_are_followed(compiler):
    """By pointer, by anchor, through the document's own name, and into themselves."""
    tree = {
        "$id": "http://a.b/tree",
        "$ref": "http://a.b/tree#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "left": {"$ref": "#/$defs/node"},
                    "name": {"$ref": "#text"},
                    "more": {"$ref": "#/$defs/node/properties/name"},
                },
                "additionalProperties": False,
            },
            "text": {"$anchor": "text", "type": "string", "maxLength": 2},
        },
    }
    source = compiler.compile_now("json_schema", json.dumps(tree))
    assert takes(source, '{"left":{"left":{"name":"ab"},"name":"b"}}')
    assert takes(source, '{"more":"ab"}')
    for bad in ('{"left":1}', '{"left":{"name":"abc"}}', '{"more":"abc"}', '{"x":1}'):
        assert not takes(source, bad)


def test_no_key_has_two_spellings(compiler):
    """A declared key cannot come back under another type by escapes or a second time."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"type": "string"},
    }
    source = compiler.compile_now("json_schema", json.dumps(schema))
    assert takes(source, '{"a":1,"b":"x"}')
    for bad in ('{"\\u0061":"x"}', '{"a":1,"a":"x"}', '{"b":"\\u0061"}', '{"b":"\\ud800"}'):
        assert not takes(source, bad)


def test_white_space_has_an_end(compiler):
    """Blanks between parts are free up to 64, so that no text is blanks without end."""
    source = compiler.compile_now("json_object", "")
    assert takes(source, "{" + "\n" * 64 + "}")
    assert not takes(source, "{" + " " * 65 + "}")
    assert not takes(source, " {}")
    assert not takes(source, "[]")


def test_alternatives_that_overlap_are_refused(compiler):
    """A oneOf is enforced where alternatives exclude each other; elsewhere it is refused."""
    schema = {"properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}}
    with pytest.raises(ConstraintError, match=r"oneOf that do not exclude .*; use anyOf\.$"):
        compiler.compile_now("json_schema", json.dumps(schema))
    schema = {"$ref": "#/$defs/a", "$defs": {"a": schema["properties"]["a"]}}
    with pytest.raises(ConstraintError, match=r"; use anyOf \(at #/\$defs/a\)\.$"):
        compiler.compile_now("json_schema", json.dumps(schema))


def test_what_nothing_satisfies_is_refused(compiler):
    """A schema that leads back to itself without a value in between has no text."""
    with pytest.raises(ConstraintError, match="got: no text can satisfy it"):
        compiler.compile_now("json_schema", '{"$ref": "#"}')
