"""Event streams whose events have names, which these dialects' clients tell them apart by."""

import msgspec

from radiance_core.server.sse import EventStream

_encode = msgspec.json.Encoder().encode


class NamedEvents(EventStream):
    """Events are named by their ``type``, and the last event says that it is the last."""

    def frame(self, event: object) -> bytes:
        """Return one event with its name."""
        assert isinstance(event, dict), "events of these dialects are made as objects"
        return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), _encode(event))

    async def done(self) -> None:
        """Say nothing."""


class PingedEvents(NamedEvents):
    """The same, kept alive by an event: some clients drop what has no name."""

    async def comment(self) -> None:
        """Send an event that clients pass over."""
        await self.send({"type": "ping"})
