"""The page for people: a few files, sent as they are under a policy that runs nothing else.

The files need no key, since they say nothing; what they ask for does.
"""

import hashlib
from collections.abc import Awaitable, Callable
from functools import cache, partial
from importlib import resources

from radiance_core.server import web
from radiance_core.server.exchange import Exchange
from radiance_core.server.state import State

_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
ASSETS = (
    "index.html", "style.css", "icon.svg", "main.js", "answer.js", "api.js", "chart.js", "chat.js",
    "events.js", "graph.js", "key.js", "overview.js", "rates.js", "sessions.js", "tabs.js",
    "theme.js", "view.js",
)  # fmt: skip
"""Everything that is sent; a request's path is looked up here and never in a folder."""

_HEADERS = {
    # Neither scripts nor styles inside the page, and nothing from or to another host.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}


async def send_asset(exchange: Exchange, _state: State, name: str) -> web.StreamResponse:
    """Send one of the page's files, or nothing but its tag to who has it already."""
    data, tag = asset(name)
    headers = {**_HEADERS, "ETag": tag}
    kind = _KINDS[name.rpartition(".")[2]]
    if exchange.request.headers.get("If-None-Match") == tag:
        return exchange.send(b"", 304, headers, kind)
    return exchange.send(data, headers=headers, kind=kind)


@cache
def asset(name: str) -> tuple[bytes, str]:
    """Return a file of the page and its tag; read once."""
    data = (resources.files(__package__) / "page" / name).read_bytes()
    return data, f'"{hashlib.sha256(data).hexdigest()[:20]}"'


PAGES: dict[str, dict[str, Callable[..., Awaitable[web.StreamResponse]]]] = {
    "/": {"GET": partial(send_asset, name="index.html")},
    "/dashboard": {"GET": partial(send_asset, name="index.html")},
    **{f"/dashboard/{name}": {"GET": partial(send_asset, name=name)} for name in ASSETS},
}
"""Paths of the page, which have no second form under ``/v1``."""
