"""A server's life around its event loop: answer while the model loads, serve, end."""

import asyncio
import socket
from typing import TYPE_CHECKING

from radiance_core.build import Plan
from radiance_core.cli.beside import Beside
from radiance_core.cli.description import describe, describe_graph
from radiance_core.cli.loading import Loaded
from radiance_core.cli.told import tell_address
from radiance_core.config import Config
from radiance_core.discover import core_version
from radiance_core.engine.interface import Engine, TextModel
from radiance_core.server.lifecycle import Server
from radiance_core.server.settings import ServerSettings

if TYPE_CHECKING:
    from radiance_core.cli.live import LiveView
    from radiance_core.server.tracing import Tracing


async def run_server(
    config: Config,
    settings: ServerSettings,
    sockets: list[socket.socket],
    work: Beside[tuple[Loaded, Plan]],
    tracing: "Tracing | None",
) -> tuple[int, bool]:
    """Return the exit status, and whether everything that was begun has ended."""
    server = Server(settings, core_version(), sockets)
    server.state.trace = None if tracing is None else tracing.record
    live = _live(server) if config.flag("live") else None
    loaded: Loaded | None = None

    async def load() -> tuple[Engine, TextModel]:
        nonlocal loaded
        made, plan = await asyncio.wrap_future(work.result)
        loaded = made
        server.describe(describe(plan, config), describe_graph(plan))
        return made.engine, made.model

    def tell() -> None:
        # Whoever reads the address may ask there at once.
        tell_address(server.url, keyed=bool(config.names("api-key")))
        if live is not None:
            live.start()

    try:
        status = await server.run(load, tell)
    finally:
        if live is not None:
            await asyncio.to_thread(live.stop)
        is_closed = loaded is None or await asyncio.to_thread(loaded.close)
    return status, is_closed


def _live(server: Server) -> "LiveView":
    from radiance_core.cli.live import LiveView

    return LiveView(server)
