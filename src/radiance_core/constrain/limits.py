"""What a constraint may come to before anything native sees it; each check is linear and flat."""

import re

from radiance_core.constrain.errors import ConstraintError

MAX_TEXT_BYTES = 1 << 20
MAX_REGEX_CHARS = 32 << 10
MAX_DEPTH = 64
MAX_NODES = 50_000
MAX_CHOICES = 10_000
MAX_CHOICES_CHARS = 256 << 10

# A string that never ends is taken to the end, and nothing is tried twice: linear in any text.
_JSON_MARKS = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]|,', re.DOTALL)
_VERBOSE = re.compile(r"\\.|(\(\?[a-zA-Z]*x)", re.DOTALL)
_REGEX_MARKS = re.compile(r"\\.|[()\[\]]", re.DOTALL)


def check_bytes(kind: str, text: str) -> None:
    """Refuse a text that is no Unicode or longer than any constraint may be."""
    if len(text) <= MAX_TEXT_BYTES:
        try:
            size = len(text.encode())
        except UnicodeEncodeError as err:
            raise ConstraintError(
                f"{kind}: expected Unicode text, got half of a surrogate pair at {err.start}."
            ) from err
        if size <= MAX_TEXT_BYTES:
            return
    raise ConstraintError(f"{kind}: expected at most {MAX_TEXT_BYTES} bytes, got more; shorten it.")


def check_json_shape(text: str, subject: str) -> None:
    """Refuse JSON that is too deep or has too many values, without building it."""
    depth = nodes = 0
    for mark in _JSON_MARKS.finditer(text):
        first = mark[0][0]
        if first in "[{":
            depth += 1
            nodes += 1
        elif first in "]}":
            depth -= 1
        elif first == ",":
            nodes += 1
        if depth > MAX_DEPTH:
            raise too_deep(subject)
        if nodes > MAX_NODES:
            raise ConstraintError(
                f"{subject}: expected at most {MAX_NODES} values, got more; split or shorten it."
            )


def check_regex(regex: str, subject: str = "regex") -> None:
    """Refuse an expression that is too long, too deep, or that llguidance takes for another one.

    It leaves a last lone backslash out, and makes the ends of lines characters, also where the
    flag x says that they are none and end comments.
    """
    if len(regex) > MAX_REGEX_CHARS:
        raise ConstraintError(
            f"{subject}: expected at most {MAX_REGEX_CHARS} characters, got {len(regex)}; "
            "shorten it."
        )
    if (len(regex) - len(regex.rstrip("\\"))) % 2:
        raise ConstraintError(
            f"{subject}: expected a character after the last backslash, got the end; "
            "write two backslashes to mean one."
        )
    if "\n" in regex and any(found[1] for found in _VERBOSE.finditer(regex)):
        raise ConstraintError(
            f"{subject}: expected one line under the flag x, got more; write it without the flag."
        )
    depth = 0
    for mark in _REGEX_MARKS.finditer(regex):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(mark[0], 0)
        if depth > MAX_DEPTH:
            raise too_deep(subject)


def too_deep(subject: str, where: str = "") -> ConstraintError:
    """Return the error for more nesting than may be."""
    return ConstraintError(
        f"{subject}: expected nesting of at most {MAX_DEPTH} levels, got more{where}; flatten it."
    )
