"""Metrics: what requests and the engine did, counted once and told as Prometheus reads it."""

import asyncio
import itertools
import random
import time

import pytest
from processor_time import least
from prometheus_client.parser import text_string_to_metric_families
from promptness import until

from radiance_core.engine.interface import Delta, QueueFull
from radiance_core.server.counts import Counts, Histogram

from .test_inspection import CHAT, COUNTERS


async def scrape(live):
    """Return the samples by name and labels without the model's, and every family's type."""
    async with live.http.get(live.url + "/metrics") as got:
        assert got.status == 200
        assert got.headers["content-type"].startswith("text/plain; version=")
        text = (await got.read()).decode()
    samples, types = {}, {}
    for family in text_string_to_metric_families(text):
        types[family.name] = family.type
        assert family.documentation
        for sample in family.samples:
            labels = dict(sample.labels)
            if sample.name.startswith("vllm:"):
                assert labels.pop("model_name") == "org/tiny:q4"
            labels.pop("model_name", None)
            key = (sample.name, *sorted(labels.values()))
            assert key not in samples
            samples[key] = sample.value
    return samples, types


async def test_metrics_before_a_model(start):
    """Connections and answers can be read while the model is being loaded."""
    live = await start(attach=False)
    await live.post(CHAT, {})
    samples, _ = await scrape(live)
    assert samples["radiance_http_connections",] == 1
    assert samples["radiance_http_answers_total", "/chat/completions", "503"] == 1
    assert not any(name.startswith("vllm:") for name, *_ in samples)


async def test_metrics_say_what_the_engine_says(live):
    """Each number of the engine is under vLLM's name where that has one."""
    live.engine.counters = COUNTERS
    samples, types = await scrape(live)
    for name, value in {
        "vllm:num_requests_running": 3, "vllm:num_requests_waiting": 2,
        "vllm:kv_cache_usage_perc": 0.25, "radiance_prompt_tokens_computed_total": 100,
        "vllm:generation_tokens_total": 200, "vllm:prefix_cache_queries_total": 90,
        "vllm:prefix_cache_hits_total": 64, "vllm:num_preemptions_total": 17,
        "vllm:spec_decode_num_draft_tokens_total": 23, "radiance_recomputed_tokens_total": 19,
        "vllm:spec_decode_num_accepted_tokens_total": 21,
        "radiance_prefix_cache_evictions_total": 13, "radiance_engine_steps_total": 40,
        "radiance_engine_step_seconds_total": 1.5, "radiance_requests_rejected_total": 5,
        "radiance_requests_cancelled_total": 7, "radiance_requests_failed_total": 11,
    }.items():  # fmt: skip
        assert samples[name,] == value
        kind = "counter" if name.endswith("_total") else "gauge"
        assert types[name.removesuffix("_total")] == kind
    for (kind, what), value in {
        ("decode", "steps"): 30, ("decode", "seconds"): 0.9, ("prefill", "steps"): 8,
        ("prefill", "seconds"): 0.5, ("mixed", "steps"): 2, ("mixed", "seconds"): 0.1,
    }.items():  # fmt: skip
        assert samples[f"radiance_engine_kind_{what}_total", kind] == value
    pages = {key[1:]: value for key, value in samples.items() if key[0] == "radiance_kv_pages"}
    assert pages == {
        ("full", "in_flight"): 20, ("full", "held"): 5, ("free", "full"): 25,
        ("in_flight", "window"): 1, ("held", "window"): 0, ("free", "window"): 9,
    }  # fmt: skip
    assert samples["vllm:request_success_total", "abort"] == 7
    assert samples["vllm:request_success_total", "error"] == 11


