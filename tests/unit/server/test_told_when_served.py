"""Who is told that a model is served may ask for it at once."""

import asyncio

from radiance_core.server.lifecycle import Server
from radiance_core.server.settings import ServerSettings


async def test_what_is_told_is_so(start):
    """When it is said that the model is served, it is, and not a moment before."""
    spare = await start()
    server = Server(ServerSettings(port=0), "0")
    seen = []

    async def load():
        seen.append(server.state.health().state)
        return spare.engine, spare.model

    def tell():
        seen.append(server.state.health().state)
        server.stop()

    async with asyncio.timeout(120):
        assert await server.run(load, tell) == 0
    assert seen == ["loading", "ready"]
