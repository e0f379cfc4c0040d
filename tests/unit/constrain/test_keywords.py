"""Every keyword of JSON Schema: enforced, refused by its path, or without meaning for a text."""

import json

import jsonschema
import pytest
from vocabulary import takes

from radiance_core.constrain import keywords as kw
from radiance_core.constrain.errors import ConstraintError

TEXT = {"type": "string"}
ENFORCED = {
    # keyword: schema, instances that satisfy it, instances that violate it
    "type": ({"type": ["integer", "null"]}, [1, None], ["1", 1.5, True]),
    "enum": ({"enum": ["a", 2, None]}, ["a", 2, None], ["b", 3, False]),
    "const": ({"const": {"a": [1]}}, [{"a": [1]}], [{"a": [2]}, {}]),
    "multipleOf": ({"type": "integer", "multipleOf": 7}, [0, 14, -21], [1, 15]),
    "maximum": ({"type": "integer", "maximum": 12}, [12, -99], [13, 100]),
    "exclusiveMaximum": ({"type": "number", "exclusiveMaximum": 3}, [2.5], [3, 3.5]),
    "minimum": ({"type": "integer", "minimum": -4}, [-4, 7], [-5]),
    "exclusiveMinimum": ({"type": "number", "exclusiveMinimum": 3}, [3.5], [3, 2]),
    "maxLength": ({**TEXT, "maxLength": 2}, ["", "é🙂"], ["abc"]),
    "minLength": ({**TEXT, "minLength": 2}, ["é🙂", "abc"], ["", "🙂"]),
    "pattern": ({**TEXT, "pattern": "b[0-9]"}, ["ab1c"], ["ab", "1b"]),
    "format": ({**TEXT, "format": "date"}, ["2024-02-29"], ["2024-2-29", "x"]),
    "maxItems": ({"type": "array", "maxItems": 1}, [[], [1]], [[1, 2]]),
    "minItems": ({"type": "array", "minItems": 1}, [[1]], [[]]),
    "items": ({"type": "array", "items": TEXT}, [[], ["a"]], [[1], ["a", 1]]),
    "prefixItems": (
        {"type": "array", "prefixItems": [TEXT, {"type": "integer"}], "minItems": 2},
        [["a", 1], ["a", 1, None]],
        [[1, "a"], ["a"]],
    ),
    "additionalItems": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "array",
            "items": [TEXT],
            "additionalItems": False,
        },
        [["a"]],
        [["a", 1], [1]],
    ),
    "maxProperties": ({"type": "object", "maxProperties": 1}, [{}, {"a": 1}], [{"a": 1, "b": 2}]),
    "minProperties": ({"type": "object", "minProperties": 1}, [{"a": 1}], [{}]),
    "required": ({"type": "object", "required": ["a"]}, [{"a": 1}], [{}, {"b": 1}]),
    "properties": ({"type": "object", "properties": {"a": TEXT}}, [{"a": "x"}, {}], [{"a": 1}]),
    "patternProperties": (
        {"type": "object", "patternProperties": {"^a": TEXT}},
        [{"ab": "x"}, {"b": 1}],
        [{"ab": 1}],
    ),
    "additionalProperties": (
        {"type": "object", "properties": {"a": TEXT}, "additionalProperties": {"type": "integer"}},
        [{"a": "x", "b": 1}],
        [{"b": "x"}],
    ),
    "allOf": ({"allOf": [{"type": "integer"}, {"minimum": 2}]}, [2], [1, "x"]),
    "anyOf": ({"anyOf": [TEXT, {"type": "integer"}]}, ["x", 1], [1.5, None]),
    "oneOf": ({"oneOf": [TEXT, {"type": "integer"}]}, ["x", 1], [1.5, None]),
    "$ref": ({"$ref": "#/$defs/a", "$defs": {"a": TEXT}}, ["x"], [1]),
    "$defs": ({"items": {"$ref": "#/$defs/a~1b"}, "$defs": {"a/b": TEXT}}, [["x"]], [[1]]),
    "definitions": ({"$ref": "#/definitions/a", "definitions": {"a": TEXT}}, ["x"], [1]),
}
# All keywords of the vocabularies of draft 2020-12, and those that only drafts before it have.
DRAFT_2020_12 = [
    "$schema",
    "$id",
    "$ref",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$vocabulary",
    "$comment",
    "$defs",
    "prefixItems",
    "items",
    "contains",
    "additionalProperties",
    "properties",
    "patternProperties",
    "dependentSchemas",
    "propertyNames",
    "if",
    "then",
    "else",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "unevaluatedItems",
    "unevaluatedProperties",
    "type",
    "const",
    "enum",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxContains",
    "minContains",
    "maxProperties",
    "minProperties",
    "required",
    "dependentRequired",
    "format",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "title",
    "description",
    "default",
    "deprecated",
    "readOnly",
    "writeOnly",
    "examples",
]
EARLIER = ["additionalItems", "definitions", "dependencies", "id", "extends", "disallow",
           "divisibleBy", "$recursiveRef", "$recursiveAnchor"]  # fmt: skip


