"""The routes that look into the server, and what it counts."""

import pytest

from radiance_core.engine.interface import SequenceInfo

CHAT = "/v1/chat/completions"
COUNTERS = {
    "requests_running": 3, "requests_waiting": 2, "requests_rejected": 5, "requests_cancelled": 7,
    "requests_failed": 11, "prompt_tokens": 100, "tokens_generated": 200, "steps": 40,
    "step_seconds": 1.5, "kv_cache_usage": 0.25, "decode_steps": 30, "decode_seconds": 0.9,
    "prefill_steps": 8, "prefill_seconds": 0.5, "mixed_steps": 2, "mixed_seconds": 0.1,
    "prefix_cache_queries": 90, "prefix_cache_hits": 64, "prefix_cache_evictions": 13,
    "preemptions": 17, "recomputed_tokens": 19, "draft_tokens": 23, "accepted_tokens": 21,
    "kv_pages_total_full": 50, "kv_pages_used_full": 20, "kv_pages_cached_full": 5,
    "kv_pages_total_window": 10, "kv_pages_used_window": 1, "kv_pages_cached_window": 0,
}  # fmt: skip


async def test_tokenizer_info(live):
    """The vocabulary's size, its special tokens and the template's variables."""
    status, got, _ = await live.get("/get_tokenizer_info")
    assert (status, got) == (200, {
        "vocab_size": 257, "max_model_len": 512, "bos_token_id": 256, "eos_token_ids": [0, 10],
        "add_bos_token": True, "add_eos_token": False, "special_tokens": {"bos_token": "<s>"},
        "has_chat_template": True, "chat_template_variables": ["enable_thinking", "persona"],
    })  # fmt: skip
    live.model.template_variables = None
    _, got, _ = await live.get("/v1/get_tokenizer_info")
    assert (got["has_chat_template"], got["chat_template_variables"]) == (False, [])


async def test_load(live):
    """Running and waiting requests and their sum; an engine that counts nothing has no load."""
    assert (await live.get("/load"))[1]["server_load"] == 0
    live.engine.counters = COUNTERS
    assert (await live.get("/load"))[1] == {
        "server_load": 5, "requests_running": 3, "requests_waiting": 2, "kv_cache_usage": 0.25,
    }  # fmt: skip


async def test_server_info(start):
    """Names, defaults and what the build said, which cannot hide what the server says itself."""
    live = await start(served_model_names=("best",))
    live.server.describe({"architecture": "llama", "version": "forged"})
    _, got, _ = await live.get("/server_info")
    assert (got["version"], got["state"], got["architecture"]) == ("1.2.3", "ready", "llama")
    assert (got["models"], got["max_model_len"]) == (["best", "org/tiny:q4"], 512)
    assert got["default_sampling"]["temperature"] == 0.7
    assert got["default_sampling"]["top_p"] == 1.0
    _, answer, _ = await live.post(CHAT, {"messages": [{"role": "user", "content": "x"}]})
    assert got["system_fingerprint"] == answer["system_fingerprint"]


async def test_stats(live, hi):
    """The engine's own numbers as they are, and the server's."""
    live.engine.counters = COUNTERS
    await live.post(CHAT, hi)
    await live.post(CHAT, {})
    _, got, _ = await live.get("/stats")
    assert got["engine"] == COUNTERS
    assert (got["model"], got["state"]) == ("org/tiny:q4", "ready")
    assert got["latency"]["whole"]["count"] == got["latency"]["first_token"]["count"] == 1
    assert got["latency"]["between_tokens"]["count"] == 4
    assert 0 < got["latency"]["first_token"]["sum_s"] <= got["latency"]["whole"]["sum_s"]
    later = (await live.get("/stats"))[1]
    assert got["uptime_s"] <= later["uptime_s"] < got["uptime_s"] + 60
    assert got["finished"] == {"stop": 1, "length": 0}
    assert got["http"]["connections"] == 1
    assert got["http"]["answers"] == {"/chat/completions": {"200": 1, "400": 1}}


