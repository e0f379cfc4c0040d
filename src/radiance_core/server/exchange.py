"""One request and what is known about it while it is answered."""

import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from radiance_core.engine.sampling import SamplingParams
from radiance_core.server import web
from radiance_core.server.errors import ApiError
from radiance_core.server.messages_errors import Speller, openai

REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def own_headers(request_id: str | None = None) -> dict[str, str]:
    """Return the headers of every answer; without an id of the client's with a new one."""
    minted = request_id or f"req_{secrets.token_hex(16)}"
    return {"X-Request-Id": minted, "Server": "radiance"}


@dataclass(slots=True)
class Exchange:
    """A request with its id, and the headers that every answer to it carries.

    Args:
        request: as aiohttp read it.
        request_id: the client's own when it is well formed, only ever echoed; else minted.
        tenant: who asks, by the digest of the key; empty where no key is asked for.
        trusted: the client showed a key, or none is asked for.
        route: name of the route that answers, for logs (paths are the client's words).
        spell: how errors are told on its path.
        called: the route as it was called, with ``/v1`` or without.
        facts: what the log says beside that.
        sampling: how the answer's tokens were drawn, once that is known.
    """

    request: web.BaseRequest
    request_id: str
    headers: dict[str, str] = field(default_factory=dict)
    tenant: str = ""
    trusted: bool = False
    route: str = "unknown"
    called: str = "unknown"
    spell: Speller = openai
    started: float = field(default_factory=time.monotonic)
    facts: dict[str, Any] = field(default_factory=dict)
    sampling: SamplingParams | None = None

    @classmethod
    def begin(cls, request: web.BaseRequest) -> "Exchange":
        """Take up a request."""
        asked = request.headers.get("X-Request-Id", "")
        headers = own_headers(asked if REQUEST_ID.fullmatch(asked) else None)
        return cls(request, headers["X-Request-Id"], headers)

    def elapsed_ms(self) -> float:
        """Milliseconds since the headers were read."""
        return (time.monotonic() - self.started) * 1000

    def reply(
        self, payload: object, status: int = 200, headers: dict[str, str] | None = None
    ) -> web.Response:
        """Return a JSON answer."""
        return self.send(msgspec.json.encode(payload), status, headers)

    def send(
        self,
        data: bytes,
        status: int = 200,
        headers: dict[str, str] | None = None,
        kind: str = "application/json",
    ) -> web.Response:
        """Return an answer that is encoded already; ``kind`` is its content type."""
        told = {
            **self.headers,
            "openai-processing-ms": str(round(self.elapsed_ms())),
            "Content-Type": kind,
            **(headers or {}),
        }
        return web.Response(body=data, status=status, headers=told)

    def fail(self, error: ApiError) -> web.Response:
        """Return an error as an answer."""
        status, body = self.spell(error, self.request_id)
        response = self.reply(body, status, error.headers)
        if error.status in {408, 413}:
            # The rest of the body is not wanted, and reading it to its end could take for ever.
            response.force_close()
        return response