def test_nothing_is_left_out():
    """Each keyword of the drafts is in exactly one class, and each enforced one has instances."""
    classes = (kw.ENFORCED, kw.REFUSED.keys(), kw.NAMES, kw.ANNOTATIONS)
    for keyword in DRAFT_2020_12 + EARLIER:
        assert sum(keyword in one for one in classes) == 1, keyword
    assert set(ENFORCED) == kw.ENFORCED
    assert set(kw.NEUTRAL) < set(kw.REFUSED)


@pytest.mark.parametrize("keyword", sorted(ENFORCED))
def test_an_enforced_keyword_is_enforced(compiler, keyword):
    """What violates the schema cannot be written, what satisfies it can; jsonschema agrees."""
    schema, good, bad = ENFORCED[keyword]
    assert keyword in json.dumps(schema)
    source = compiler.compile_now("json_schema", json.dumps(schema))
    oracle = jsonschema.validators.validator_for(schema)(
        schema, format_checker=jsonschema.FormatChecker()
    )
    assert good
    assert bad
    for instance in good:
        assert oracle.is_valid(instance), instance
        assert takes(source, json.dumps(instance, ensure_ascii=False)), instance
    for instance in bad:
        assert not oracle.is_valid(instance), instance
        assert not takes(source, json.dumps(instance, ensure_ascii=False)), instance


@pytest.mark.parametrize("keyword", sorted(kw.REFUSED))
@pytest.mark.parametrize("value", [{"a": ["b"]}, "x", 1, [{}]], ids=repr)
def test_a_refused_keyword_is_refused_by_its_path(compiler, keyword, value):
    """A keyword that no mask enforces is an error at its place, whatever it holds."""
    schema = {"type": "object", "properties": {"a": {"anyOf": [TEXT, {keyword: value}]}}}
    with pytest.raises(ConstraintError) as caught:
        compiler.compile_now("json_schema", json.dumps(schema))
    assert caught.value.path == f"properties.a.anyOf[1].{keyword}"
    assert str(caught.value) == f"json_schema: {caught.value.path}: {kw.REFUSED[keyword]}."


@pytest.mark.parametrize(
    ("keyword", "value"), [(k, v) for k, values in kw.NEUTRAL.items() for v in values], ids=repr
)
def test_a_refused_keyword_that_asks_for_nothing_is_left_out(compiler, keyword, value):
    """Generators write uniqueItems false and the like."""
    source = compiler.compile_now("json_schema", json.dumps({"type": "array", keyword: value}))
    assert takes(source, "[1,1]")


@pytest.mark.parametrize("name", sorted(kw.FORMATS))
def test_each_format_is_enforced(compiler, name):
    """A format that is served leaves no free text."""
    source = compiler.compile_now("json_schema", json.dumps({**TEXT, "format": name}))
    assert not takes(source, '"!?"')
    assert takes(source, json.dumps(FORMATS[name]))


FORMATS = {
    "date-time": "2024-01-31T10:20:30Z",
    "date": "2024-01-31",
    "time": "10:20:30Z",
    "duration": "P3DT4H",
    "email": "a@b.co",
    "hostname": "a.b",
    "ipv4": "1.2.3.4",
    "ipv6": "::1",
    "uri": "http://a.b/c",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


@pytest.mark.parametrize("keyword", sorted(kw.ANNOTATIONS))
def test_annotations_change_nothing(compiler, keyword):
    """Keywords that describe are taken, and are not told as ignored."""
    source = compiler.compile_now("json_schema", json.dumps({**TEXT, keyword: "x"}))
    assert takes(source, '"a"')
    assert source.ignored == ()


@pytest.mark.parametrize("dialect", kw.DIALECTS)
def test_each_dialect_compiles(compiler, dialect):
    """The drafts that are named as served are."""
    for uri in (f"http://{dialect}#", f"https://{dialect}"):
        source = compiler.compile_now("json_schema", json.dumps({**TEXT, "$schema": uri}))
        assert takes(source, '"a"')
