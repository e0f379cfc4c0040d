"""Reads a request body: size, encoding, shape and JSON are checked before anything is built."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import numpy as np

from radiance_core.server import web
from radiance_core.server.errors import ApiError, invalid, quote
from radiance_core.server.settings import ServerSettings

T = TypeVar("T")
MAX_INT_DIGITS = 20  # 2**64 has 20; every range is checked again by its field
MAX_VALUES = 2_000_000
MAX_CONTAINERS = 200_000
_INLINE_BYTES = 1 << 16
_OTHER = bytes(set(range(256)) - set(b'[]{},"'))
_DOUBTFUL_ESCAPE = re.compile(rb"\\u(?:[dD][89a-fA-F]|0000)")
_STEP = np.zeros(256, dtype=np.int8)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1
_SCAN_MARKS = 1 << 18
_QUOTE, _COMMA = b'",'


async def read_json(request: web.BaseRequest, settings: ServerSettings) -> dict[str, Any]:
    """Return the JSON object in a request's body.

    Raises: ``ApiError`` 415 for another type or any encoding, 413 past the size limit, 408 when it
    does not arrive in time, 400 for everything that is not one well-formed JSON object.
    """
    check_headers(request)
    data = await read(request, settings)
    if len(data) <= _INLINE_BYTES:
        return parse(data, settings)
    return await asyncio.to_thread(parse, data, settings)  # seconds, for millions of values


async def aside(request: web.BaseRequest, work: Callable[[], T]) -> T:
    """Return what ``work`` makes of a body, off the event loop when the body was large."""
    if (request.content_length or _INLINE_BYTES + 1) <= _INLINE_BYTES:
        return work()
    return await asyncio.to_thread(work)


def check_headers(request: web.BaseRequest) -> None:
    """Refuse a body by its headers alone; a compressed one is never unpacked."""
    if "Content-Encoding" in request.headers:
        raise ApiError(
            415,
            "Content-Encoding: expected a body as it is, got "
            f"{quote(request.headers['Content-Encoding'])}; send it uncompressed.",
            code="unsupported_content_encoding",
        )
    kind, _, options = request.headers.get("Content-Type", "").partition(";")
    kind = kind.strip().lower()
    charset = re.search(r"charset\s*=\s*\"?([\w-]+)", options.lower())
    is_json = kind == "application/json" or re.fullmatch(r"application/[\w.-]+\+json", kind)
    if not is_json or (charset and charset[1] not in {"utf-8", "utf8", "us-ascii"}):
        got = quote(request.headers.get("Content-Type", "none"))
        raise ApiError(
            415,
            f"Content-Type: expected application/json in UTF-8, got {got}.",
            code="unsupported_media_type",
        )


async def read(request: web.BaseRequest, settings: ServerSettings) -> bytes:
    """Return the body's bytes, counted while they come."""
    limit = settings.max_body_bytes
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    await _invite(request)
    chunks: list[bytes] = []
    size = 0
    deadline = time.monotonic() + settings.body_total_timeout_s
    while True:
        wait = min(settings.body_timeout_s, deadline - time.monotonic())
        try:
            async with asyncio.timeout(max(wait, 0)):
                chunk = await request.content.readany()
        except TimeoutError as err:
            raise ApiError(
                408, f"body: expected its next bytes, got none for {settings.body_timeout_s:g} s "
                "or not all of them in time; send it again.", code="body_timeout",
            ) from err  # fmt: skip
        except (web.RequestPayloadError, ValueError) as err:
            raise invalid("body: its transfer coding is broken or it ended early.") from err
        if not chunk:
            return b"".join(chunks)
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)


async def _invite(request: web.BaseRequest) -> None:
    """Tell a client that waits for it to send its body, now that its headers have passed."""
    expect = request.headers.get("Expect")
    if expect is None or request.version < web.HttpVersion11:
        return
    if expect.lower() != "100-continue":
        raise ApiError(417, f"Expect: expected 100-continue, got {quote(expect)}.")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # aiohttp takes a count above 0 for an answer that has begun


def parse(data: bytes, settings: ServerSettings) -> dict[str, Any]:
    """Return the object that ``data`` holds."""
    if not data.strip():
        raise invalid("body: expected a JSON object, got nothing.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as err:
        raise invalid(f"body: expected UTF-8, got a bad byte at offset {err.start}.") from err
    check_shape(data, settings.max_json_depth)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as err:
        raise invalid(
            f"body: expected JSON, got a mistake at line {err.lineno} column {err.colno}: "
            f"{err.msg}."
        ) from err
    except RecursionError as err:
        raise invalid("body: nested too deeply.") from err
    if _DOUBTFUL_ESCAPE.search(data):
        _check_text(value)
    if not isinstance(value, dict):
        raise invalid(f"body: expected a JSON object, got {_kind(value)}.")
    return value


def check_shape(data: bytes, max_depth: int) -> None:
    """Refuse a body that is too deep or has too many values, without building it.

    In time linear in the body: escapes are cut out, so that every quote left opens or closes a
    string, then running sums of quotes and of brackets outside strings give the depth. A string
    that is never closed hides its tail, which is harmless: the parser refuses such a body.
    """
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = data.translate(None, _OTHER)
    depth = num_quotes = num_values = num_containers = 0
    for start in range(0, len(marks), _SCAN_MARKS):
        codes = np.frombuffer(marks[start : start + _SCAN_MARKS], np.uint8)
        quotes = np.cumsum(codes == _QUOTE, dtype=np.int64) + num_quotes
        num_quotes = int(quotes[-1])
        codes = codes[quotes % 2 == 0]
        steps = _STEP[codes]
        num_values += int(np.count_nonzero(codes == _COMMA))
        num_containers += int(np.count_nonzero(steps == 1))
        if num_values > MAX_VALUES or num_containers > MAX_CONTAINERS:
            raise invalid(
                f"body: expected at most {MAX_VALUES} values in {MAX_CONTAINERS} objects and "
                "arrays, got more."
            )
        sums = np.cumsum(steps, dtype=np.int64)
        if depth + int(sums.max(initial=0)) > max_depth:
            raise invalid(f"body: expected nesting of at most {max_depth} levels, got more.")
        depth += int(sums[-1]) if len(sums) else 0


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        f"body: expected at most {limit} bytes, got more; the limit is --max-body-mib.",
        code="body_too_large",
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise invalid(f"body: expected each key once, got {quote(twice)} twice.")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_INT_DIGITS:
        raise invalid(f"body: expected integers within 64 bits, got one of {len(digits)} digits.")
    return int(digits)


def _number(text: str) -> float:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        raise invalid(f"body: expected a finite number, got {quote(text, 40)}.")
    return value


def _constant(name: str) -> NoReturn:
    raise invalid(f"body: expected a number that JSON has, got {name}.")


def _check_text(value: object) -> None:
    """Refuse text that is no Unicode, or that holds NUL, anywhere in a parsed value."""
    if isinstance(value, str):
        if "\0" in value:
            raise invalid("body: expected text, got a NUL character in a string.")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as err:
            raise invalid("body: expected Unicode text, got half of a surrogate pair.") from err
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key)
            _check_text(item)
    elif isinstance(value, list):
        for item in value:
            _check_text(item)


def _kind(value: object) -> str:
    names = {str: "a string", list: "an array", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
