"""Tokens and numbers of a real server with a real model."""

import json
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from live_server import LiveServer, running, small_model
from prometheus_client.parser import text_string_to_metric_families

from radiance_core.model_files import open_checkpoint
from radiance_core.text import load_tokenizer


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with running("--served-model-name", "smol", "--temp", "0.5", "--max-num-seqs", "4") as live:
        yield live


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(open_checkpoint(small_model()))


def ask(url: str, body: object = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=240) as got:
        text = got.read().decode()
    return json.loads(text) if got.headers.get_content_type() == "application/json" else text


def scrape(server: LiveServer) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(v for k, v in sorted(sample.labels.items()) if k != "model_name")):
            sample.value
        for family in text_string_to_metric_families(ask(f"{server.url}/metrics"))
        for sample in family.samples
    }  # fmt: skip


def test_tokens_are_the_tokenizers(server, tokenizer):
    """/tokenize gives the ids that the tokenizer gives; /detokenize gives the text back."""
    for _ in range(20):
        text = "".join(
            random.choices("abc ABC 123 äß 你好 🙂\n\t<|im_end|>", k=random.randint(1, 300))
        )
        got = ask(f"{server.url}/tokenize", {"prompt": text, "return_token_strs": True})
        assert got["tokens"] == tokenizer.encode(text, add_special_tokens=True)
        assert got["count"] == len(got["tokens"])
        assert got["token_strs"] == [tokenizer.token_text(id_) for id_ in got["tokens"]]
        back = ask(f"{server.url}/detokenize", {"tokens": got["tokens"]})
        assert back == {"prompt": text}


def test_a_conversation_has_the_tokens_that_chat_counts(server):
    """The count for messages is the number of prompt tokens that a chat answer reports."""
    asked = {"messages": [{"role": "user", "content": "What is <|im_end|> water?"}]}
    got = ask(f"{server.url}/v1/tokenize", asked)
    answer = ask(f"{server.url}/v1/chat/completions", {**asked, "max_tokens": 1})
    assert answer["usage"]["prompt_tokens"] == got["count"]
    assert "water" in ask(f"{server.url}/detokenize", {"tokens": got["tokens"]})["prompt"]


def test_tokenizer_info(server, tokenizer):
    """The vocabulary's facts are the tokenizer's."""
    got = ask(f"{server.url}/get_tokenizer_info")
    assert got["vocab_size"] == tokenizer.vocab_size
    assert got["eos_token_ids"] == sorted(tokenizer.eos_ids)
    assert got["special_tokens"] == tokenizer.special_texts()
    assert got["has_chat_template"]


def test_a_scrape_parses_and_its_counters_move(server):
    """A request's tokens, end and times are in the next scrape, and the engine is then empty."""
    before = scrape(server)
    body = {"prompt": "1, 2, 3, 4,", "max_tokens": 12, "ignore_eos": True}
    usage = ask(f"{server.url}/v1/completions", body)["usage"]
    deadline = time.monotonic() + 240
    while (after := scrape(server))["vllm:num_requests_running",]:
        assert time.monotonic() < deadline
    moved = {key: after[key] - before.get(key, 0) for key in after}
    for key, by in {
        ("vllm:prompt_tokens_total",): usage["prompt_tokens"],
        ("vllm:generation_tokens_total",): 12,
        ("vllm:request_success_total", "length"): 1,
        ("vllm:request_success_total", "stop"): 0,
        ("vllm:request_success_total", "abort"): 0,
        ("vllm:time_to_first_token_seconds_count",): 1,
        ("vllm:inter_token_latency_seconds_count",): 11,
        ("vllm:e2e_request_latency_seconds_count",): 1,
        ("radiance_http_answers_total", "/completions", "200"): 1,
        ("radiance_requests_failed_total",): 0,
    }.items():
        assert moved[key] == by, key
    assert moved["radiance_engine_steps_total",] >= 12
    assert moved["radiance_engine_step_seconds_total",] > 0
    first, gaps, whole = (
        moved[f"vllm:{name}_seconds_sum",]
        for name in ("time_to_first_token", "inter_token_latency", "e2e_request_latency")
    )
    assert 0 < first < whole
    assert first + gaps == pytest.approx(whole)
    assert after["vllm:num_requests_waiting",] == after["vllm:kv_cache_usage_perc",] == 0


