"""What is known of each JSON Schema keyword: enforced, without meaning for a mask, or refused.

Tested against the installed llguidance, keyword by keyword, with instances that violate each.
"""

SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SCHEMAS = frozenset({"additionalProperties", "additionalItems", "items"})
COUNTS = frozenset({
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
})  # fmt: skip
BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
OTHERS = frozenset({"type", "enum", "const", "required", "pattern", "format", "$ref"})
ENFORCED = SCHEMA_MAPS | SCHEMA_LISTS | SCHEMAS | COUNTS | BOUNDS | OTHERS

NAMES = frozenset({"$anchor", "$id", "id", "$schema"})
ANNOTATIONS = frozenset({
    "title", "description", "default", "examples", "example", "deprecated", "readOnly",
    "writeOnly", "$comment", "$vocabulary",
})  # fmt: skip

_UNEVALUATED = "which fields other parts looked at is not known while a text is written"
_OUTSIDE = "what a string holds once decoded is outside a mask; state a pattern"
_IF_THEN = "conditions are not enforced; write the cases as anyOf"
_DEPENDENT = "conditions on other keys are not enforced; write the cases as anyOf"
_COUNTED = "items of a kind are not counted while a text is written"
REFUSED: dict[str, str] = {
    "uniqueItems": "items are not compared with each other; leave it out and check the answer",
    "contains": _COUNTED,
    "minContains": _COUNTED,
    "maxContains": _COUNTED,
    "not": "what must not be cannot be enforced; say what may be",
    "if": _IF_THEN,
    "then": _IF_THEN,
    "else": _IF_THEN,
    "dependentRequired": _DEPENDENT,
    "dependentSchemas": _DEPENDENT,
    "dependencies": _DEPENDENT,
    "propertyNames": "names are enforced only by patternProperties; use that",
    "unevaluatedItems": f"{_UNEVALUATED}; use items",
    "unevaluatedProperties": f"{_UNEVALUATED}; use additionalProperties",
    "$dynamicRef": "references must be fixed; use $ref",
    "$dynamicAnchor": "references must be fixed; use $anchor",
    "$recursiveRef": "references must be fixed; use $ref",
    "$recursiveAnchor": "references must be fixed; use $ref",
    "contentEncoding": _OUTSIDE,
    "contentMediaType": _OUTSIDE,
    "contentSchema": _OUTSIDE,
    "nullable": "JSON Schema says it by a type of [..., 'null']; use that",
    "extends": "no draft since the fourth has it; use allOf",
    "disallow": "no draft since the fourth has it; say what may be",
    "divisibleBy": "no draft since the fourth has it; use multipleOf",
    "x-guidance": "how a schema is enforced is not for a request to say",
}
NEUTRAL: dict[str, tuple[object, ...]] = {
    "uniqueItems": (False,),
    "nullable": (False,),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
    "propertyNames": (True, {}),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
}
"""Values of refused keywords that ask for nothing."""

TYPES = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
FORMATS = frozenset({
    "date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid",
})  # fmt: skip
DIALECTS = {
    "json-schema.org/draft/2020-12/schema": "https://json-schema.org/draft/2020-12/schema",
    "json-schema.org/draft/2019-09/schema": "https://json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft-07/schema": "http://json-schema.org/draft-07/schema#",
    "json-schema.org/draft-06/schema": "http://json-schema.org/draft-06/schema#",
    "json-schema.org/draft-04/schema": "http://json-schema.org/draft-04/schema#",
}
"""Names of drafts as they are sent, less scheme and end, and as llguidance knows them."""
