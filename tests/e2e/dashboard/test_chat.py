"""The playground: what is streamed is shown as text, and what goes wrong is said in words."""

import json
import time

import pytest
from playwright.sync_api import Page, expect

from radiance_core.chat_format.format import ChatFormat, ReasoningFormat
from radiance_core.engine.interface import QueueFull

from .scripted import ScriptedServer
from .test_page import graph, session

PROBE = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>'


@pytest.fixture
def url(scripted: ScriptedServer) -> str:
    return f"{scripted.start()}/#chat"


def say(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def test_an_answer_streams_and_is_remembered(
    scripted: ScriptedServer, page: Page, url: str
) -> None:
    """Words show as they come; the next request has the conversation and the chosen sampling."""
    scripted.engine.allowed = 0
    page.goto(url)
    page.get_by_label("System message").fill("be brief")
    for label, value in (("Temperature", "0.5"), ("Top-k", "7"), ("Seed", "11"),
                         ("Most tokens", "9"), ("Stop text", "###")):  # fmt: skip
        page.get_by_label(label).fill(value)
    expect(page.get_by_label("Top-p")).to_have_attribute("placeholder", "1")
    say(page, "first")
    log = page.get_by_role("log", name="Conversation")
    expect(log).to_have_attribute("aria-busy", "true")
    for count, _ in enumerate(scripted.engine.words, 1):
        scripted.engine.allowed = count
        said = "".join(scripted.engine.words[:count])
        expect(page.locator(".assistant .text")).to_have_text(said)
    expect(page.get_by_text("Done. ")).to_contain_text("4 generated in")
    expect(log).to_have_attribute("aria-busy", "false")
    say(page, "second")
    expect(page.locator(".assistant")).to_have_count(2)
    expect(page.get_by_text("Done. ")).to_be_visible()
    assert [(m["role"], m["content"]) for m in scripted.engine.asked()] == [
        ("system", "be brief"), ("user", "first"), ("assistant", "Hello, wörld."),
        ("user", "second"),
    ]  # fmt: skip
    sampling = scripted.engine.requests[-1].sampling
    assert (sampling.temperature, sampling.top_k, sampling.seed) == (0.5, 7, 11)
    assert (sampling.max_tokens, sampling.stop) == (9, ("###",))
    page.get_by_role("button", name="New conversation").click()
    say(page, "third")
    expect(page.get_by_text("Done. ")).to_be_visible()
    assert [m["content"] for m in scripted.engine.asked()] == ["be brief", "third"]


@pytest.mark.parametrize(
    ("sources", "shown"),
    [
        ({"temperature": "built-in", "top_p": "built-in"}, ("0.7", "0.95")),
        ({"temperature": "command line", "top_p": "built-in"}, ("", "0.95")),
        ({"temperature": "the model's GGUF metadata", "top_p": "radiance.toml:1"}, ("", "")),
    ],
)
def test_a_talk_begins_with_what_small_models_bear(
    scripted: ScriptedServer, page: Page, url: str, sources: dict[str, str], shown: tuple[str, str]
) -> None:
    """Unless the model or a setting says something; it is shown, sent, and can be emptied."""
    scripted.model.sampling_sources = sources
    page.goto(url)
    fields = [page.get_by_label("Temperature"), page.get_by_label("Top-p")]
    for field, value in zip(fields, shown, strict=True):
        expect(field).to_have_value(value)
    say(page, "hi")
    expect(page.get_by_text("Done. ")).to_be_visible()
    sampling = scripted.engine.requests[-1].sampling
    own = scripted.model.default_sampling
    assert (sampling.temperature, sampling.top_p) == (
        float(shown[0] or own.temperature), float(shown[1] or own.top_p),
    )  # fmt: skip


@pytest.mark.parametrize("way", ["button", "Escape"])
def test_stop(scripted: ScriptedServer, page: Page, url: str, way: str) -> None:
    """Stopping cancels the request; what was said stays and is part of what is asked next."""
    scripted.engine.words, scripted.engine.allowed = ["word "] * 1000, 5
    page.goto(url)
    say(page, "go on")
    expect(page.locator(".assistant .text")).to_contain_text("word word")
    assert scripted.engine.open == 1
    if way == "button":
        page.get_by_role("button", name="Stop").click()
    else:
        page.keyboard.press("Escape")
    expect(page.locator("#chat-status")).to_have_text("Stopped.")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    deadline = time.monotonic() + 240
    while scripted.engine.open:
        assert time.monotonic() < deadline, "the request was not cancelled"
        page.wait_for_timeout(20)
    said = page.locator(".assistant .text").inner_text()
    scripted.engine.words, scripted.engine.allowed = ["ok"], None
    say(page, "and now")
    expect(page.locator("#chat-status")).to_contain_text("Done.")
    assert scripted.engine.asked()[1]["content"].strip() == said.strip()


def test_what_others_wrote_stays_text(scripted: ScriptedServer, page: Page) -> None:
    """Markup in names, answers, errors, ids and the graph is shown as it is and does nothing."""
    model, engine = scripted.model, scripted.engine
    model.model_id = f"a {PROBE}"
    engine.words = [PROBE[:9], PROBE[9:]]
    engine.listed = [session(PROBE)]
    engine.stats_now = {f"kv_pages_total_{PROBE}": 5}
    scripted.graph = graph(PROBE)
    url = scripted.start()
    for name in ("overview", "sessions", "graph", "chat"):
        page.goto(f"{url}/#{name}")
        if name == "chat":
            say(page, PROBE)
            expect(page.locator(".assistant .text")).to_have_text(PROBE)
            expect(page.locator("#chat-status")).to_contain_text("Done.")
            engine.failure = f"it broke: {PROBE}"
            say(page, "again")
            expect(page.get_by_role("alert").last).to_have_text(f"it broke: {PROBE}")
        if name == "graph":
            page.locator("summary").click()
        expect(page.get_by_role("tabpanel").get_by_text("onerror").first).to_be_visible()
    expect(page.locator("#model-name")).to_have_text(f"a {PROBE}")
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("window.hit") is None


def test_refusals_and_failures_are_told_in_words(
    scripted: ScriptedServer, page: Page, url: str
) -> None:
    """A full queue, an error in the middle and a lost connection each say so; nothing is lost."""
    engine = scripted.engine
    engine.refusal = QueueFull("queue: 8 requests wait already; come back later")
    page.goto(url)
    say(page, "my question")
    expect(page.get_by_role("alert").last).to_contain_text("8 requests wait already")
    expect(page.get_by_label("Message", exact=True)).to_have_value("my question")
    engine.refusal, engine.failure = None, "kernel gemm_nt failed"
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").last).to_have_text("kernel gemm_nt failed")
    expect(page.locator(".assistant .text").last).to_have_text("Hello, wörld.")
    engine.failure, engine.words, engine.allowed = None, ["word "] * 1000, 5
    say(page, "more")
    expect(page.locator(".assistant .text").last).to_contain_text("word word")
    scripted.stop()
    expect(page.get_by_role("alert").last).to_contain_text("connection")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_a_number_out_of_bounds_is_not_sent(scripted: ScriptedServer, page: Page, url: str) -> None:
    """The browser says which number is wrong, and the question stays where it was."""
    page.goto(url)
    page.get_by_label("Top-p").fill("2")
    say(page, "hi")
    page.wait_for_timeout(300)
    expect(page.get_by_label("Message", exact=True)).to_have_value("hi")
    assert scripted.engine.requests == []


def test_thoughts_and_calls_are_shown(page: Page, url: str) -> None:
    """Reasoning stands apart from the answer; calls show function and arguments, and are kept."""

    def call(index: int, **function: str) -> dict:
        first = {"id": f"call_{index}", "type": "function"} if "name" in function else {}
        return {"tool_calls": [{"index": index, **first, "function": function}]}

    deltas = [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Let me ", "reasoning": "Let me "},
        {"reasoning": "see."},
        {"content": "I ask."},
        call(0, name="time", arguments=""),
        call(0, arguments='{"zone":'),
        call(0, arguments='"UTC"}'),
        call(1, name="now", arguments="{}"),
    ]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    lines = [f"data: {json.dumps({'choices': [choice]})}\n\n" for choice in choices]
    asked = []

    def answer(route):
        asked.append(route.request.post_data_json)
        body = "".join(lines) + "data: [DONE]\n\n"
        route.fulfill(body=body, content_type="text/event-stream")

    page.goto(url)
    page.route("**/v1/chat/completions", answer)
    say(page, "time?")
    expect(page.locator(".assistant details")).to_contain_text("Let me see.")
    expect(page.locator(".assistant > .text:not(.code)")).to_have_text("I ask.")
    expect(page.locator(".assistant .code")).to_have_text(['time({"zone":"UTC"})', "now({})"])
    expect(page.locator("#chat-status")).to_have_text("The model asks for a tool.")
    with page.expect_response("**/v1/chat/completions"):
        say(page, "go on")
    expect(page.locator(".assistant")).to_have_count(2)
    said = asked[1]["messages"][1]
    assert (said["reasoning_content"], said["content"]) == ("Let me see.", "I ask.")
    assert [c["function"] for c in said["tool_calls"]] == [
        {"name": "time", "arguments": '{"zone":"UTC"}'}, {"name": "now", "arguments": "{}"},
    ]  # fmt: skip
    assert [c["id"] for c in said["tool_calls"]] == ["call_0", "call_1"]


def test_thoughts_of_a_model_that_thinks(scripted: ScriptedServer, page: Page, url: str) -> None:
    """The server takes the thoughts out of the text, and the page shows them apart."""
    scripted.model.chat_format = ChatFormat(ReasoningFormat("<think>", "</think>"))
    scripted.engine.words = ["<think>Let me ", "see.</think>", "It is", " noon."]
    page.goto(url)
    expect(page.get_by_label("Think before the answer")).to_be_checked()
    say(page, "time?")
    expect(page.locator("#chat-status")).to_contain_text("Done.")
    expect(page.locator(".assistant details")).to_contain_text("Let me see.")
    expect(page.locator(".assistant > .text")).to_have_text("It is noon.")


def test_events_are_read_wherever_they_are_cut(page: Page, url: str) -> None:
    """Cut into any pieces, even inside a character, a stream gives the same events."""
    page.goto(url)
    data = ["{}", '{"a": "ä🙂"}', "[DONE]"]
    stream = ": keep-alive\n\n" + "".join(f"data: {each}\n\n" for each in data)
    got = page.evaluate(
        """async (text) => {
            const { events } = await import("/dashboard/events.js");
            const bytes = new TextEncoder().encode(text);
            const all = [];
            for (let size = 1; size <= bytes.length; size += 1) {
                const body = new ReadableStream({ start(out) {
                    for (let at = 0; at < bytes.length; at += size) {
                        out.enqueue(bytes.slice(at, at + size));
                    }
                    out.close();
                }});
                const got = [];
                for await (const each of events({ body })) got.push(each);
                all.push(JSON.stringify(got));
            }
            return [...new Set(all)];
        }""",
        stream,
    )
    assert [json.loads(each) for each in got] == [data]
