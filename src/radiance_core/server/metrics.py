"""``/metrics``: counters, gauges and histograms in Prometheus's text form.

Names that start with ``vllm:`` mean what they mean in vLLM, so that its dashboards work; what it
has no name for starts with ``radiance_``. Everything is read when it is asked for.
"""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

from radiance_core.server import web
from radiance_core.server.counts import Counts, Histogram
from radiance_core.server.exchange import Exchange
from radiance_core.server.state import State

# name, key of the engine's stats, what it is
GAUGES = (
    ("vllm:num_requests_running", "requests_running", "Requests in the steps now."),
    ("vllm:num_requests_waiting", "requests_waiting", "Requests that wait to be let in."),
    ("vllm:kv_cache_usage_perc", "kv_cache_usage", "Used share of the fullest cache pool, 0 to 1."),
)
COUNTERS = (
    ("radiance_prompt_tokens_computed", "prompt_tokens", "Prompt tokens computed, once each."),
    ("vllm:generation_tokens", "tokens_generated", "Tokens generated."),
    ("vllm:prefix_cache_queries", "prefix_cache_queries", "Prompt tokens looked up in the cache."),
    ("vllm:prefix_cache_hits", "prefix_cache_hits", "Prompt tokens found in the cache."),
    ("vllm:num_preemptions", "preemptions", "Times that a request lost its place to another."),
    ("vllm:spec_decode_num_draft_tokens", "draft_tokens", "Tokens guessed ahead."),
    ("vllm:spec_decode_num_accepted_tokens", "accepted_tokens", "Guessed tokens that were right."),
    ("radiance_engine_steps", "steps", "Steps of the engine."),
    ("radiance_engine_step_seconds", "step_seconds", "Seconds spent in steps."),
    ("radiance_recomputed_tokens", "recomputed_tokens", "Tokens computed again after preemption."),
    ("radiance_prefix_cache_evictions", "prefix_cache_evictions", "Cached pages that made room."),
    ("radiance_requests_rejected", "requests_rejected", "Requests refused by a full queue."),
    ("radiance_requests_cancelled", "requests_cancelled", "Requests that their clients left."),
    ("radiance_requests_failed", "requests_failed", "Requests that failed in the engine."),
)
STEP_KINDS = ("decode", "prefill", "mixed")
# use, start of the key of the engine's stats, which ends with the pool's name
PAGE_USES = (("in_flight", "kv_pages_used_"), ("held", "kv_pages_cached_"))
POOL_SIZE = "kv_pages_total_"
# finish reason, key of the engine's stats: what no last delta tells the server
ENDED_OTHERWISE = {"abort": "requests_cancelled", "error": "requests_failed"}


async def metrics(exchange: Exchange, state: State) -> web.StreamResponse:
    """Say how the server fares; before there is a model, as far as there is something to say."""
    text, kind = await asyncio.to_thread(render, state)
    return exchange.send(text, kind=kind)


def render(state: State) -> tuple[bytes, str]:
    """Return the metrics and their content type."""
    # Importing the client library reads the environment, and takes longer than a scrape.
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(state))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Families:
    """Makes the families of one scrape."""

    def __init__(self, state: State) -> None:
        self._state = state

    def collect(self) -> Iterable[Any]:
        """Return the server's own families, then those of its model."""
        yield from _of_http(self._state)
        serving = self._state.serving
        if serving is not None:
            yield from _of_engine(serving.engine.stats(), serving.names[0])
            yield from _of_requests(self._state, serving.engine.stats(), serving.names[0])


