"""HTTP itself: hosts, origins, content types, methods, paths, headers, clients that dawdle."""

import contextlib
import gzip
import json
import socket
import time

from probes.exchange import CHAT, JSON, Answer
from probes.refusals import refused
from probes.table import Probe, Seen
from probes.target import Target

DAWDLE_LIMIT_S = 20.0
DAWDLERS = 100
_EVIL = "http://evil.example"


def _post(target: Target, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return target.client.send("POST", CHAT, json.dumps(target.chat()).encode(), named)


def evil_host(target: Target) -> Seen:
    """Call by a name that is not the server's, as a rebound DNS name does."""
    return refused(_post(target, content_type=JSON, host="evil.example"), 403, 421)


def evil_origin(target: Target) -> Seen:
    """Call as a page of another site does."""
    answer = _post(target, content_type=JSON, origin=_EVIL)
    seen = refused(answer, 403)
    allowed = answer.headers.get("access-control-allow-origin")
    if allowed is None:
        return seen
    return Seen(False, f"{seen.text}; Access-Control-Allow-Origin: {allowed}")


def plain_text(target: Target) -> Seen:
    """Post JSON as text/plain, for which browsers ask no leave."""
    with_origin = refused(_post(target, content_type="text/plain", origin=_EVIL), 403, 415)
    without = refused(_post(target, content_type="text/plain"), 415)
    return Seen(bool(with_origin.ok and without.ok), f"{with_origin.text}; {without.text}")


def compressed(target: Target) -> Seen:
    """Send a compressed body, of which nobody knows how large it becomes."""
    body = gzip.compress(json.dumps(target.chat()).encode())
    headers = {"content-type": JSON, "content-encoding": "gzip"}
    return refused(target.client.send("POST", CHAT, body, headers), 415)


def wrong_method(target: Target) -> Seen:
    """Get what is only posted to."""
    answer = target.client.get(CHAT)
    seen = refused(answer, 405)
    if "allow" in answer.headers:
        return seen
    return Seen(False, f"{seen.text}; no Allow header")


def unknown_path(target: Target) -> Seen:
    """Ask for a route that does not exist."""
    return refused(target.client.post("/v1/no/such/route", {}), 404)


def unknown_model(target: Target) -> Seen:
    """Ask for a model that is not served."""
    answer = target.client.post(CHAT, target.chat() | {"model": "no-such-model"})
    return refused(answer, 404)


def large_headers(target: Target) -> Seen:
    """Send one header of 64 KiB, and 2,000 small ones."""
    large = target.client.send("GET", "/v1/models", headers={"x-large": "a" * 65536})
    many = target.client.send("GET", "/v1/models", headers={f"x-{i}": "b" for i in range(2000)})
    # The server's parser may refuse before there is a request to answer in JSON.
    good = all(answer.status in (400, 431) for answer in (large, many))
    return Seen(good, f"64 KiB: {large}; 2,000: {many}")


def dawdling(target: Target) -> Seen:
    """Open 100 connections whose headers never end, and see who is served and who is closed."""
    with contextlib.ExitStack() as stack:
        bare = [stack.enter_context(target.client.socket()) for _ in range(DAWDLERS)]
        start = time.monotonic()
        for one in bare:
            one.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: {target.client.host}\r\nX-A: ".encode())
        served = target.canary(timeout=30)
        closed: dict[int, float] = {}
        while len(closed) < len(bare) and time.monotonic() - start < DAWDLE_LIMIT_S:
            for i, one in enumerate(bare):
                if i not in closed and _is_closed(one):
                    closed[i] = time.monotonic() - start
            time.sleep(0.25)
    when = (
        f"first {min(closed.values()):.1f} s, last {max(closed.values()):.1f} s" if closed else ""
    )
    text = f"a chat beside them got {served}; {len(closed)} of {DAWDLERS} closed {when}".strip()
    return Seen(served.status == 200 and len(closed) == DAWDLERS, text)


def _is_closed(one: socket.socket) -> bool:
    """Send one more byte of the endless header; return whether the server has gone away."""
    one.setblocking(False)
    try:
        one.send(b"a")
        # An answer such as 408 comes before the end.
        while one.recv(4096):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


PROBES = [
    Probe("Host: evil.example", "403 or 421", evil_host),
    Probe(f"Origin: {_EVIL}", "403, no Access-Control-Allow-Origin", evil_origin),
    Probe("cross-origin POST as text/plain", "415, or 403", plain_text),
    Probe("Content-Encoding: gzip on a request", "415", compressed),
    Probe("GET on a POST route", "405 with Allow", wrong_method),
    Probe("unknown path", "404 with an error object", unknown_path),
    Probe("unknown model", "404", unknown_model),
    Probe("headers too large", "431 or 400", large_headers),
    Probe(
        f"{DAWDLERS} connections that send a header a byte at a time",
        f"others are served, all closed within {DAWDLE_LIMIT_S:.0f} s",
        dawdling,
    ),
]
