"""Checks what the keywords of a schema hold, apart from the schemas inside it."""

import re
from collections.abc import Callable
from typing import Any, NoReturn

from radiance_core.constrain import keywords as kw
from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.limits import check_regex

LARGEST_BOUND = 2**53
LARGEST_COUNT = 2**31 - 1
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")

Refuse = Callable[[str], NoReturn]
"""Raises the error for the place at hand, given what was expected there."""


def check_value(key: str, item: Any, refuse: Refuse) -> None:
    """Refuse a value that its keyword cannot have, or that is not kept."""
    if key in kw.COUNTS:
        if not _is_count(item):
            refuse(f"expected a whole number from 0 to {LARGEST_COUNT}")
    elif key in kw.BOUNDS:
        _check_bound(key, item, refuse)
    else:
        _CHECKS[key](item, refuse)


def kind_of(value: object) -> str:
    """Return what JSON calls a value."""
    names = {str: "a string", list: "a list", dict: "an object", bool: "a boolean"}
    return names.get(type(value), "null" if value is None else "a number")


def _is_count(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= LARGEST_COUNT and value == int(value)


def _check_bound(key: str, item: Any, refuse: Refuse) -> None:
    if key.startswith("exclusive") and isinstance(item, bool):
        return  # as the fourth draft has it
    if isinstance(item, bool) or not isinstance(item, int | float):
        refuse(f"expected a number, got {kind_of(item)}")
    if abs(item) > LARGEST_BOUND:
        refuse("expected a number of at most 2^53, beyond which bounds are not kept")
    if key == "multipleOf" and item <= 0:
        refuse(f"expected a number above 0, got {item}")


def _check_pattern(item: Any, refuse: Refuse) -> None:
    if not isinstance(item, str):
        refuse(f"expected an expression as a string, got {kind_of(item)}")
    try:
        check_regex(item)
    except ConstraintError as err:
        refuse(str(err).removeprefix("regex: ").rstrip("."))


def _check_type(item: Any, refuse: Refuse) -> None:
    listed = item if isinstance(item, list) else [item]
    for name in listed:
        if not isinstance(name, str) or name not in kw.TYPES:
            refuse(f"expected one of {', '.join(sorted(kw.TYPES))}, got {name!r:.40}")
    if not listed:
        refuse("expected a type or a list of them, got an empty list")


def _check_format(item: Any, refuse: Refuse) -> None:
    if not isinstance(item, str) or item not in kw.FORMATS:
        known = ", ".join(sorted(kw.FORMATS))
        refuse(f"expected one of {known}, got {item!r:.40}; state a pattern instead")


def _check_enum(item: Any, refuse: Refuse) -> None:
    if not isinstance(item, list) or not item:
        refuse("expected a list of values, at least one")
    _check_writable(item, refuse)


def _check_required(item: Any, refuse: Refuse) -> None:
    if not isinstance(item, list) or not all(isinstance(name, str) for name in item):
        refuse("expected a list of names")
    _check_writable(item, refuse)


def _check_reference(item: Any, refuse: Refuse) -> None:
    if not isinstance(item, str):
        refuse(f"expected a reference as a string, got {kind_of(item)}")


def _check_writable(item: Any, refuse: Refuse) -> None:
    r"""Refuse texts that JSON writes with \u escapes: those could spell another's name."""
    if isinstance(item, str):
        if _CONTROL.search(item):
            refuse("expected text, got a control character in it")
    elif isinstance(item, list):
        for part in item:
            _check_writable(part, refuse)
    elif isinstance(item, dict):
        _check_writable([*item, *item.values()], refuse)
    elif isinstance(item, float) and item in {float("inf"), float("-inf")}:
        refuse("expected finite numbers")


_CHECKS: dict[str, Callable[[Any, Refuse], None]] = {
    "type": _check_type,
    "enum": _check_enum,
    "const": _check_writable,
    "required": _check_required,
    "pattern": _check_pattern,
    "format": _check_format,
    "$ref": _check_reference,
    "name in properties": _check_writable,
    "name in patternProperties": _check_pattern,
}
