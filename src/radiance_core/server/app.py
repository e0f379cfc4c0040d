"""The routes, and what every request passes on its way to one.

headers → host → origin → key → route → whether it is for this machine only → answer
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module

from radiance_core.log_events import get_logger
from radiance_core.server import access, auth, origin, web
from radiance_core.server.chat import chat_completions
from radiance_core.server.connection import Connection
from radiance_core.server.dashboard import PAGES
from radiance_core.server.errors import ApiError, from_engine, retry_after, scrub
from radiance_core.server.exchange import Exchange
from radiance_core.server.messages_errors import speller
from radiance_core.server.models import list_models, retrieve_model
from radiance_core.server.nearby import nearby
from radiance_core.server.state import State

MAX_HEADER_BYTES = 32 * 1024
Handler = Callable[[Exchange, State], Awaitable[web.StreamResponse]]
_log = get_logger("radiance.http")
_MODELS = "/models/"
_RESPONSE = re.compile(r"/responses/[^/]+(|/cancel|/input_items)")


async def health(exchange: Exchange, state: State) -> web.StreamResponse:
    """Say whether a request would be served; why not is for those with a key."""
    now = state.health()
    word = "ok" if now.ok else now.state
    shown: dict[str, object] = {"status": word}
    if exchange.trusted:
        shown["detail"] = scrub(now.detail)
        if state.serving is not None:
            shown["model"] = state.serving.names[0]
    if now.ok:
        return exchange.reply(shown)
    why = scrub(now.detail) if exchange.trusted else f"the server is not ready: {word}"
    error = ApiError(503, why, code=word)
    headers = retry_after(state.settings.retry_after_s)
    return exchange.reply({**shown, **error.body()}, 503, headers)


async def version(exchange: Exchange, state: State) -> web.StreamResponse:
    """Say the program's version."""
    return exchange.reply({"version": state.version})


def late(module: str, name: str) -> Handler:
    """Return a handler whose module is imported at its first request.

    Most servers are asked in one dialect; the others would be a fiftieth of every start.
    """

    async def handle(exchange: Exchange, state: State) -> web.StreamResponse:
        handler: Handler = getattr(import_module(f"radiance_core.server.{module}"), name)
        return await handler(exchange, state)

    return handle


_stored = late("responses", "stored")
ROUTES: dict[str, dict[str, Handler]] = {
    "/health": {"GET": health},
    "/ping": {"GET": health, "POST": health},
    "/version": {"GET": version},
    "/models": {"GET": list_models},
    "/chat/completions": {"POST": chat_completions},
    "/completions": {"POST": late("completions", "completions")},
    "/embeddings": {"POST": late("embeddings", "embeddings")},
    "/responses": {"POST": late("responses", "responses")},
    "/responses/input_tokens": {"POST": late("responses", "input_tokens")},
    "/messages": {"POST": late("messages", "messages")},
    "/messages/count_tokens": {"POST": late("messages", "count_tokens")},
    "/tokenize": {"POST": late("tokens", "tokenize")},
    "/detokenize": {"POST": late("tokens", "detokenize")},
    "/get_tokenizer_info": {"GET": late("inspection", "tokenizer_info")},
    "/load": {"GET": late("inspection", "load")},
    "/server_info": {"GET": late("inspection", "server_info")},
    "/stats": {"GET": late("inspection", "stats")},
    "/graph": {"GET": late("inspection", "graph")},
    "/sessions": {"GET": late("inspection", "sessions")},
    "/reset_prefix_cache": {"POST": late("inspection", "reset_prefix_cache")},
    "/metrics": {"GET": late("metrics", "metrics")},
}
# The page's files say nothing that is not in every copy of the program; what it asks for does.
OPEN = frozenset({"/health", "/ping", *PAGES})
INSIDE = frozenset({
    "/get_tokenizer_info", "/load", "/server_info", "/stats", "/graph", "/sessions",
    "/reset_prefix_cache", "/metrics", *PAGES,
})  # fmt: skip


