"""What an operator may set about the HTTP server."""

from dataclasses import dataclass

MIB = 1 << 20
MOST_CHOICES = 128


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of the HTTP server; a default here is the default of its flag.

    Args:
        host: name or address to bind.
        port: TCP port; 0 lets the system choose.
        api_keys: accepted keys; empty means that no key is asked for.
        insecure: allow a bind beyond loopback without a key.
        served_model_names: names of the model, the first one is reported; empty: its own id.
        allowed_hosts: further values of the ``Host`` header; ``.example.org`` takes subdomains.
        cors_origins: origins of browser pages that may call; ``*`` is any.
        strict_requests: refuse every unknown field instead of naming it as ignored.
        max_body_bytes: largest request body.
        max_json_depth: deepest nesting of a request body.
        max_choices: answers that one request may ask for (prompts times ``n``).
        max_connections: open connections; past it the longest idle one is closed.
        header_timeout_s: time from the first byte of a request to the end of its headers.
        body_timeout_s: longest gap while a body arrives.
        body_total_timeout_s: time for a whole body.
        idle_timeout_s: time that a connection may stay open without a request.
        stall_timeout_s: time after which a client that reads nothing is cut off.
        stream_buffer_bytes: unsent text of one stream past which it stops asking for more.
        keepalive_s: gap after which a stream sends a comment.
        first_byte_s: time that a stream waits for its first token, or for a refusal to answer
            with a real status, before it sends its headers.
        drain_timeout_s: time that running requests get after SIGTERM.
        retry_after_s: what 429 and 503 tell clients to wait.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    insecure: bool = False
    served_model_names: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    strict_requests: bool = False
    max_body_bytes: int = 32 * MIB
    max_json_depth: int = 128
    max_choices: int = MOST_CHOICES
    max_connections: int = 1024
    header_timeout_s: float = 10.0
    body_timeout_s: float = 15.0
    body_total_timeout_s: float = 120.0
    idle_timeout_s: float = 75.0
    stall_timeout_s: float = 60.0
    stream_buffer_bytes: int = 256 * 1024
    keepalive_s: float = 15.0
    first_byte_s: float = 1.0
    drain_timeout_s: float = 30.0
    retry_after_s: float = 1.0
