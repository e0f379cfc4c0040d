"""Keys of a request's objects: their type, and those that nothing reads, which are named."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from radiance_core.server.errors import invalid, quote
from radiance_core.server.fields import check_number, ignored


@dataclass(frozen=True, slots=True)
class Shape:
    """The keys that an object, or each object of a list, may have.

    Args:
        keys: all of them.
        inner: what the objects under some of them may have.
        kinds: types of object that this is about; None for all.
    """

    keys: frozenset[str]
    inner: Mapping[str, "Shape"] = field(default_factory=dict)
    kinds: frozenset[str] | None = None

    def is_about(self, item: Mapping[str, Any]) -> bool:
        """Return whether an object is of a type that this says the keys of."""
        kind = item.get("type")
        return self.kinds is None or (isinstance(kind, str) and kind in self.kinds)


class UnknownKeys:
    """Gathers unknown keys of the objects of one request; each is named where it comes first.

    Args:
        strict: refuse every unknown key.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._seen: set[tuple[frozenset[str], str]] = set()
        self.paths: list[str] = []

    def note(self, item: Mapping[str, Any], known: frozenset[str], path: str) -> None:
        """Look through one object at ``path``; explicit null is absent.

        Raises: ``ApiError`` 400 for a near miss of a known key, with ``strict`` for any, and for
        more of them than would be named.
        """
        new = [
            key
            for key, value in item.items()
            if value is not None and key not in known and (known, key) not in self._seen
        ]
        if new:
            check_number([*self.paths, *new])
            self._seen.update((known, key) for key in new)
            self.paths += ignored(new, known, f"{path}.", self._strict)

    def sweep(self, value: object, shape: Shape, path: str) -> None:
        """Look through an object or a list of them, and the objects inside; see ``note``."""
        if isinstance(value, list):
            for place, item in enumerate(value):
                if isinstance(item, Mapping):
                    self.sweep(item, shape, f"{path}[{place}]")
        elif isinstance(value, Mapping) and shape.is_about(value):
            self.note(value, shape.keys, path)
            for key, inner in shape.inner.items():
                self.sweep(value.get(key), inner, f"{path}.{key}")


def only(known: Collection[str]) -> frozenset[str]:
    """Return the keys that an object of a request may have, with the type that every one has."""
    return frozenset({"type", *known})


def kind_of(item: Mapping[str, Any], path: str) -> str | None:
    """Return an object's type, None where it says none.

    Raises: ``ApiError`` 400 for one that is no string.
    """
    kind = item.get("type")
    if kind is not None and not isinstance(kind, str):
        raise invalid(f"{path}.type: expected a string, got {quote(kind)}.", f"{path}.type")
    return kind
