"""The page before a real server with a real model."""

import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator

import psutil
import pytest
from live_server import LiveServer, running
from playwright.sync_api import Page, expect


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with running("--served-model-name", "smol", "--max-num-seqs", "4", "--temp", "0") as live:
        yield live


def ask(server: LiveServer, path: str, body: object = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{server.url}{path}", data, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=240) as got:
        return json.loads(got.read())


def figures(page: Page, *tiles: str) -> list[float]:
    """Return the numbers that tiles show, all of one look; NaN for none."""
    texts = page.evaluate(
        """(names) => names.map((name) => [...document.querySelectorAll(".tile")]
        .find((tile) => tile.querySelector("h2").textContent === name)
        .querySelector(".figure").textContent)""",
        tiles,
    )
    return [float("nan") if text == "–" else float(text.replace(",", "")) for text in texts]


@pytest.fixture
def busy(server: LiveServer) -> Iterator[None]:
    """Keep two answers running, and end them with the test."""
    ends = threading.Event()

    def go(number: int) -> None:
        body = {"prompt": f"Count on from {number}: ", "max_tokens": 6000, "stream": True,
                "ignore_eos": True}  # fmt: skip
        request = urllib.request.Request(
            f"{server.url}/v1/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        while not ends.is_set():
            with urllib.request.urlopen(request, timeout=240) as stream:
                while not ends.is_set() and stream.readline():
                    pass

    threads = [threading.Thread(target=go, args=(n,)) for n in range(2)]
    for each in threads:
        each.start()
    yield
    ends.set()
    for each in threads:
        each.join(240)


def test_numbers_move_while_requests_run(
    server: LiveServer, page: Page, busy: None, screenshot
) -> None:
    """Step time, throughput, requests and cache are the server's own, and move."""
    page.goto(server.url)
    tile = page.locator(".tile", has_text="Requests running").locator(".figure")
    expect(tile).to_have_text("2")
    looks = []
    deadline = time.monotonic() + 240
    while len({look[1] for look in looks}) < 3:
        assert time.monotonic() < deadline, looks
        page.wait_for_timeout(200)
        look = figures(page, "Decode step", "Generated", "Cache in flight")
        looks += [look] if all(number > 0 for number in look) else []
    step_ms, rate, _ = looks[-1]
    # Two rows a step: no more can be generated than the step time allows, nor far less.
    most = 2 * 1000 / step_ms
    assert 0.2 * most < rate < 1.5 * most, looks
    expect(tile).to_have_text("2")
    chart = page.locator(".tile", has_text="Generated").locator("svg")
    expect(chart).to_have_attribute("aria-label", re.compile(r"Generated in tokens/s: now \d"))
    assert chart.locator("path").get_attribute("d").count("L") >= 2
    expect(page.locator(".pool p").first).to_contain_text("pages in flight")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        screenshot(page, f"overview-{theme}")


def test_sessions_show_what_runs(server: LiveServer, page: Page, busy: None, screenshot) -> None:
    """Each running request is a row with its tokens and pages, which is gone with its client."""
    page.goto(f"{server.url}/#sessions")
    rows = page.locator("#sessions-rows tr")
    expect(rows).to_have_count(2)
    expect(page.locator("#sessions-summary")).to_have_text("2 running")
    before = rows.first.locator("td").nth(6).inner_text()
    expect(rows.first.locator("td").nth(6)).not_to_have_text(before)
    screenshot(page, "sessions")


def test_cached_prompts_can_be_forgotten(server: LiveServer, page: Page) -> None:
    """A prompt that was asked twice is a hit; after the button it is none."""
    body = {"prompt": "one two three four five " * 40, "max_tokens": 1}
    page.goto(f"{server.url}/#sessions")
    expect(page.locator("#sessions-summary")).to_have_text("No request is in the engine.")
    ask(server, "/v1/completions", body)
    hit = ask(server, "/v1/completions", body)["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert hit > 0
    page.get_by_role("button", name="Forget cached prompts").click()
    expect(page.locator("#reset-result")).to_have_text("All cached prompts were forgotten.")
    usage = ask(server, "/v1/completions", body)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_the_graph_is_the_one_that_was_resolved(server: LiveServer, page: Page, screenshot) -> None:
    """Every node of /graph is a row; the filter keeps those that match; reasons open."""
    nodes = ask(server, "/graph")["nodes"]
    page.goto(f"{server.url}/#graph")
    rows = page.locator("#graph-rows tr")
    expect(rows).to_have_count(len(nodes))
    assert len(nodes) > 100
    page.get_by_label("Filter by op").fill("rmsnorm")
    wanted = sum("rmsnorm" in node["op"] for node in nodes)
    expect(page.locator("#graph-rows tr:visible")).to_have_count(wanted)
    expect(page.locator("#graph-summary")).to_contain_text(f"{wanted} of {len(nodes)} operations")
    page.locator("summary:visible").first.click()
    expect(page.get_by_text(re.compile(r"for this op")).first).to_be_visible()
    screenshot(page, "graph")


def test_a_chat_with_the_model(server: LiveServer, page: Page, screenshot) -> None:
    """A question is answered as it is over HTTP, and a long answer can be stopped."""
    question = {"role": "user", "content": "What is the chemical symbol of water?"}
    body = {"messages": [question], "max_tokens": 24}
    answer = ask(server, "/v1/chat/completions", body)["choices"][0]["message"]["content"]
    page.goto(f"{server.url}/#chat")
    page.get_by_label("Most tokens").fill("24")
    page.get_by_label("Message", exact=True).fill(question["content"])
    page.keyboard.press("Enter")
    expect(page.locator("#chat-status")).to_contain_text("tokens/s")
    assert page.locator(".assistant .text").inner_text().strip() == answer.strip()
    cancelled = ask(server, "/stats")["engine"]["requests_cancelled"]
    page.get_by_label("Message", exact=True).fill("Write a long story about the sea.")
    page.get_by_label("Most tokens").fill("6000")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".assistant").last.locator(".text")).to_contain_text(" ")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#chat-status")).to_have_text("Stopped.")
    screenshot(page, "chat")
    deadline = time.monotonic() + 240
    while ask(server, "/load")["server_load"]:
        assert time.monotonic() < deadline, "the answer goes on"
        page.wait_for_timeout(20)
    assert ask(server, "/stats")["engine"]["requests_cancelled"] == cancelled + 1


def test_a_page_costs_an_idle_server_next_to_nothing(server: LiveServer, page: Page) -> None:
    """With the page open and nothing to do, the server's threads need under 3 % of one core."""
    process = psutil.Process(server.process.pid)
    page.goto(server.url)
    expect(page.locator(".tile").first).to_be_visible()
    page.wait_for_timeout(2000)
    began, before = time.monotonic(), sum(process.cpu_times()[:2])
    page.wait_for_timeout(6000)
    used = sum(process.cpu_times()[:2]) - before
    assert used / (time.monotonic() - began) < 0.03
