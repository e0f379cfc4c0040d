"""Reads a JSON schema strictly: what no mask can enforce is refused by its path, never dropped."""

import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn
from urllib.parse import unquote

from radiance_core.constrain import keywords as kw
from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.limits import check_json_shape
from radiance_core.constrain.schema_values import check_value, kind_of
from radiance_core.nearest import nearest

FORM = {
    # A small model that may write blanks without end does; 64 are enough to indent by.
    "whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,64}",
    # Without \u a key has one spelling, so that no free key can stand for a declared one.
    "json_allowed_escapes": 'nrbtf\\"',
}
"""How JSON may be written."""
MAX_IGNORED = 32
MAX_DIGITS = 400
_NEAR = 0.8


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema that can be enforced whole.

    Args:
        text: the schema as llguidance reads it, without what asks for nothing.
        ignored: paths of keywords that no dialect of JSON Schema gives a meaning.
    """

    text: str
    ignored: tuple[str, ...]


def read_schema(text: str, subject: str = "json_schema") -> Schema:
    """Read a schema.

    Raises:
        ConstraintError: no JSON, too large, malformed, or not enforceable; the path says where.
    """
    check_json_shape(text, subject)
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_int=_integer)
    except (ValueError, RecursionError) as err:
        raise ConstraintError(f"{subject}: expected a schema in JSON, got: {err}.") from err
    reading = _Reading(subject)
    clean = reading.schema(value, (), "#")
    reading.check_references()
    if clean is False:
        reading.refuse((), "expected a schema that something satisfies, got false")
    whole = {**({} if clean is True else clean), "x-guidance": FORM}
    return Schema(json.dumps(whole, ensure_ascii=False), tuple(reading.ignored))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name}, which is no number of JSON")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits, where {MAX_DIGITS} are the most")
    return int(digits)


@dataclass(slots=True)
class _Reading:
    """One pass over a schema; keeps where schemas are, and who refers to them."""

    subject: str
    ignored: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)
    references: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    root_id: str = ""

    def schema(self, value: Any, path: tuple[str, ...], place: str) -> Any:
        """Check one schema and return it without what asks for nothing."""
        self.places.add(place)
        if isinstance(value, bool):
            return value
        if not isinstance(value, dict):
            self.refuse(path, f"expected a schema, an object or a boolean, got {kind_of(value)}")
        clean: dict[str, Any] = {}
        for key, item in value.items():
            if any(_same(item, neutral) for neutral in kw.NEUTRAL.get(key, ())):
                continue
            here = (*path, key)
            if key in kw.REFUSED:
                self.refuse(here, kw.REFUSED[key])
            elif key in kw.ENFORCED:
                clean[key] = self._enforced(key, item, here, f"{place}/{_escaped(key)}")
            elif key in kw.NAMES:
                clean[key] = self._name(key, item, here)
            elif key not in kw.ANNOTATIONS:
                self._unknown(key, here)
        self._check_fewest(value, path)
        return clean

    def refuse(self, path: tuple[str, ...], why: str) -> NoReturn:
        """Raise the error for a place in the schema."""
        shown = "".join(part if part[:1] == "[" else f".{part[:80]}" for part in path)[1:]
        end = "" if why.endswith("?") else "."
        raise ConstraintError(f"{self.subject}: {shown or 'schema'}: {why}{end}", shown)

    def check_references(self) -> None:
        """Refuse references to what was not read as a schema."""
        for target, path in self.references:
            inside = target.removeprefix(self.root_id) if self.root_id else target
            if unquote(inside) not in self.places and inside not in self.places:
                self.refuse(
                    path,
                    f"expected a reference to a schema in this document, as #/$defs/name, got "
                    f"{target[:80]!r}",
                )

    def _enforced(self, key: str, item: Any, path: tuple[str, ...], place: str) -> Any:
        if key in kw.SCHEMA_MAPS:
            return self._map(key, item, path, place)
        if key in kw.SCHEMA_LISTS or (key == "items" and isinstance(item, list)):
            return self._list(key, item, path, place)
        if key in kw.SCHEMAS:
            return self.schema(item, path, place)
        check_value(key, item, partial(self.refuse, path))
        if key == "$ref":
            self.references.append((item, path))
        return int(item) if key in kw.COUNTS else item

    def _map(self, key: str, item: Any, path: tuple[str, ...], place: str) -> dict[str, Any]:
        if not isinstance(item, dict):
            self.refuse(path, f"expected an object of schemas, got {kind_of(item)}")
        for name in item:
            if key in {"patternProperties", "properties"}:
                check_value(f"name in {key}", name, partial(self.refuse, (*path, name)))
        return {
            name: self.schema(value, (*path, name), f"{place}/{_escaped(name)}")
            for name, value in item.items()
        }

    def _list(self, key: str, item: Any, path: tuple[str, ...], place: str) -> list[Any]:
        if not isinstance(item, list) or not (item or key == "items"):
            self.refuse(path, f"expected a list of schemas, got {kind_of(item)}")
        return [
            self.schema(value, (*path, f"[{n}]"), f"{place}/{n}") for n, value in enumerate(item)
        ]

    def _check_fewest(self, value: dict[str, Any], path: tuple[str, ...]) -> None:
        fewest = value.get("minProperties", 0)
        required = value.get("required", [])
        if fewest > len(set(required)) + 1:
            self.refuse(
                (*path, "minProperties"),
                f"expected at most one more than the {len(set(required))} required keys, got "
                f"{fewest}: a free key may come twice; require the keys by name",
            )

    def _name(self, key: str, item: Any, path: tuple[str, ...]) -> str:
        """Check a name, and return it as llguidance knows it."""
        if not isinstance(item, str):
            self.refuse(path, f"expected a string, got {kind_of(item)}")
        if key == "$anchor":
            self.places.add(f"#{item}")
        elif key == "$schema":
            known = kw.DIALECTS.get(item.rstrip("#").partition("://")[2])
            if known is None:
                self.refuse(path, f"expected draft 4, 6, 7, 2019-09 or 2020-12, got {item!r:.80}")
            return known
        elif len(path) > 1:
            self.refuse(path, "only the whole document may have a name; refer by #/$defs/name")
        else:
            self.root_id = item.rstrip("#")
        return item

    def _unknown(self, key: str, path: tuple[str, ...]) -> None:
        near = nearest(key[:40], kw.ENFORCED | kw.REFUSED.keys(), _NEAR)
        if near is not None:
            self.refuse(path, f"is no keyword of JSON Schema; did you mean {near!r}?")
        if len(self.ignored) == MAX_IGNORED:
            self.refuse(path, f"is no keyword of JSON Schema, and {MAX_IGNORED} others are not")
        self.ignored.append("".join(p if p[:1] == "[" else f".{p}" for p in path)[1:])


def _same(value: object, neutral: object) -> bool:
    return value == neutral and type(value) is type(neutral)


def _escaped(name: str) -> str:
    """Return a name as a JSON pointer writes it."""
    return name.replace("~", "~0").replace("/", "~1")
