"""A tagged argument's text as JSON, by what the tool's schema says of it."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

_PYTHON = {"True": "true", "False": "false", "None": "null"}
_MAX_PARTS = 200  # each may lead to the next, a call deeper
ANY = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})


def property_schema(parameters: Mapping[str, Any], name: str) -> Any:
    """Return the schema of an argument, ``True`` (anything) where none is given."""
    properties = parameters.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return properties[name]
    return parameters.get("additionalProperties", True)


def types_of(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types that a schema allows, as far as its outermost keywords tell.

    Args:
        schema: of one value.
        root: where its local references lead.
    """
    return _types(schema, root, {})


def _types(
    schema: Any, root: Mapping[str, Any], known: dict[int, frozenset[str]]
) -> frozenset[str]:
    """Return the types; each part is looked at once, and one that leads to itself allows all."""
    if not isinstance(schema, Mapping) or len(known) > _MAX_PARTS:
        return ANY
    if id(schema) in known:
        return known[id(schema)]
    known[id(schema)] = found = ANY
    kind = schema.get("type")
    if isinstance(kind, str):
        found &= {kind}
    elif isinstance(kind, list):
        found &= frozenset(item for item in kind if isinstance(item, str))
    if "const" in schema:
        found &= {_kind(schema["const"])}
    if isinstance(schema.get("enum"), list):
        found &= {_kind(value) for value in schema["enum"]}
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list):
            found &= _any(_types(one, root, known) for one in schema[name])
    if isinstance(schema.get("allOf"), list):
        for one in schema["allOf"]:
            found &= _types(one, root, known)
    if isinstance(schema.get("$ref"), str):
        found &= _types(_target(schema["$ref"], root), root, known)
    known[id(schema)] = found
    return found


def value_json(text: str, types: frozenset[str]) -> str:
    """Return the JSON for an argument's text: as JSON where the types allow it, else a string."""
    bare = text.strip()
    bare = _PYTHON.get(bare, bare)
    try:
        kind = _kind(json.loads(bare, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    fits = kind in types or (kind == "integer" and "number" in types)
    if not fits or (kind == "string" and "string" in types):
        return json.dumps(text, ensure_ascii=False)
    return bare


def _any(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def _refuse(name: str) -> None:
    raise ValueError(name)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    kinds = {str: "string", int: "integer", float: "number", dict: "object", list: "array"}
    return kinds.get(type(value), "null")


def _target(reference: str, root: Mapping[str, Any]) -> Any:
    """Return what a local reference names, ``True`` for one that leads nowhere."""
    if not reference.startswith("#"):
        return True
    here: Any = root
    for escaped in reference[1:].split("/")[1:]:
        part = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping) and part in here:
            here = here[part]
        else:
            return True
    return here
