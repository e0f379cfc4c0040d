"""What a request says its answer must look like, by whichever of its fields, as one constraint."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from radiance_core.constrain.errors import ConstraintError
from radiance_core.engine.interface import TextModel
from radiance_core.engine.sampling import ConstraintSource, ConstraintSpec
from radiance_core.server.errors import ApiError, invalid, quote, scrub, unsupported
from radiance_core.server.fields import ignored as ignored_names
from radiance_core.server.requests import SamplingRequest

_FORMAT_KEYS = frozenset({"type", "json_schema", "schema"})
_SCHEMA_KEYS = frozenset({"name", "description", "schema", "strict"})
_OUTPUT_KINDS = ("json", "regex", "choice", "grammar", "json_object")
_OUTPUT_OPTIONS = {
    "structural_tag": "tags inside a text are not served; ask by grammar",
    "disable_fallback": "there is one engine for constraints, and none to fall back to",
    "disable_any_whitespace": "blanks between parts of JSON are always allowed",
    "disable_additional_properties": "say additionalProperties false in the schema",
    "whitespace_pattern": "blanks between parts of JSON are always allowed",
}
_GBNF = re.compile(r"^[ \t]*[\w-]+[ \t]*::=", re.MULTILINE)


def read_constraint(
    request: SamplingRequest, ignored: list[str], *, strict: bool = False
) -> ConstraintSpec | None:
    """Return what the answer must look like, or None when the request leaves it free.

    Args:
        request: its fields, of the right types.
        ignored: gets the paths of unknown keys inside them.
        strict: refuse those instead.

    Raises: ``ApiError`` 400 for fields that are malformed or do not go together.
    """
    reader = _Reader(ignored, strict)
    found = {
        name: spec
        for name, read in _READERS.items()
        if (value := getattr(request, name)) is not None
        and (spec := read(reader, value, name)) is not None
    }
    if len(found) > 1:
        first, second, *_ = found
        raise invalid(
            f"{second}: expected one field that says what the answer looks like, got {first} too; "
            "leave one of them out.",
            second,
        )
    if not found:
        return None
    if request.ignore_eos:
        raise invalid(
            f"ignore_eos: expected false with {next(iter(found))}, whose text ends where it is "
            "whole, got true.",
            "ignore_eos",
        )
    return next(iter(found.values()))


async def compile_constraint(model: TextModel, spec: ConstraintSpec) -> ConstraintSource:
    """Compile a constraint.

    Raises: ``ApiError`` 400 for what cannot be enforced; ``param`` leads to the place.
    """
    try:
        return await model.compile_constraint(spec)
    except ConstraintError as err:
        raise refused(err, spec) from err


async def read_and_compile(
    request: SamplingRequest, model: TextModel, ignored: list[str], *, strict: bool
) -> ConstraintSource | None:
    """Return the compiled constraint of a request, if it has one; see ``read_constraint``."""
    spec = read_constraint(request, ignored, strict=strict)
    if spec is None:
        return None
    source = await compile_constraint(model, spec)
    ignored += ignored_parts(spec, source)
    return source


def ignored_parts(spec: ConstraintSpec | None, source: ConstraintSource | None) -> list[str]:
    """Return the paths in a request of what means nothing in its constraint."""
    if spec is None or source is None:
        return []
    return [f"{spec.field}.{path}" for path in source.ignored]


def refused(err: ConstraintError, spec: ConstraintSpec) -> ApiError:
    """Say in HTTP why a constraint is not enforced."""
    field = spec.field or spec.kind
    param = f"{field}.{err.path}" if err.path else field
    text = scrub(str(err).removeprefix(f"{spec.kind}: "))
    return invalid(f"{field}: {text}", param, "unsupported_constraint")


class _Reader:
    """Reads the fields; keeps which keys inside them were ignored."""

    def __init__(self, ignored: list[str], strict: bool) -> None:
        self._ignored = ignored
        self._strict = strict

    def response_format(self, value: dict[str, Any], name: str) -> ConstraintSpec | None:
        """Read OpenAI's field, with llama-server's schema at its top as well."""
        self._sweep(value, _FORMAT_KEYS, f"{name}.")
        kind = value.get("type")
        if kind == "text":
            return None
        if kind not in ("json_object", "json_schema"):  # may be unhashable
            raise invalid(
                f"{name}.type: expected text, json_object or json_schema, got {quote(kind)}.",
                f"{name}.type",
            )
        wrapped = value.get("json_schema")
        field, schema = f"{name}.schema", value.get("schema")
        if kind == "json_schema" and wrapped is not None:
            if not isinstance(wrapped, dict):
                raise invalid(f"{name}.json_schema: expected an object.", f"{name}.json_schema")
            self._sweep(wrapped, _SCHEMA_KEYS, f"{name}.json_schema.")
            self._check_strict(wrapped.get("strict"), f"{name}.json_schema.strict")
            if schema is not None and wrapped.get("schema") is not None:
                raise invalid(
                    f"{field}: expected one schema, got {name}.json_schema.schema too.", field
                )
            if schema is None:
                field, schema = f"{name}.json_schema.schema", wrapped.get("schema")
        if schema is not None:
            return self.schema(schema, field)
        if kind == "json_schema":
            path = f"{name}.json_schema.schema"
            raise invalid(f"{path}: expected a schema, got none.", path)
        return ConstraintSpec("json_object", "", name)

    def structured_outputs(self, value: dict[str, Any], name: str) -> ConstraintSpec | None:
        """Read vLLM's field, which says one thing."""
        for key, why in _OUTPUT_OPTIONS.items():
            if value.get(key) is not None and value[key] is not False:
                raise unsupported(f"{name}.{key}", why)
        self._sweep(value, frozenset(_OUTPUT_KINDS) | _OUTPUT_OPTIONS.keys(), f"{name}.")
        given = [key for key in _OUTPUT_KINDS if value.get(key) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise invalid(f"{name}: expected one of {', '.join(_OUTPUT_KINDS)}, got {got}.", name)
        key, field = given[0], f"{name}.{given[0]}"
        item = value[key]
        if key == "json_object":
            self._check_strict(item, field)
            return ConstraintSpec("json_object", "", field) if item else None
        read = {
            "json": self.schema,
            "regex": self.regex,
            "choice": self.choice,
            "grammar": self.grammar,
        }[key]
        return read(item, field)

    def schema(self, value: Any, field: str) -> ConstraintSpec:
        """Read a schema, as JSON or as a text that holds it."""
        if isinstance(value, str):
            return ConstraintSpec("json_schema", value, field)
        if not isinstance(value, dict | bool):
            raise invalid(f"{field}: expected a JSON schema, got {quote(value)}.", field)
        return ConstraintSpec("json_schema", json.dumps(value, ensure_ascii=False), field)

    def regex(self, value: Any, field: str) -> ConstraintSpec:
        """Read a regular expression."""
        if not isinstance(value, str):
            raise invalid(f"{field}: expected an expression as a string.", field)
        return ConstraintSpec("regex", value, field)

    def choice(self, value: Any, field: str) -> ConstraintSpec:
        """Read a list of texts."""
        if not isinstance(value, list):
            raise invalid(f"{field}: expected a list of texts, got {quote(value)}.", field)
        return ConstraintSpec("choice", json.dumps(value, ensure_ascii=False), field)

    def grammar(self, value: Any, field: str) -> ConstraintSpec | None:
        """Read a grammar: GBNF when a rule of it is written with ``::=``, else Lark."""
        if not isinstance(value, str):
            raise invalid(f"{field}: expected a grammar as a string.", field)
        if not value.strip():
            return None
        return ConstraintSpec("gbnf" if _GBNF.search(value) else "lark", value, field)

    def _sweep(self, value: Mapping[str, Any], known: frozenset[str], prefix: str) -> None:
        unknown = [key for key, item in value.items() if key not in known and item is not None]
        self._ignored += ignored_names(unknown, known, prefix, self._strict)

    def _check_strict(self, value: object, path: str) -> None:
        if value is not None and not isinstance(value, bool):
            raise invalid(f"{path}: expected true or false, got {quote(value)}.", path)


_READERS: dict[str, Callable[[_Reader, Any, str], ConstraintSpec | None]] = {
    "response_format": _Reader.response_format,
    "structured_outputs": _Reader.structured_outputs,
    "guided_json": _Reader.schema,
    "guided_regex": _Reader.regex,
    "guided_choice": _Reader.choice,
    "guided_grammar": _Reader.grammar,
    "json_schema": _Reader.schema,
    "grammar": _Reader.grammar,
}
