"""Ports for servers that are not started at once, or go and come back."""

import random
import socket
from pathlib import Path

_GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST = 10_000


def lasting_port() -> int:
    """Return a TCP port that nothing has, and that the system gives to nobody by itself.

    One that it gives out for the asking may be any client's a moment later.
    """
    first = int(_GIVEN_OUT.read_text().split()[0]) if _GIVEN_OUT.exists() else 0
    ports = range(_LEAST, first) if first > 2 * _LEAST else range(_LEAST, 65_536)
    while True:
        port = random.choice(ports)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
