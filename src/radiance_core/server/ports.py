"""Binds the port before anything slow begins, and says who holds it when it is taken.

Imports next to nothing, since it is done before most of the rest is imported.
"""

import errno
import ipaddress
import socket

from radiance_abi.errors import ConfigurationError, RadianceError
from radiance_core.server.settings import ServerSettings


class BindError(RadianceError):
    """The address cannot be listened on."""


def is_loopback(host: str) -> bool:
    """Say whether a name or address can only be reached from this machine."""
    bare = host.strip("[]").lower().rstrip(".")
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def check_exposure(settings: ServerSettings) -> None:
    """Refuse to open a server without a key to other machines, unless that was said aloud."""
    if settings.insecure or settings.api_keys or is_loopback(settings.host):
        return
    raise ConfigurationError(
        f"--host {settings.host}: other machines could use this server, and no key is asked for. "
        "Set --api-key, bind to 127.0.0.1, or say --insecure if that is meant."
    )


def open_port(settings: ServerSettings) -> list[socket.socket]:
    """Return the sockets to serve on; clients can connect from now on, and wait to be answered.

    Raises: ``ConfigurationError`` for an open bind without a key, ``BindError`` for a port that
    cannot be had.
    """
    check_exposure(settings)
    return bind(settings.host, settings.port)


def bind(host: str, port: int, backlog: int = 1024) -> list[socket.socket]:
    """Return listening sockets, one for each address of ``host``, all on one port.

    Raises: ``BindError`` naming the port and, where the system tells, who holds it.
    """
    if not 0 <= port <= 65535:
        raise BindError(f"--port: expected a number from 0 to 65535, got {port}.")
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as err:
        raise BindError(
            f"--host {host}: expected a name or address of this machine: {err}."
        ) from err
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            chosen = sockets[0].getsockname()[1] if sockets else port
            place = (address[0], chosen, *address[2:])
            sockets.append(_listen(family, kind, protocol, place, backlog))
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets


def _listen(family: int, kind: int, protocol: int, address: tuple, backlog: int) -> socket.socket:  # type: ignore[type-arg]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setblocking(False)
        bound.bind(address)
        bound.listen(backlog)
    except OSError as err:
        bound.close()
        raise BindError(_reason(err, address[0], address[1])) from err
    return bound


def _reason(err: OSError, host: str, port: int) -> str:
    if err.errno == errno.EADDRINUSE:
        return f"port {port}: {host}:{port} is taken{_holder(port)}; stop it, or choose --port."
    if err.errno == errno.EACCES:
        return f"port {port}: this user may not listen on it; choose --port 1024 or above."
    return f"port {port}: cannot listen on {host}:{port}: {err.strerror}; check --host and --port."


def _holder(port: int) -> str:
    """Name the process that listens on a port, as far as the system lets us see."""
    import psutil

    try:
        for one in psutil.net_connections(kind="tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.pid:
                return f" by {psutil.Process(one.pid).name()} (process {one.pid})"
    except (psutil.Error, OSError):
        return ""
    return " by another process"