_STORED: dict[str, tuple[str, dict[str, Handler]]] = {
    "": ("/responses/{id}", {"GET": _stored, "DELETE": _stored}),
    "/cancel": ("/responses/{id}/cancel", {"POST": _stored}),
    "/input_items": ("/responses/{id}/input_items", {"GET": _stored}),
}


def find(path: str) -> tuple[str, dict[str, Handler]] | None:
    """Return a route's name and its methods; all but the page are there with ``/v1`` too."""
    if path in PAGES:
        return path, PAGES[path]
    bare = path.removeprefix("/v1") if path.startswith("/v1/") else path
    if bare in ROUTES:
        return bare, ROUTES[bare]
    if bare.startswith(_MODELS) and len(bare) > len(_MODELS):
        card: dict[str, Handler] = {"GET": partial(retrieve_model, raw_id=bare[len(_MODELS) :])}
        return "/models/{id}", card
    if match := _RESPONSE.fullmatch(bare):
        return _STORED[match[1]]
    return None


class App:
    """Answers requests.

    Args:
        state: what is served.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._keys = auth.KeyRing(state.settings.api_keys)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; whatever goes wrong is an answer too."""
        exchange = Exchange.begin(request)
        exchange.spell = speller(request.rel_url.raw_path)
        connection = request.protocol
        assert isinstance(connection, Connection), "the listener makes its own connections"
        connection.begin()
        status = 499  # in the log only: the client left
        try:
            response = await self._answer(exchange)
            if self.state.phase == "draining":
                response.force_close()
            status = response.status
            return response
        finally:
            connection.end()
            self.state.counts.answered(exchange.route, status)
            is_gone = status == 499 or exchange.facts.get("client") == "gone"
            self.state.counts.client_disconnects += is_gone
            access.log(exchange, status)
            if self.state.trace is not None:
                serving = self.state.serving
                self.state.trace(exchange, status, serving.names[0] if serving else None)

    async def _answer(self, exchange: Exchange) -> web.StreamResponse:
        try:
            return await self._pass(exchange)
        except ApiError as err:
            if err.status == 500:
                self._log_failure(exchange, err)
            return exchange.fail(err)
        except asyncio.CancelledError:
            raise
        except Exception as err:  # the last line: an unforeseen error must not end the connection
            self._log_failure(exchange, err)
            return exchange.fail(from_engine(err, "body", self.state.settings.retry_after_s))

    async def _pass(self, exchange: Exchange) -> web.StreamResponse:
        request, settings = exchange.request, self.state.settings
        if sum(len(name) + len(value) for name, value in request.raw_headers) > MAX_HEADER_BYTES:
            raise ApiError(431, f"headers: expected at most {MAX_HEADER_BYTES} bytes, got more.")
        origin.check_host(request, settings)
        granted = origin.check_origin(request, settings)
        exchange.headers.update(granted)
        if (told := origin.preflight(request, granted, exchange.headers)) is not None:
            return told
        path = request.rel_url.raw_path
        found = find(path)
        exchange.trusted = self._keys.trusts(request)
        exchange.tenant = self._keys.tenant(request)
        if not exchange.trusted and (found is None or found[0] not in OPEN):
            raise auth.refusal(request)
        if found is None:
            hint = nearby(path, ROUTES)
            raise ApiError(
                404, f"Invalid URL ({request.method} {path[:200]}); {hint}", code="unknown_url"
            )  # fmt: skip
        exchange.route, methods = found
        exchange.called = f"/v1{found[0]}" if path.startswith("/v1/") else found[0]
        if found[0] in INSIDE and not self._keys and not origin.is_local(request):
            raise auth.not_local(found[0])
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            allowed = ", ".join(sorted(methods))
            raise ApiError(
                405,
                f"{request.method[:16]}: expected one of {allowed} here.",
                code="method_not_allowed",
                headers={"Allow": allowed},
            )
        return await handler(exchange, self.state)

    def _log_failure(self, exchange: Exchange, err: BaseException) -> None:
        cause = err.__cause__ if isinstance(err, ApiError) else err
        _log.error(
            "http_request_failed",
            request_id=exchange.request_id,
            route=exchange.route,
            error=str(err),
            exc_info=cause,
        )