@pytest.mark.parametrize("stream", [False, True])
async def test_finished_requests_move_the_counters(live, hi, stream):
    """Each choice counts by its finish reason; times are those that the client saw."""
    live.engine.gap_s, live.engine.queued_s = 0.02, 1e6

    async def ask(body):
        if stream:
            return await live.stream(CHAT, body)
        return await live.post(CHAT, body)

    began = time.monotonic()
    await ask(hi | {"n": 2})
    await ask(hi | {"max_tokens": 2})
    await ask(hi | {"max_tokens": 0})
    took = time.monotonic() - began
    samples, types = await scrape(live)
    assert samples["vllm:request_success_total", "stop"] == 2
    assert samples["vllm:request_success_total", "length"] == 2
    first, gap, whole = (
        f"vllm:{n}_seconds"
        for n in ("time_to_first_token", "inter_token_latency", "e2e_request_latency")
    )
    assert samples[f"{first}_count",] == 3
    assert samples[f"{whole}_count",] == 4
    assert samples[f"{gap}_count",] == 2 * 4 + 1
    assert samples["vllm:request_queue_time_seconds_count",] == 4
    assert samples["vllm:request_queue_time_seconds_sum",] == pytest.approx(4e6)
    assert 3 * 0.02 <= samples[f"{first}_sum",] <= 2 * took
    assert 2 * 0.1 <= samples[f"{whole}_sum",] <= 2 * took
    assert 9 * 0.02 <= samples[f"{gap}_sum",] <= samples[f"{whole}_sum",]
    prompt = 4 * len(live.engine.requests[0].prompt_ids)
    assert samples["vllm:prompt_tokens_total",] == prompt
    prefill, decode = (f"vllm:request_{what}_time_seconds" for what in ("prefill", "decode"))
    sizes = "vllm:request_prompt_tokens", "vllm:request_generation_tokens"
    assert [samples[f"{name}_sum",] for name in sizes] == [prompt, 5 + 5 + 2]
    assert samples[f"{prefill}_count",] == samples[f"{decode}_count",] == 4
    assert 9 * 0.02 <= samples[f"{decode}_sum",] <= samples[f"{whole}_sum",]
    assert samples[f"{prefill}_sum",] == 0  # the engine tells of more time in its queue
    for name in (first, gap, whole, prefill, decode, *sizes):
        assert types[name] == "histogram"
        buckets = [
            (float(key[1]), value) for key, value in samples.items() if key[0] == f"{name}_bucket"
        ]
        counts = [count for _, count in sorted(buckets)]
        assert counts == sorted(counts)
        assert counts[-1] == samples[f"{name}_count",]


async def test_what_does_not_finish_is_no_success(live, hi):
    """Refused, failed and abandoned requests have no finish reason and no whole time."""
    live.engine.refusal = QueueFull("engine: full")
    assert (await live.post(CHAT, hi))[0] == 429
    live.engine.refusal = None
    live.engine.fail_after = 2
    assert (await live.post(CHAT, hi))[0] == 500
    live.engine.fail_after, live.engine.endless, live.engine.gap_s = None, True, 0.01
    live.model.max_context = 100_000
    first = live.server.state.counts.first_token
    abandoned = asyncio.create_task(live.post(CHAT, hi))
    await until(lambda: sum(first.counts) == 2)
    abandoned.cancel()
    await until(lambda: not live.engine.open)
    samples, _ = await scrape(live)
    assert samples["vllm:request_success_total", "stop"] == 0
    assert samples["vllm:request_success_total", "length"] == 0
    assert samples["vllm:e2e_request_latency_seconds_count",] == 0
    assert samples["vllm:time_to_first_token_seconds_count",] == 2
    assert samples["radiance_client_disconnects_total",] == 1
    assert samples["radiance_streams_cut_off_total",] == 0
    answers = {key[1:]: value for key, value in samples.items()
               if key[0] == "radiance_http_answers_total"}  # fmt: skip
    assert answers == {("/chat/completions", "429"): 1, ("/chat/completions", "500"): 1,
                       ("/chat/completions", "499"): 1}  # fmt: skip


async def test_time_to_the_first_token_is_prefill(live, hi):
    """What the engine takes to the first token, less the wait in its queue, is prefill."""
    live.engine.before_first_s = 0.5
    began = time.monotonic()
    await live.post(CHAT, hi)
    took = time.monotonic() - began
    samples, _ = await scrape(live)
    prefill = samples["vllm:request_prefill_time_seconds_sum",]
    assert prefill >= 0.25
    assert prefill + samples["vllm:request_decode_time_seconds_sum",] <= took - 0.25