def test_load_and_stats_while_an_answer_runs(server):
    """A running answer is a load of one, holds cache, and is gone with its client."""
    body = {"prompt": "1, 2, 3,", "max_tokens": 6000, "ignore_eos": True, "stream": True}
    request = urllib.request.Request(
        f"{server.url}/v1/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=240) as stream:
        stream.readline()
        load = ask(f"{server.url}/load")
        stats = ask(f"{server.url}/stats")
        assert (load["server_load"], load["requests_running"]) == (1, 1)
        assert 0 < load["kv_cache_usage"] < 1
        assert stats["engine"]["requests_running"] == 1
        assert stats["http"]["connections"] >= 2
    deadline = time.monotonic() + 240
    while ask(f"{server.url}/load")["server_load"]:
        assert time.monotonic() < deadline
    assert scrape(server)["radiance_requests_cancelled_total",] >= 1


def test_server_info(server):
    """It says what serves, with which settings, and neither key nor path."""
    got = ask(f"{server.url}/server_info")
    assert got["architecture"] == "llama"
    assert got["models"][0] == "smol"
    assert got["default_sampling"]["temperature"] == got["settings"]["temp"] == 0.5
    assert got["settings"]["max-num-seqs"] == 4
    assert got["settings"]["api-key"] is None
    assert got["settings"]["max-queued-requests"] == 32
    assert got["settings"]["max-model-len"] == got["max_model_len"]
    assert got["settings"]["threads"] > 0
    assert got["settings"]["memory-mib"] > 0
    ops = {op for library in got["kernels"].values() for op in library["ops"]}
    assert "embed_lookup" in ops
    assert got["reference_ops"] == []
    assert got["cache"]["capacity_tokens"] >= got["max_model_len"] > 0
    assert str(small_model().parent) not in json.dumps(got)


def test_server_info_says_where_settings_came_from(server):
    """Every setting has a source: a flag's is the command line, a file's is its name and line."""
    sources = ask(f"{server.url}/server_info")["setting_sources"]
    assert set(sources) == set(ask(f"{server.url}/server_info")["settings"])
    assert sources["temp"] == sources["max-num-seqs"] == "command line"
    assert sources["top-p"] == "default"


def test_the_graph_is_what_debug_graph_prints(server):
    """The same nodes in the same order, each served in every band, with a reason."""
    got = ask(f"{server.url}/graph")
    command = [sys.executable, "-m", "radiance_core.cli.main", "--model", str(small_model()),
               "--max-num-seqs", "4", "--debug-graph"]  # fmt: skip
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in printed.splitlines() if line[:4].strip().isdigit()]
    assert len(lines) == len(got["nodes"]) > 100
    for line, node in zip(lines, got["nodes"], strict=True):
        shown = f"{node['index']:4d} {node['op']}({', '.join(node['operands'])})"
        assert line == " -> ".join(
            [shown, *([", ".join(node["outputs"])] if node["outputs"] else [])]
        )
        selection = got["selections"][node["selection"]]
        assert selection["op"] == node["op"]
        assert selection["bands"][0]["lower"] == 1
        assert all(band["why"] for band in selection["bands"])
    info = ask(f"{server.url}/server_info")["kernels"]
    assert {name: facts["ops"] for name, facts in got["libraries"].items()} == {
        name: facts["ops"] for name, facts in info.items()
    }


def test_sessions_and_the_end_of_one(server):
    """A request is listed while it runs, under the name that no client chose, without its words."""
    body = {"prompt": "SECRET " * 50, "max_tokens": 6000, "ignore_eos": True, "stream": True}
    request = urllib.request.Request(
        f"{server.url}/v1/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "X-Request-Id": "mine"},
    )
    with urllib.request.urlopen(request, timeout=240) as stream:
        stream.readline()
        [listed] = ask(f"{server.url}/sessions")["data"]
    assert (listed["state"], listed["priority"]) == ("running", 0)
    assert listed["prompt_tokens"] >= 50
    assert listed["generated_tokens"] >= 0
    assert sum(listed["pages"].values()) > 0
    assert "mine" not in str(listed)
    assert "SECRET" not in str(listed)
    deadline = time.monotonic() + 240
    while ask(f"{server.url}/sessions")["data"]:
        assert time.monotonic() < deadline


def test_with_a_key_the_inside_wants_it_and_does_not_show_it():
    """A key opens /server_info and /metrics, and stands in neither."""
    with running("--api-key", "s3kr1t") as live:
        for path in ("/server_info", "/metrics", "/stats", "/load", "/get_tokenizer_info"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                ask(live.url + path)
            assert caught.value.code == 401
            caught.value.close()
            assert "s3kr1t" not in str(ask(live.url + path, authorization="Bearer s3kr1t"))
        info = ask(f"{live.url}/server_info", authorization="Bearer s3kr1t")
        assert info["settings"]["api-key"] == "(hidden)"
