"""Connections: how many, how slow, how idle, and requests that are no HTTP."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from radiance_core.log_events import get_logger
from radiance_core.server import web
from radiance_core.server.errors import ApiError, internal
from radiance_core.server.exchange import own_headers
from radiance_core.server.settings import ServerSettings

HEADERS_WHILE_DRAINING_S = 1.0
SWEEP_S = 0.5
MAX_LINE_BYTES = 8190
MAX_HEADERS = 100
# aiohttp has its own idle timer, which cannot tell idle from unread; ours decides, so its is long.
_NEVER_S = 1e6


_log = get_logger("radiance.http")


class Connection(web.RequestHandler):
    """One client's connection, with the times that decide whether it may stay.

    Args:
        server: the server that it belongs to.
        options: what aiohttp's own protocol takes.
    """

    __slots__ = ("_first_byte_at", "_server", "_unsent", "_wire", "busy", "quiet_since")

    def __init__(self, server: "Listener", **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self._wire: asyncio.Transport | None = None
        self._first_byte_at: float | None = None
        self._unsent = 0
        self.busy = False
        self.quiet_since = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let a connection in, in place of the longest idle one when all places are taken."""
        assert isinstance(transport, asyncio.Transport), "only stream sockets are listened on"
        self._wire = transport
        if self._server.admit(self):
            super().connection_made(transport)
            return
        self.close()
        transport.write(_raw_refusal(self._server.settings.retry_after_s))
        transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget a connection."""
        self._server.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Note when a request began to arrive."""
        if not self.busy and self._first_byte_at is None:
            self._first_byte_at = time.monotonic()
        super().data_received(data)

    def begin(self) -> None:
        """Note that a request's headers are whole and that it is being answered."""
        self.busy = True
        self._first_byte_at = None

    def end(self) -> None:
        """Note that a request was answered, though its answer may not have been read yet."""
        self.busy = False
        self._unsent = 0
        self.quiet_since = time.monotonic()

    def is_idle(self) -> bool:
        """Say whether nothing is lost when this connection goes."""
        return not self.busy and self._first_byte_at is None and self._num_unsent() == 0

    def is_worth_waiting_for(self) -> bool:
        """Say whether a server that stops should wait: for an answer, or headers still coming in.

        Who takes longer over the headers than others over a request is not waited for.
        """
        if self.busy or self._num_unsent() > 0:
            return True
        began = self._first_byte_at
        return began is not None and time.monotonic() - began < HEADERS_WHILE_DRAINING_S

    def abort(self) -> None:
        """Drop the connection with whatever was not sent."""
        if self._wire is not None:
            self._wire.abort()

    def check_times(self, now: float) -> None:
        """Drop the connection when a client takes too long over what it does."""
        settings = self._server.settings
        if self.busy:
            return  # reading a body and writing a stream have limits of their own
        unsent = self._num_unsent()
        if 0 < unsent < self._unsent or (unsent and not self._unsent):
            self.quiet_since = now
        self._unsent = unsent
        if unsent:
            limit, since = settings.stall_timeout_s, self.quiet_since
        elif self._first_byte_at is not None:
            limit, since = settings.header_timeout_s, self._first_byte_at
        else:
            limit, since = settings.idle_timeout_s, self.quiet_since
        if now - since > limit:
            self.abort()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 (aiohttp's signature)
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 (it may quote the request)
    ) -> web.StreamResponse:
        """Answer what could not be read as HTTP in the same form as every other error."""
        error = (
            _misread(exc) if status < 500 else internal("an unexpected error ended this request")
        )
        headers = own_headers()
        _log.info(
            "http_request_unread", status=error.status, error=error.message,
            request_id=headers["X-Request-Id"],
        )  # fmt: skip
        response = web.Response(
            body=error.encoded(),
            status=error.status,
            content_type="application/json",
            headers={**headers, **error.headers},
        )
        response.force_close()
        return response

    def _num_unsent(self) -> int:
        return self._wire.get_write_buffer_size() if self._wire is not None else 0


class Listener(web.Server):
    """Makes connections, counts them and watches their times.

    Args:
        handler: answers one request.
        settings: limits and times.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        settings: ServerSettings,
    ) -> None:
        super().__init__(handler, handler_cancellation=True)
        self.settings = settings
        self.open: set[Connection] = set()
        self._loop_ = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None

    def __call__(self) -> Connection:
        """Make the protocol of a new connection."""
        return Connection(
            self,
            loop=self._loop_,
            access_log=None,
            keepalive_timeout=_NEVER_S,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            max_headers=MAX_HEADERS,
            lingering_time=5.0,
            auto_decompress=False,
        )

    def admit(self, connection: Connection) -> bool:
        """Count a connection in; false when there is no place, even by closing an idle one."""
        if len(self.open) >= self.settings.max_connections:
            idle = [other for other in self.open if other.is_idle()]
            if not idle:
                return False
            oldest = min(idle, key=lambda other: other.quiet_since)
            self.open.discard(oldest)
            oldest.abort()
        self.open.add(connection)
        if self._sweep is None:
            self._sweep = self._loop_.call_later(SWEEP_S, self._check_all)
        return True

    def forget(self, connection: Connection) -> None:
        """Count a connection out."""
        self.open.discard(connection)

    def close_idle(self) -> None:
        """Close the connections that nothing is being answered on."""
        for connection in list(self.open):
            if connection.is_idle():
                connection.abort()

    def abort_all(self) -> None:
        """Drop every connection."""
        for connection in list(self.open):
            connection.abort()

    def stop_watching(self) -> None:
        """Stop the timer."""
        if self._sweep is not None:
            self._sweep.cancel()

    def _check_all(self) -> None:
        self._sweep = None
        now = time.monotonic()
        for connection in list(self.open):
            connection.check_times(now)
        if self.open:
            self._sweep = self._loop_.call_later(SWEEP_S, self._check_all)


def _misread(exc: BaseException | None) -> ApiError:
    """Return what a client hears of a request that is not HTTP as it is read here."""
    match exc:
        case web.http_exceptions.LineTooLong():
            text = f"request: expected lines of at most {MAX_LINE_BYTES} bytes, got a longer one."
            return ApiError(431, text, code="line_too_long")
        case web.http_exceptions.BadHttpMessage() if "Too many headers" in exc.message:
            text = f"headers: expected at most {MAX_HEADERS}, got more."
            return ApiError(431, text, code="too_many_headers")
        case web.http_exceptions.BadStatusLine():
            text = "request: expected a line such as 'GET /health HTTP/1.1', got something else."
            return ApiError(400, text, code="malformed_request_line")
    text = (
        "request: expected HTTP/1.1 with one Host, no header twice that says how it is read, and "
        "no control characters, got something else."
    )
    return ApiError(400, text, code="malformed_request")


def _raw_refusal(retry_after_s: float) -> bytes:
    error = ApiError(
        503, "server: too many open connections; close some, or try again.",
        code="too_many_connections",
    )  # fmt: skip
    body = error.encoded()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        + "".join(f"{name}: {value}\r\n" for name, value in own_headers().items())
        + f"Content-Length: {len(body)}\r\nRetry-After: {max(1, round(retry_after_s))}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
