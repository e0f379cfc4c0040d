"""Texts of tagged arguments as JSON, by the types that a schema allows."""

import json

import pytest
from processor_time import least

from radiance_core.chat_format.values import ANY, property_schema, types_of, value_json

ROOT = {"$defs": {"size": {"enum": [1, 2.5, "all"]}, "loop": {"$ref": "#/$defs/loop"},
                  "a/b": {"type": "null"}}}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        (True, ANY),
        ({}, ANY),
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"enum": ["a", 1, None, True]}, {"string", "integer", "null", "boolean"}),
        ({"const": []}, {"array"}),
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, {"object", "null"}),
        ({"allOf": [{"type": ["string", "number"]}, {"type": "number"}]}, {"number"}),
        ({"$ref": "#/$defs/size"}, {"integer", "number", "string"}),
        ({"$ref": "#/$defs/a~1b"}, {"null"}),
        ({"$ref": "#/$defs/loop"}, ANY),
        ({"$ref": "#/nowhere"}, ANY),
        ({"$ref": "https://elsewhere"}, ANY),
    ],
)
def test_types_follow_from_the_outermost_keywords(schema, types):
    """Types, values, alternatives and local references tell; cycles and what is missing do not."""
    assert types_of(schema, ROOT) == types


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("12", {"integer"}, 12),
        (" 12\n", {"number"}, 12),
        ("12", {"string"}, "12"),
        ("12", {"string", "integer"}, 12),
        ("1.5", {"integer"}, "1.5"),
        ("True", {"boolean"}, True),
        ("None", {"null", "string"}, None),
        ("NaN", {"number"}, "NaN"),
        ('["a"]', {"array"}, ["a"]),
        ("['a']", {"array"}, "['a']"),
        ('"quoted"', {"string", "null"}, '"quoted"'),
        ('"quoted"', {"integer"}, '"quoted"'),
        ("", {"integer"}, ""),
        ("[" * 100_000, {"array"}, "[" * 100_000),
    ],
)
def test_a_text_is_json_where_its_type_allows(text, types, value):
    """JSON of an allowed type is that value, anything else the text itself."""
    assert json.loads(value_json(text, frozenset(types))) == value


def test_an_argument_without_a_schema_may_be_anything():
    """Unknown names fall to additionalProperties, and without that to anything."""
    assert property_schema({"properties": {"a": {"type": "null"}}}, "a") == {"type": "null"}
    assert property_schema({"properties": {}}, "b") is True
    assert property_schema({"additionalProperties": {"type": "null"}}, "b") == {"type": "null"}


def test_schemas_that_branch_into_themselves_take_no_time():
    """References that double at each step, or chain without end, are looked at once each."""
    doubling = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(5000)}
    looping = {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}

    def look():
        for defs, first in ((doubling, "d0"), (looping, "a")):
            assert types_of({"$ref": f"#/$defs/{first}"}, {"$defs": defs}) == ANY

    assert least(look, 1) < 1
