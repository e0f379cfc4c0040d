"""JSON from model folders: bounded in size, no key twice, errors that name the file."""

import json
from pathlib import Path
from typing import Any

from radiance_core.model_files.errors import ModelFileError

MAX_JSON_BYTES = 1 << 25


class _DuplicateKeyError(ValueError):
    """A key occurs twice in one object."""


def parse_object(raw: bytes, file: Path, what: str) -> dict[str, Any]:
    """Return the JSON object in ``raw``.

    Raises:
        ModelFileError: too big, not UTF-8 or JSON, nested too deep, a key twice, or no object.
    """
    if len(raw) > MAX_JSON_BYTES:
        raise ModelFileError(
            file, f"expected {what} of at most {MAX_JSON_BYTES} bytes, got {len(raw)}"
        )
    try:
        value = json.loads(raw.decode(), object_pairs_hook=_unique)
    except RecursionError as err:
        raise ModelFileError(file, f"expected flat JSON in {what}, got it nested too deep") from err
    except ValueError as err:
        raise ModelFileError(file, f"expected valid JSON in {what}, got: {err}") from err
    if not isinstance(value, dict):
        raise ModelFileError(file, f"expected a JSON object in {what}, got {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _DuplicateKeyError(f"the key {twice!r} occurs twice")
    return result
