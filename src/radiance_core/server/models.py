"""``/v1/models``: what is served, under which names."""

from urllib.parse import unquote

import msgspec

from radiance_core.server import web
from radiance_core.server.errors import ApiError, quote
from radiance_core.server.exchange import Exchange
from radiance_core.server.state import Serving, State


class ModelCard(msgspec.Struct):
    """One name of the model; ``root`` is the name that answers report."""

    id: str
    created: int
    root: str
    max_model_len: int
    object: str = "model"
    owned_by: str = "radiance"


def _cards(serving: Serving) -> dict[str, ModelCard]:
    model, root = serving.model, serving.names[0]
    return {name: ModelCard(name, model.created, root, model.max_context) for name in serving.names}


async def list_models(exchange: Exchange, state: State) -> web.StreamResponse:
    """List the names of the model."""
    cards = _cards(state.current())
    return exchange.reply({"object": "list", "data": list(cards.values())})


async def retrieve_model(exchange: Exchange, state: State, raw_id: str) -> web.StreamResponse:
    """Return one name's card; the id may hold ``/`` and ``:``, percent-encoded or not."""
    cards = _cards(state.current())
    card = cards.get(raw_id) or cards.get(unquote(raw_id))
    if card is None:
        raise ApiError(
            404,
            f"model: {quote(unquote(raw_id))} does not exist here; this server has "
            f"{', '.join(cards)}.",
            param="model",
            code="model_not_found",
        )
    return exchange.reply(card)