async def test_streams_that_end_early_are_counted_by_whose_doing(live, hi):
    """An error that ends a stream is a cut-off; a client that leaves one is a disconnect."""
    live.engine.endless, live.engine.gap_s = True, 0.01
    live.model.max_context = 100_000
    async with live.http.post(live.url + CHAT, json={**hi, "stream": True}) as got:
        await got.content.readuntil(b"Hello")
    await until(lambda: not live.engine.open)
    live.engine.fail_after = 2
    await live.stream(CHAT, hi)
    await until(lambda: not live.engine.open and not live.server._listener.open)
    samples, _ = await scrape(live)
    assert samples["radiance_client_disconnects_total",] == 1
    assert samples["radiance_streams_cut_off_total",] == 1


async def test_labels_are_the_servers_own_words(start):
    """However many paths and models clients make up, no label is theirs."""
    live = await start()
    for n in range(50):
        await live.get(f"/nothing/{n}")
        await live.get(f"/v1/models/m{n}")
        await live.post(CHAT, {"model": f"m{n}", "messages": []})
        await live.get("/health", "DELETE")
    samples, _ = await scrape(live)
    answers = {key[1:]: value for key, value in samples.items()
               if key[0] == "radiance_http_answers_total"}  # fmt: skip
    assert {tuple(sorted(key)) for key in answers} == {
        tuple(sorted(key))
        for key in [("404", "unknown"), ("404", "/models/{id}"), ("404", "/chat/completions"),
                    ("405", "/health")]
    }  # fmt: skip
    assert set(answers.values()) == {50}


async def test_a_model_name_that_needs_quoting_survives(start):
    """Quotes, backslashes and newlines in a name do not break the format."""
    name = 'a"b\\c\nd'
    live = await start(served_model_names=(name,))
    async with live.http.get(live.url + "/metrics") as got:
        text = await got.text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["vllm:num_requests_running"].samples[0].labels == {"model_name": name}


def test_histogram_against_a_count():
    """Every bucket has the values above the last bound up to its own; sums are exact."""
    bounds = sorted(random.uniform(0, 10) for _ in range(6))
    values = [random.uniform(-1, 12) for _ in range(500)] + bounds
    histogram = Histogram(bounds)
    for value in values:
        histogram.add(value)
    edges = [float("-inf"), *bounds, float("inf")]
    assert histogram.counts == [
        sum(low < value <= high for value in values) for low, high in itertools.pairwise(edges)
    ]
    assert histogram.total == pytest.approx(sum(values))
    histogram.add(2.0, 1000)
    assert histogram.total == pytest.approx(sum(values) + 2000)
    assert sum(histogram.counts) == len(values) + 1000


def test_counting_a_request_is_cheap():
    """What a request pays for being counted is microseconds: less than 50."""

    class Ended:
        first_at, last_at, asked_at = {0: 1.0}, {0: 2.0}, 0.5
        last = {0: Delta("", 0, "stop", completion_tokens=100)}  # noqa: RUF012

    def count():
        for _ in range(10_000):
            counts.note(Ended, 0.5)
            counts.answered("/chat/completions", 200)

    counts = Counts()
    count()
    assert counts.finished["stop"] == counts.answers["/chat/completions", 200] == 10_000
    assert sum(counts.between_tokens.counts) == 990_000
    assert least(count, 0.5, time.thread_time) < 0.5


async def test_a_first_token_is_counted_when_it_comes(live, hi):
    """An answer that goes on is counted already; one that ends without a token is not."""
    live.engine.endless, live.engine.gap_s = True, 0.01
    live.model.max_context = 100_000
    asked = asyncio.create_task(live.post(CHAT, {**hi, "max_tokens": 50_000}))
    while (await live.get("/stats"))[1]["latency"]["first_token"]["count"] == 0:
        await asyncio.sleep(0.01)
    assert not asked.done()
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    live.engine.endless, live.engine.words = False, []
    assert (await live.post(CHAT, hi))[0] == 200
    assert (await live.get("/stats"))[1]["latency"]["first_token"]["count"] == 1


async def test_scrapes_during_requests(live, hi):
    """Scrapes on other threads while requests come neither fail nor lose a count."""

    async def ask(n):
        await live.post(CHAT if n % 2 else f"/nothing/{n}", hi)
        await live.get(f"/v1/models/{n}")

    asked = asyncio.gather(*(ask(n) for n in range(60)))
    while not asked.done():
        await scrape(live)
    await asked
    samples, _ = await scrape(live)
    assert samples["vllm:request_success_total", "stop"] == 30
    assert samples["radiance_http_answers_total", "/models/{id}", "404"] == 60
