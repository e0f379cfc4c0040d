"""``/v1/embeddings``: refused, until a model with an embedding head is served."""

from typing import Any

import msgspec

from radiance_core.server import web
from radiance_core.server.body import read_json
from radiance_core.server.errors import ApiError
from radiance_core.server.exchange import Exchange
from radiance_core.server.requests import read_fields
from radiance_core.server.state import State


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """What is read of a body: whatever else it asks, there are no embeddings to give."""

    model: str | None = None


async def embeddings(exchange: Exchange, state: State) -> web.StreamResponse:
    """Say that the served model gives text, not vectors; repeating would not help."""
    state.current()
    body = await read_json(exchange.request, state.settings)
    known: dict[str, Any] = {"model": body.get("model")}
    name = state.named(read_fields(known, EmbeddingRequest).model).names[0]
    raise ApiError(
        501,
        f"embeddings: {name} has no embedding head and gives text only; serve a model that has "
        "one to get vectors.",
        code="embeddings_not_supported",
        headers={"x-should-retry": "false"},
    )
