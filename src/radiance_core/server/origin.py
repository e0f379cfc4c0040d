"""Who may call from where: the Host header (DNS rebinding) and the Origin header (web pages)."""

import re
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from radiance_core.server import web
from radiance_core.server.errors import ApiError, quote
from radiance_core.server.ports import is_loopback
from radiance_core.server.settings import ServerSettings

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::\d{1,5})?")
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")
_ALLOWED_HEADERS = "authorization, content-type, x-api-key, x-request-id"
# Header names, as a browser lists them: tokens of RFC 9110 with commas between.
_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_ASKED_HEADERS = re.compile(rf"{_NAME}(?:[ \t]*,[ \t]*{_NAME})*")
_MAX_ASKED_CHARS = 1024
_EXPOSED = {
    "Access-Control-Expose-Headers": "X-Request-Id, X-Radiance-Ignored, Retry-After, "
    "openai-processing-ms, x-should-retry",
}


def is_local(request: web.BaseRequest) -> bool:
    """Say whether a request comes from this machine, and not through a proxy that runs on it."""
    if any(name in request.headers for name in _FORWARDED):
        return False
    peer = request.transport and request.transport.get_extra_info("peername")
    return isinstance(peer, tuple) and is_loopback(str(peer[0]))


def check_host(request: web.BaseRequest, settings: ServerSettings) -> None:
    """Refuse a request addressed to a name that is not this server's.

    Allowed are loopback names, the bound host, the address that the connection came in on, the
    machine's own name when bound beyond loopback, and what --allowed-host lists.
    """
    values = request.headers.getall("Host", [])
    match = _HOST.fullmatch(values[0]) if len(values) == 1 else None
    if match is None:
        got = quote(", ".join(values)) if values else "none"
        raise ApiError(400, f"Host: expected one host name, got {got}.", code="invalid_host")
    host = match[1].strip("[]").lower().rstrip(".")
    if not (is_loopback(host) or _listed(host, settings) or _is_own(host, request, settings)):
        raise ApiError(
            403,
            f"Host: {quote(host)} is not a name of this server; call it by its address, or "
            "start it with --allowed-host.",
            code="host_not_allowed",
        )


def _listed(host: str, settings: ServerSettings) -> bool:
    for allowed in settings.allowed_hosts:
        name = allowed.lower().rstrip(".")
        if host == name or (name.startswith(".") and host.endswith(name)):
            return True
    return False


def _is_own(host: str, request: web.BaseRequest, settings: ServerSettings) -> bool:
    if host == settings.host.strip("[]").lower().rstrip("."):
        return True
    transport = request.transport
    local = transport.get_extra_info("sockname") if transport is not None else None
    if local and host == str(local[0]).lower():
        return True
    return not is_loopback(settings.host) and host == socket.gethostname().lower()


def check_origin(request: web.BaseRequest, settings: ServerSettings) -> dict[str, str]:
    """Refuse a web page of another origin; return the CORS headers for one that is let in."""
    origin = request.headers.get("Origin")
    if origin is None:
        return {}
    if "*" in settings.cors_origins:
        return {"Access-Control-Allow-Origin": "*", **_EXPOSED}
    if origin in settings.cors_origins:
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin", **_EXPOSED}
    if _is_same(origin, request.headers.get("Host", "")):
        return {}
    raise ApiError(
        403,
        f"Origin: pages of {quote(origin)} may not call this server; allow it with --cors-origin.",
        code="origin_not_allowed",
    )


def _is_same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower()


def preflight(
    request: web.BaseRequest, granted: Mapping[str, str], headers: Mapping[str, str]
) -> web.Response | None:
    """Answer a browser's question whether it may call, for an origin that may.

    Args:
        request: the question.
        granted: CORS headers for its origin, empty for one that is not let in.
        headers: those of every answer.
    """
    asked = request.headers.get("Access-Control-Request-Method")
    if request.method != "OPTIONS" or asked is None or not granted:
        return None
    told = {
        "Access-Control-Allow-Methods": "GET, POST, DELETE",
        "Access-Control-Allow-Headers": _allowed_headers(request),
        "Access-Control-Max-Age": "600",
    }
    return web.Response(status=204, headers={**headers, **granted, **told})


def _allowed_headers(request: web.BaseRequest) -> str:
    """Return the headers that were asked for: clients send dozens of their own, of no meaning."""
    asked = ", ".join(request.headers.getall("Access-Control-Request-Headers", [])).strip()
    if len(asked) <= _MAX_ASKED_CHARS and _ASKED_HEADERS.fullmatch(asked):
        return asked
    return _ALLOWED_HEADERS
