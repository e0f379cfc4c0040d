"""One HTTP exchange at a time with the server under test, in bytes that no client would send."""

import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; ``status`` 0 when the connection ended without an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float
    failure: str = ""

    def __str__(self) -> str:
        said = f"HTTP {self.status}" if self.status else self.failure
        return f"{said} after {self.seconds:.2f} s"

    @property
    def decoded(self) -> dict[str, Any]:
        """The body as an object, empty when it is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def error(self) -> dict[str, Any]:
        """The error object, empty when there is none."""
        found = self.decoded.get("error")
        return found if isinstance(found, dict) else {}

    @property
    def text(self) -> str:
        """The text of the first choice of a chat or a completion."""
        choices = self.decoded.get("choices") or [{}]
        first = choices[0]
        return str((first.get("message") or {}).get("content") or first.get("text") or "")


class Client:
    """Speaks HTTP/1.1 to one address; ``key`` goes into every request."""

    def __init__(self, url: str, key: str | None = None, timeout: float = 60.0) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.prefix = parts.path.rstrip("/")
        self.key, self.timeout = key, timeout

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Send a request as it is and read the whole answer."""
        start = time.monotonic()
        connection = http.client.HTTPConnection(self.host, self.port, timeout or self.timeout)
        try:
            self._begin(connection, method, path, body, headers or {})
            reply = connection.getresponse()
            answer = (reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
            return Answer(*answer, time.monotonic() - start)
        except (OSError, http.client.HTTPException) as error:
            said = f"{type(error).__name__}: {error}".removesuffix(": ")
            return Answer(0, {}, b"", time.monotonic() - start, said)
        finally:
            connection.close()

    def get(self, path: str, timeout: float | None = None) -> Answer:
        """Get a path."""
        return self.send("GET", path, timeout=timeout)

    def post(self, path: str, body: object, timeout: float | None = None) -> Answer:
        """Post JSON: bytes as they are, anything else encoded."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", path, data, {"content-type": JSON}, timeout)

    @contextmanager
    def stream(self, body: Mapping[str, Any], timeout: float = 120.0) -> Iterator["Stream"]:
        """Open a streamed chat; closing it early is what a client that leaves does."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout)
        try:
            data = json.dumps({**body, "stream": True}).encode()
            self._begin(connection, "POST", CHAT, data, {"content-type": JSON})
            yield Stream(connection)
        finally:
            connection.close()

    @contextmanager
    def socket(self, timeout: float = 30.0) -> Iterator[socket.socket]:
        """Open a bare connection."""
        with socket.create_connection((self.host, self.port), timeout) as bare:
            yield bare

    def _begin(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> None:
        names = {name.lower() for name in headers}
        connection.putrequest(
            method, self.prefix + path, skip_host="host" in names, skip_accept_encoding=True
        )
        sent = {**({"authorization": f"Bearer {self.key}"} if self.key else {}), **headers}
        if body is not None:
            sent.setdefault("content-length", str(len(body)))
        for name, value in sent.items():
            connection.putheader(name, value)
        try:
            connection.endheaders(body)
        except (BrokenPipeError, ConnectionResetError):
            # It was refused before all was sent; the answer may lie there already.
            return


class Stream:
    """The events of one streamed answer."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._reply = connection.getresponse()
        self.status = self._reply.status

    def events(self) -> Iterator[str]:
        """Yield the data of each event, ``[DONE]`` too, until the connection ends or breaks."""
        try:
            for line in self._reply:
                if line.startswith(b"data:"):
                    yield line[5:].strip().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            yield json.dumps({"broken": f"{type(error).__name__}: {error}"})

    def skip(self, count: int) -> int:
        """Read up to ``count`` events; return how many came."""
        return sum(1 for _ in zip(range(count), self.events(), strict=False))
