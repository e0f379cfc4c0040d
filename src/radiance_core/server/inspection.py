"""Looks into the server: its vocabulary, its load, how it was built, what it counts and runs."""

import asyncio
import time
from dataclasses import asdict

from radiance_core.log_events import get_logger
from radiance_core.server import fields, web
from radiance_core.server.body import read_json
from radiance_core.server.counts import Histogram
from radiance_core.server.errors import ApiError
from radiance_core.server.exchange import Exchange
from radiance_core.server.extension import name_ignored
from radiance_core.server.state import State

_log = get_logger("radiance.http")


async def tokenizer_info(exchange: Exchange, state: State) -> web.StreamResponse:
    """Say what the model's vocabulary is, and what is put around a text."""
    model = state.attached().model
    tokenizer, variables = model.tokenizer, model.template_variables
    return exchange.reply({
        "vocab_size": tokenizer.vocab_size,
        "max_model_len": model.max_context,
        "bos_token_id": tokenizer.bos_id,
        "eos_token_ids": sorted(tokenizer.eos_ids),
        "add_bos_token": tokenizer.add_bos,
        "add_eos_token": tokenizer.add_eos,
        "special_tokens": tokenizer.special_texts(),
        "has_chat_template": variables is not None,
        "chat_template_variables": sorted(variables or ()),
    })  # fmt: skip


async def load(exchange: Exchange, state: State) -> web.StreamResponse:
    """Say how much there is to do: requests in the engine, and the cache that they hold."""
    stats = state.attached().engine.stats()
    running, waiting = stats.get("requests_running", 0), stats.get("requests_waiting", 0)
    return exchange.reply({
        "server_load": running + waiting,
        "requests_running": running,
        "requests_waiting": waiting,
        "kv_cache_usage": stats.get("kv_cache_usage", 0),
    })  # fmt: skip


async def server_info(exchange: Exchange, state: State) -> web.StreamResponse:
    """Say what is served, how it was built, and what a request that says nothing gets."""
    serving = state.attached()
    return exchange.reply({
        **state.facts,
        "version": state.version,
        "state": state.health().state,
        "models": serving.names,
        "system_fingerprint": serving.fingerprint,
        "max_model_len": serving.model.max_context,
        "default_sampling": asdict(serving.model.default_sampling),
        "default_sampling_from": dict(serving.model.sampling_sources),
        "max_tokens_cap": serving.model.max_tokens_cap,
    })  # fmt: skip


async def stats(exchange: Exchange, state: State) -> web.StreamResponse:
    """Say what the engine and the server have counted."""
    counts = state.counts
    answers: dict[str, dict[str, int]] = {}
    for (route, status), count in counts.answers.items():
        answers.setdefault(route, {})[str(status)] = count
    return exchange.reply({
        "uptime_s": round(time.monotonic() - state.started, 3),
        "model": state.attached().names[0],
        "state": state.health().state,
        "engine": dict(state.attached().engine.stats()),
        "finished": counts.finished,
        "latency": {
            "first_token": _mean(counts.first_token),
            "between_tokens": _mean(counts.between_tokens),
            "whole": _mean(counts.whole),
            "queued": _mean(counts.queued),
        },
        "http": {"connections": state.num_connections(), "answers": answers},
    })  # fmt: skip


def _mean(histogram: Histogram) -> dict[str, float]:
    """Return what a reader who asks twice can take a mean of."""
    return {"count": sum(histogram.counts), "sum_s": histogram.total}


async def sessions(exchange: Exchange, state: State) -> web.StreamResponse:
    """List the requests that wait and run, without a word of theirs."""
    listed = state.attached().engine.sequences()
    data = [{**asdict(each), "pages": dict(each.pages)} for each in listed]
    return exchange.reply({"object": "list", "data": data})


async def graph(exchange: Exchange, state: State) -> web.StreamResponse:
    """Say which kernel runs every op, and why that one."""
    state.attached()
    if state.graph is None:
        raise ApiError(501, "/graph: expected an engine built from a graph, got one that is not.")
    return exchange.send(await asyncio.to_thread(state.graph))


async def reset_prefix_cache(exchange: Exchange, state: State) -> web.StreamResponse:
    """Forget cached prompts; those that running requests stand on are kept, and that is said."""
    engine = state.attached().engine
    if exchange.request.body_exists:
        # A page of another site can post text unasked, but no JSON.
        body = await read_json(exchange.request, state.settings)
        strict = state.settings.strict_requests
        _, ignored = fields.sort_out(body, frozenset(), strict=strict, inert=frozenset())
        name_ignored(exchange, ignored)
    whole = await engine.reset_prefix_cache()
    _log.info("prefix_cache_reset", request_id=exchange.request_id, whole=whole)
    return exchange.reply({"reset": True, "whole": whole})