def _of_http(state: State) -> Iterable[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    yield GaugeMetricFamily(
        "radiance_http_connections", "Open connections.", value=state.num_connections()
    )
    for name, about, count in (
        ("client_disconnects", "Requests that their clients left, or did not read, before the "
         "end.", state.counts.client_disconnects),
        ("streams_cut_off", "Streams that an error ended.", state.counts.streams_cut_off),
    ):  # fmt: skip
        yield CounterMetricFamily(f"radiance_{name}", about, value=count)
    answers = CounterMetricFamily(
        "radiance_http_answers", "HTTP answers by route and status.", labels=("route", "status")
    )
    for (route, status), count in sorted(dict(state.counts.answers).items()):
        answers.add_metric((route, str(status)), count)
    yield answers


def _of_engine(stats: Mapping[str, float], model: str) -> Iterable[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for listed, family in ((GAUGES, GaugeMetricFamily), (COUNTERS, CounterMetricFamily)):
        for name, key, about in listed:
            made = family(name, about, labels=("model_name",))
            made.add_metric((model,), stats.get(key, 0))
            yield made
    yield from _of_steps(stats, model)
    yield from _of_pools(stats, model)


def _of_steps(stats: Mapping[str, float], model: str) -> Iterable[Any]:
    """Return steps and seconds by kind: decode seconds by decode steps is the honest step time."""
    from prometheus_client.core import CounterMetricFamily

    for what, about in (("steps", "Steps"), ("seconds", "Seconds of steps")):
        made = CounterMetricFamily(
            f"radiance_engine_kind_{what}",
            f"{about} of continuing rows only, of prompts only, and of both.",
            labels=("model_name", "kind"),
        )
        for kind in STEP_KINDS:
            made.add_metric((model, kind), stats.get(f"{kind}_{what}", 0))
        yield made


def _of_pools(stats: Mapping[str, float], model: str) -> Iterable[Any]:
    from prometheus_client.core import GaugeMetricFamily

    pages = GaugeMetricFamily(
        "radiance_kv_pages",
        "Cache pages in flight, held for prompts that begin alike, and free.",
        labels=("model_name", "pool", "use"),
    )
    for pool in sorted(key.removeprefix(POOL_SIZE) for key in stats if key.startswith(POOL_SIZE)):
        left = stats[POOL_SIZE + pool]
        for use, key in PAGE_USES:
            count = stats.get(key + pool, 0)
            pages.add_metric((model, pool, use), count)
            left -= count
        pages.add_metric((model, pool, "free"), left)
    yield pages


def _of_requests(state: State, stats: Mapping[str, float], model: str) -> Iterable[Any]:
    from prometheus_client.core import CounterMetricFamily

    ended = CounterMetricFamily(
        "vllm:request_success",
        "Choices that ended, by finish reason.",
        labels=("model_name", "finished_reason"),
    )
    reasons = {why: stats.get(key, 0) for why, key in ENDED_OTHERWISE.items()}
    for reason, count in {**state.counts.finished, **reasons}.items():
        ended.add_metric((model, reason), count)
    yield ended
    tokens = CounterMetricFamily(
        "vllm:prompt_tokens",
        "Tokens of prompts, computed or found in the cache, when their first token comes.",
        labels=("model_name",),
    )
    tokens.add_metric((model,), state.counts.prompt_tokens)
    yield tokens
    yield from _of_times(state.counts, model)


def _of_times(counts: Counts, model: str) -> Iterable[Any]:
    for name, about, histogram in (
        ("time_to_first_token", "To the first token, queueing included.", counts.first_token),
        ("inter_token_latency", "From token to token, an answer's mean for each of its tokens.",
         counts.between_tokens),
        ("request_queue_time", "From arrival to the first step.", counts.queued),
        ("request_prefill_time", "From the first step to the first token.", counts.prefill),
        ("request_decode_time", "From the first token to the last.", counts.decode),
        ("e2e_request_latency", "From a request's headers to its last token.", counts.whole),
    ):  # fmt: skip
        yield _histogram(f"vllm:{name}_seconds", f"Seconds. {about}", histogram, model)
    sizes = (("prompt", counts.prompt_sizes), ("generation", counts.answer_sizes))
    for what, histogram in sizes:
        about = f"Tokens of each ended choice: {what}."
        yield _histogram(f"vllm:request_{what}_tokens", about, histogram, model)


def _histogram(name: str, about: str, histogram: Histogram, model: str) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    bounds = [*(f"{float(bound)}" for bound in histogram.bounds), "+Inf"]
    family = HistogramMetricFamily(name, about, labels=("model_name",))
    buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
    family.add_metric((model,), buckets, histogram.total)
    return family