async def test_sessions(live):
    """Every sequence with its facts; nothing runs, nothing is listed."""
    assert (await live.get("/sessions"))[1] == {"object": "list", "data": []}
    live.engine.listed = [
        SequenceInfo("r1", "running", 0, 1.5, 100, 7, 64, {"full": 7, "window": 2}),
        SequenceInfo("r2", "waiting", -3, 0.25, 9, 0, 0, {}),
    ]
    _, got, _ = await live.get("/v1/sessions")
    assert got["data"] == [
        {"request_id": "r1", "state": "running", "priority": 0, "age_s": 1.5, "prompt_tokens": 100,
         "generated_tokens": 7, "cached_tokens": 64, "pages": {"full": 7, "window": 2}},
        {"request_id": "r2", "state": "waiting", "priority": -3, "age_s": 0.25, "prompt_tokens": 9,
         "generated_tokens": 0, "cached_tokens": 0, "pages": {}},
    ]  # fmt: skip


async def test_graph(live):
    """What the build gave, as it is; asked for again it is not made again by the server."""
    made = []
    live.server.describe({}, lambda: made.append(1) or b'{"nodes": [1]}')
    assert (await live.get("/graph"))[1] == {"nodes": [1]}
    live.server.describe({})
    status, got, _ = await live.get("/graph")
    assert (status, got["error"]["type"]) == (501, "not_implemented_error")
    assert got["error"]["message"] == (
        "/graph: expected an engine built from a graph, got one that is not."
    )
    assert made == [1]


async def test_reset_prefix_cache(live, hi):
    """Cached prompts are forgotten; those in use are not, and the answer says so."""
    status, got, _ = await live.post("/reset_prefix_cache", raw=b"")
    assert (status, got) == (200, {"reset": True, "whole": True})
    live.engine.listed = [SequenceInfo("r1", "running", 0, 1.5, 100, 7, 64, {})]
    _, got, _ = await live.get("/v1/reset_prefix_cache", "POST")
    assert got == {"reset": True, "whole": False}
    assert live.engine.resets == 2
    status, got, headers = await live.get("/reset_prefix_cache")
    assert (status, headers["allow"]) == (405, "POST")
    evil = {"Origin": "http://evil.example"}
    assert (await live.get("/reset_prefix_cache", "POST", headers=evil))[0] == 403
    assert live.engine.resets == 2


async def test_a_body_of_a_reset_is_json(live):
    """A body is read as on other routes: its type is checked, its fields are named as ignored."""
    path = "/reset_prefix_cache"
    for kind, raw, expected in [
        ("text/plain", b"{}", 415), ("text/plain", b"x", 415), ("application/json", b"[]", 400),
        ("application/json", b"{", 400),
    ]:  # fmt: skip
        status, got, _ = await live.post(path, raw=raw, headers={"content-type": kind})
        assert status == expected, got
        assert "Content-Type: expected application/json" in got["error"]["message"] or raw != b"{}"
    assert live.engine.resets == 0
    status, _, headers = await live.post(path, {"nonsense": 1})
    assert (status, headers["x-radiance-ignored"]) == (200, "nonsense")
    assert (await live.post(path, {}))[0] == 200
    assert live.engine.resets == 2


LOOKS = ["/get_tokenizer_info", "/load", "/server_info", "/stats", "/graph", "/sessions"]


@pytest.mark.parametrize("path", LOOKS)
async def test_there_is_something_to_see_from_the_model_on(start, path):
    """503 before there is a model; after a failure of the engine and in a drain still an answer."""
    live = await start(attach=False)
    status, got, _ = await live.get(path)
    assert (status, got["error"]["code"]) == (503, "model_loading")
    live.server.attach(live.engine, live.model)
    live.engine.state = "failed"
    assert (await live.get(path))[0] == 200
    live.server.state.enter("draining", "it stops")
    assert (await live.get(path))[0] == 200
