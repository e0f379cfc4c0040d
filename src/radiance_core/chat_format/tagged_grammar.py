"""The grammar of arguments that are written one by one, each between marks of its own.

Their schema is enforced by its members: which arguments there are, which must be, and what each
may be. Texts stand there raw, so of what a schema says of a text only its length, its pattern and
its values can be kept.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from radiance_abi.errors import RadianceError
from radiance_core.chat_format.format import CDATA, ToolFormat
from radiance_core.chat_format.lark import ANYTHING, Pieces, escaped, json_of, quoted
from radiance_core.chat_format.text_pattern import whole_text
from radiance_core.chat_format.values import types_of, value_json

_ROOT = frozenset({
    "type", "properties", "required", "additionalProperties", "$defs", "definitions", "$schema",
    "$id", "id", "$comment", "title", "description", "default", "examples", "deprecated",
})  # fmt: skip
_OF_TEXT = frozenset({"format", "allOf", "anyOf", "oneOf"})
_MAX_KEY = r"[A-Za-z0-9_.-]{1,64}"


class SchemaNotServed(RadianceError):  # noqa: N818 (a fact about a schema and a model)
    """A schema says of arguments what cannot be enforced in the way this model writes them.

    Args:
        text: why, in words for a client.
        path: the place in the schema.
        tool: whose schema it is; set by who knows.
    """

    def __init__(self, text: str, path: str) -> None:
        super().__init__(text)
        self.path = path
        self.tool = ""


def tagged_arguments(
    form: ToolFormat,
    pieces: Pieces,
    schema: Mapping[str, Any],
    prefix: str,
    rule: Callable[[str, str], str],
) -> str:
    """Return all arguments of a call, in the order of the schema.

    Args:
        form: how the model writes.
        pieces: writes its texts.
        schema: of the arguments.
        prefix: for the names of rules.
        rule: adds a rule and returns its name.
    """
    for key in schema:
        if key not in _ROOT:
            raise SchemaNotServed(
                f"{key}: this model's way of writing calls cannot keep to it", key
            )
    required = set(schema.get("required", ()))
    properties = dict(schema.get("properties", {}))
    free = schema.get("additionalProperties", True)
    for name in required - properties.keys():
        properties[name] = free
    parts = []
    for number, (name, value) in enumerate(properties.items()):
        if value is False:
            continue
        _check_name(form, pieces, name)
        written = _Value(form, pieces, schema, f"{prefix}_{number}", rule)
        argument = rule(f"{prefix}_{number}", written.argument(pieces.text(name), value, name))
        parts.append(argument if name in required else f"{argument}?")
    if not properties and free is not False:
        written = _Value(form, pieces, schema, f"{prefix}_any", rule)
        any_ = rule(
            f"{prefix}_any", written.argument(f"/{_MAX_KEY}/", free, "additionalProperties")
        )
        parts.append(f"{any_}*")
    return " ".join(parts)


class _Value:
    """Writes one argument and the rules that it needs."""

    def __init__(
        self,
        form: ToolFormat,
        pieces: Pieces,
        root: Mapping[str, Any],
        prefix: str,
        rule: Callable[[str, str], str],
    ) -> None:
        self._form = form
        self._pieces = pieces
        self._root = root
        self._prefix = prefix
        self._rule = rule

    def argument(self, name: str, schema: Any, path: str) -> str:
        """Return an argument with its marks."""
        form = self._form
        types = types_of(schema, self._root)
        is_text = "string" in types
        close = form.key_close if is_text or not form.other_key_close else form.other_key_close
        head = f"{self._pieces.text(form.key_open)} {name} {self._pieces.text(close)}"
        if is_text:
            return f"{head} {self._text(schema, types, path)}"
        value = self._rule(f"{self._prefix}_json", json_of(self._alone(schema)))
        return f"{head} {value} {self._pieces.text(form.value_close)}"

    def _alone(self, schema: Any) -> Any:
        """Return a part of a schema with the definitions that it may refer to."""
        named = {key: self._root[key] for key in ("$defs", "definitions") if key in self._root}
        return {**named, **schema} if isinstance(schema, Mapping) else schema

    def _text(self, schema: Any, types: frozenset[str], path: str) -> str:
        """Return a text up to and with the mark that ends it."""
        said = schema if isinstance(schema, Mapping) else {}
        for key in _OF_TEXT & said.keys():
            if types == {"string"}:
                raise SchemaNotServed(
                    f"{path}.{key}: this model's way of writing texts cannot keep to it",
                    f"properties.{path}.{key}",
                )
        values = said["enum"] if "enum" in said else [said["const"]] if "const" in said else None
        if values is not None:
            texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
            for value, text in zip(values, texts, strict=True):
                self._check_value(value, text, types, path)
            options = " | ".join(self._pieces.text(text) or '""' for text in texts)
            return f"({options}) {self._pieces.text(self._form.value_close)}"
        return self._free_text(_expressions(said, path))

    def _check_value(self, value: Any, text: str, types: frozenset[str], path: str) -> None:
        """Refuse a value whose text would be read as something else, or end early."""
        close = self._form.value_close.strip()
        is_text = types == {"string"} or value == json.loads(value_json(text, types))
        begins_data = self._form.has_cdata and text.strip().startswith(CDATA[0])
        if is_text and not begins_data and _ends_at(text, close) and self._pieces.is_plain(text):
            return
        where = f"properties.{path}"
        raise SchemaNotServed(
            f"{where}: expected values that can be told from this model's marks and from other "
            f"types, got {text!r:.60}",
            where,
        )

    def _free_text(self, expressions: list[str]) -> str:
        mark = self._form.value_close
        upper = f"V_{self._prefix.upper()}"
        texts = expressions or [ANYTHING]
        if self._pieces.special_id(mark.split()[0]) is not None:
            text = self._rule(upper, " & ".join(f"/{one}/" for one in texts))
            return f"{text} {self._pieces.text(mark)}"
        # The mark belongs to the expression: a text that may go on would swallow it otherwise.
        ended = [f"/({one}){escaped(mark)}/" for one in texts]
        unlike = [rf"~/{ANYTHING}{escaped(mark.strip())}(.|\n)+/"]
        if self._form.has_cdata:
            unlike.append(f"~/{escaped(CDATA[0])}{ANYTHING}/")
        self._rule(upper, " & ".join(ended + unlike))
        name = self._rule(f"{self._prefix}_text[lazy]", upper).removesuffix("[lazy]")
        if not self._form.has_cdata:
            return name
        held = self._rule(f"{self._prefix}_cdata[lazy]", f"/{ANYTHING}{escaped(CDATA[1])}/")
        held = held.removesuffix("[lazy]")
        return f"({name} | {quoted(CDATA[0])} {held} {self._pieces.text(mark)})"


def _check_name(form: ToolFormat, pieces: Pieces, name: str) -> None:
    """Refuse a name that could not be told from the marks around it."""
    closes = {form.key_close.rstrip(), (form.other_key_close or form.key_close).rstrip()}
    is_told = name and name == name.strip() and all(_ends_at(name, close) for close in closes)
    if not is_told or not pieces.is_plain(name):
        raise SchemaNotServed(
            f"properties.{name}: expected a name without white space around it and without this "
            f"model's marks, got {name!r:.60}",
            f"properties.{name}",
        )


def _ends_at(text: str, mark: str) -> bool:
    """Say whether a mark behind a text is the first one there."""
    return f"{text}{mark}".find(mark) == len(text)


def patterns_of(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield places of patterns in a tool's schema, and the expressions that they have become."""
    for name, value in schema.get("properties", {}).items():
        if isinstance(value, Mapping) and isinstance(value.get("pattern"), str):
            yield f"properties.{name}.pattern", whole_text(value["pattern"])


def _expressions(said: Mapping[str, Any], path: str) -> list[str]:
    """Return the expressions that a text must match, each of all of it: pattern and length."""
    found = []
    if isinstance(pattern := said.get("pattern"), str):
        try:
            found.append(whole_text(pattern))
        except ValueError as err:
            where = f"properties.{path}.pattern"
            raise SchemaNotServed(
                f"{where}: expected a whole regular expression, got {pattern!r:.60}: {err}",
                where,
            ) from err
    low, high = said.get("minLength", 0), said.get("maxLength")
    if low or high is not None:
        found.append(rf"(.|\n){{{low},{'' if high is None else high}}}")
    return found
