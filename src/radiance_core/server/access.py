"""The access log: one event a request, with what operators ask about it and no text of it."""

from radiance_core.log_events import get_logger
from radiance_core.server.exchange import Exchange
from radiance_core.server.generation import Generation

_log = get_logger("radiance.http")
PROBED = frozenset({"/health", "/ping"})
MOST_PATH_CHARS = 200
POLLED = frozenset({"/load", "/metrics", "/sessions", "/stats"})


def note(exchange: Exchange, generation: Generation) -> None:
    """Keep of a generation that has ended, however it did, what the log says about it.

    Times are from the request's headers on. What a route has noted itself stays.
    """
    facts = exchange.facts
    exchange.sampling = generation.choices[0].request.sampling
    # The name under which /sessions lists it; of several choices the first.
    facts.setdefault("sequence", generation.choices[0].request.request_id)
    if generation.first_at:
        first = min(generation.first_at.values()) - exchange.started
        facts.setdefault("ttft_ms", round(first * 1000, 1))
    if len(generation.last) < len(generation.choices):
        return
    usage = generation.usage()
    reasons = {last.finish_reason for last in generation.last.values() if last.finish_reason}
    queued = max(last.queued_s for last in generation.last.values())
    facts.setdefault("queued_ms", round(queued * 1000, 1))
    facts.setdefault("prompt_tokens", usage.prompt_tokens)
    facts.setdefault("completion_tokens", usage.completion_tokens)
    facts.setdefault("cached_tokens", usage.prompt_tokens_details.cached_tokens)
    facts.setdefault("finish_reason", ",".join(sorted(reasons)))


def log(exchange: Exchange, status: int) -> None:
    """Write the event; probes say nothing, and what is polled is for those who debug."""
    route = exchange.route
    if route in PROBED:
        return
    seen = route in POLLED or route == "/" or route.startswith("/dashboard")
    tell = _log.debug if seen and status < 400 else _log.info
    tell(
        "http_request",
        method=exchange.request.method,
        route=route,
        path=ascii(exchange.request.rel_url.raw_path[:MOST_PATH_CHARS])[1:-1],
        status=status,
        duration_ms=round(exchange.elapsed_ms(), 1),
        request_id=exchange.request_id,
        **exchange.facts,
    )
