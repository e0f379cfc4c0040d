"""Server-sent events: framing, keep-alive comments, and a client that does not read."""

import asyncio

import msgspec

from radiance_core.server import web
from radiance_core.server.exchange import Exchange

_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # a proxy that gathers a stream defeats it
}


class ClientGone(Exception):  # noqa: N818
    """The client closed the connection, or has read nothing for too long."""


class EventStream:
    """One event stream to one client.

    Args:
        exchange: the request that it answers.
        stall_timeout_s: time that a write may wait for the client to read.
    """

    def __init__(self, exchange: Exchange, stall_timeout_s: float) -> None:
        self._exchange = exchange
        self._stall_timeout_s = stall_timeout_s
        self._encoder = msgspec.json.Encoder()
        self.response = web.StreamResponse(headers={**exchange.headers, **_HEADERS})
        self.response.content_type = "text/event-stream"
        self.response.charset = "utf-8"

    async def open(self) -> None:
        """Send the headers."""
        try:
            await self.response.prepare(self._exchange.request)
        except (web.ClientConnectionResetError, ConnectionError) as err:
            raise ClientGone from err

    async def send(self, *events: object) -> None:
        """Send events, in one write; none is no write."""
        if events:
            await self._write(b"".join(self.frame(event) for event in events))

    async def comment(self) -> None:
        """Send a line that clients skip, so that nobody in between thinks the stream dead."""
        await self._write(b": keep-alive\n\n")

    async def done(self) -> None:
        """Say that the stream is whole."""
        await self._write(b"data: [DONE]\n\n")

    async def fail(self, *events: object) -> None:
        """Say what went wrong and close; without [DONE], which would look like success."""
        self.response.force_close()
        await self.send(*events)

    def cut(self) -> None:
        """Drop the connection with whatever the client has not read."""
        transport = self._exchange.request.transport
        if transport is not None:
            transport.abort()

    def frame(self, event: object) -> bytes:
        """Return one event as it is written."""
        return b"data: " + self._encoder.encode(event) + b"\n\n"

    async def _write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._stall_timeout_s):
                await self.response.write(data)
        except TimeoutError as err:
            self.cut()
            raise ClientGone from err
        except (web.ClientConnectionResetError, ConnectionError, RuntimeError) as err:
            # aiohttp has a RuntimeError for a write after its own end of a lost connection.
            raise ClientGone from err
