"""The page in a browser: keyboard, key, theme, narrow screens, a server that comes and goes."""

import random
from datetime import datetime

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from ports import lasting_port

from .scripted import ScriptedServer

TABS = ["Overview", "Sessions", "Graph", "Chat"]
POOL = {"kv_pages_total_full": 50, "kv_pages_used_full": 20, "kv_pages_cached_full": 5}
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def tab(page: Page, name: str):
    return page.get_by_role("tab", name=name)


def faults(page: Page) -> list[tuple[str, list[str]]]:
    """Return the rules of accessibility that are broken, and where."""
    found = Axe().run(page, options=RULES).response["violations"]
    return [(v["id"], [n["html"] for n in v["nodes"]]) for v in found]


def polls(watched) -> int:
    return sum(url.endswith("/stats") for url in watched.asked)


def test_tabs_by_keyboard(scripted: ScriptedServer, page: Page) -> None:
    """Arrows, Home and End walk the tabs round, one tab at a time is in the order of focus."""
    page.goto(scripted.start())
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    tab(page, "Overview").focus()
    at = 0
    for _ in range(20):
        key = random.choice(["ArrowRight", "ArrowLeft", "Home", "End"])
        at = {"ArrowRight": (at + 1) % 4, "ArrowLeft": (at - 1) % 4, "Home": 0, "End": 3}[key]
        page.keyboard.press(key)
        expect(tab(page, TABS[at])).to_be_focused()
        expect(page.get_by_role("tab", selected=True)).to_have_text(TABS[at])
        expect(page.get_by_role("tabpanel")).to_have_count(1)
        expect(page.get_by_role("tabpanel", name=TABS[at])).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("tabpanel")).to_be_focused()
    page.goto(f"{page.url.partition('#')[0]}#graph")
    expect(tab(page, "Graph")).to_have_attribute("aria-selected", "true")


def test_everything_can_be_reached_and_left_by_keyboard(
    scripted: ScriptedServer, page: Page
) -> None:
    """From the chat's first control Tab reaches every control that can be used, and goes on."""
    page.goto(f"{scripted.start()}/#chat")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    wanted = page.evaluate("""() => [...document.querySelectorAll("button,input,textarea,summary")]
        .filter((each) => each.checkVisibility() && !each.disabled && each.tabIndex >= 0).length""")
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate("""() => document.activeElement.matches("button,input,textarea")
            ? document.activeElement.id || document.activeElement.name : "" """)
        )
    assert len(seen - {""}) == wanted


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_accessible(scripted: ScriptedServer, page: Page, theme: str) -> None:
    """Names, roles, contrast and order of headings pass axe's rules, in every tab and theme."""
    engine = scripted.engine
    engine.stats_now = {**POOL, "requests_running": 1, "tokens_generated": 7}
    engine.listed = [session("r1")]
    scripted.graph = graph()
    page.emulate_media(color_scheme=theme)
    url = scripted.start()
    for name in TABS:
        page.goto(f"{url}/#{name.lower()}")
        page.reload()
        expect(page.locator(".tile").first).to_be_attached()
        if name == "Chat":
            page.get_by_label("Message", exact=True).fill("hi")
            page.keyboard.press("Enter")
            expect(page.get_by_text("Done.")).to_be_visible()
        if name == "Graph":
            page.locator("summary").first.click()
        assert faults(page) == []


def test_light_and_dark(scripted: ScriptedServer, page: Page, screenshot) -> None:
    """The system's wish counts until the button is used, whose choice outlives a reload."""

    def ground() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.emulate_media(color_scheme="light")
    page.goto(scripted.start())
    light = ground()
    page.emulate_media(color_scheme="dark")
    dark = ground()
    assert light != dark
    button = page.get_by_role("button", name="Theme")
    expect(button).to_have_text("Theme: system")
    button.click()
    expect(button).to_have_text("Theme: light")
    assert ground() == light
    page.reload()
    assert ground() == light
    button.click()
    page.emulate_media(color_scheme="light")
    assert ground() == dark
    button.click()
    assert ground() == light


@pytest.mark.parametrize("name", TABS)
def test_narrow_screens(scripted: ScriptedServer, page: Page, name: str, screenshot) -> None:
    """At 320 pixels nothing but tables is wider than the screen."""
    scripted.engine.stats_now = POOL
    scripted.engine.listed = [session("r" * 128)]
    scripted.graph = graph()
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(f"{scripted.start()}/#{name.lower()}")
    expect(page.locator(".tile").first).to_be_attached()
    screenshot(page, f"narrow-{name.lower()}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    tabs = page.get_by_role("tab").all()
    boxes = [tab.bounding_box() for tab in tabs]
    assert len({box["y"] for box in boxes if box}) == 1, "the tabs stand in one row"
    assert page.evaluate("document.querySelector('.tabs').scrollWidth") <= 320


def test_the_key_is_asked_for(scripted: ScriptedServer, page: Page, watched) -> None:
    """With keys the page opens without one, asks, asks again for a wrong one, then works."""
    url = scripted.start(api_keys=("right",))
    page.goto(url)
    dialog = page.get_by_role("dialog", name="This server wants an API key")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_label("API key")).to_be_focused()
    assert faults(page) == []
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_have_text("That key was not accepted.")
    page.keyboard.type("right")
    page.keyboard.press("Enter")
    expect(dialog).not_to_be_visible()
    expect(page.locator("#model-name")).to_have_text("scripted")
    page.reload()
    expect(page.locator("#model-name")).to_have_text("scripted")
    expect(dialog).not_to_be_visible()
    kept = page.evaluate("[JSON.stringify(localStorage), document.cookie, location.href]")
    assert "right" not in "".join(kept)
    assert not [address for address in watched.asked if "right" in address]


def test_a_key_need_not_be_kept(scripted: ScriptedServer, page: Page, watched) -> None:
    """Not to be kept, the key is in this page's memory only; left out, a button asks again."""
    page.goto(scripted.start(api_keys=("right",)))
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    expect(page.get_by_role("status").first).to_contain_text("API key: expected one in")
    before = polls(watched)
    page.wait_for_timeout(2500)
    assert polls(watched) == before
    page.get_by_role("button", name="Enter an API key").click()
    page.keyboard.type("right")
    page.get_by_label("Keep it until this tab is closed").uncheck()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#model-name")).to_have_text("scripted")
    assert page.evaluate("JSON.stringify(sessionStorage)") == "{}"
    page.reload()
    expect(dialog).to_be_visible()


def test_nothing_is_asked_while_nobody_looks(scripted: ScriptedServer, page: Page, watched) -> None:
    """One poll a second in sight, none when the page is hidden, and one at once on return."""
    page.clock.install(time=datetime(2030, 1, 1))
    page.goto(scripted.start())
    tile = page.locator(".tile", has_text="Requests running").locator(".figure")
    expect(tile).to_be_visible()
    page.clock.pause_at(datetime(2030, 1, 2))  # from here on time passes as it is told to

    def look(number: int) -> None:
        """Have the server say a number, which shows when the page has asked."""
        scripted.engine.stats_now = {"requests_running": number, "requests_waiting": 0}

    look(1)
    page.clock.run_for(10_000)
    expect(tile).to_have_text("1")
    for number in range(2, 6):
        look(number)
        asked = polls(watched)
        page.clock.run_for(999)
        page.evaluate("fetch('version')")  # what was asked before is known when this is answered
        assert polls(watched) == asked
        page.clock.run_for(1)
        expect(tile).to_have_text(str(number))
        assert polls(watched) == asked + 1
    hide = """(hidden) => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    look(6)
    asked = polls(watched)
    page.clock.run_for(10_000)
    page.evaluate("fetch('version')")
    assert polls(watched) == asked
    page.evaluate(hide, False)
    expect(tile).to_have_text("6")


def test_a_server_that_loads_goes_and_comes_back(scripted: ScriptedServer, page: Page) -> None:
    """The page says that a model is being loaded, that the server is gone, and goes on after it."""
    port = lasting_port()
    page.goto(scripted.start(attach=False, port=port))
    state = page.get_by_role("status").first
    expect(state).to_have_text("server: the model is being loaded.")
    scripted.attach()
    expect(state).to_have_text("")
    expect(page.locator("#model-name")).to_have_text("scripted")
    scripted.stop()
    expect(state).to_have_text("The server does not answer. Is it still running?")
    scripted.start(port=port)
    expect(state).to_have_text("")


def test_rates(scripted: ScriptedServer, page: Page) -> None:
    """Rates are of what two looks gained; what did not happen is unknown, not nought."""
    page.goto(scripted.start())
    old, new = (random.uniform(1, 50), random.uniform(60, 90))
    now = {"tokens_generated": 900, "prompt_tokens": 500, "decode_steps": 100,
           "decode_seconds": 2.5, "prefix_cache_queries": 80, "prefix_cache_hits": 60}  # fmt: skip
    first = {"count": 4, "sum_s": 1.0}
    got = page.evaluate(
        """async ([old, now]) => (await import("/dashboard/rates.js")).rates(old, now)""",
        [{"uptime_s": old, "engine": {"tokens_generated": 100, "decode_seconds": 0.5},
          "latency": {"first_token": {"count": 0, "sum_s": 0}}},
         {"uptime_s": new, "engine": now, "latency": {"first_token": first}}],
    )  # fmt: skip
    assert got["decodeStepMs"] == pytest.approx(20)
    assert got["decodeRate"] == pytest.approx(800 / (new - old))
    assert got["promptRate"] == pytest.approx(500 / (new - old))
    assert (got["hitRate"], got["acceptance"], got["firstTokenMs"]) == (0.75, None, 250)


def session(request_id: str):
    from radiance_core.engine.interface import SequenceInfo

    return SequenceInfo(request_id, "running", 0, 3.25, 100, 7, 64, {"full": 7})


def graph(op: str = "gemm_nt") -> dict:
    """A graph of one kernel, in the form of /graph."""
    band = {
        "lower": 1, "upper": None, "library": "fast", "kernel": "wide", "priority": 2,
        "reference": False, "takes": ["M<=4"], "layouts": ["tiled"], "why": "It is the first.",
        "refused": [{"library": "slow", "kernel": "any", "reason": "n=7 not met by n=8"}],
    }  # fmt: skip
    node = {"index": 0, "name": "blk.0.up", "op": op, "operands": ["x[TOKENS,8]:f32"],
            "outputs": ["y[TOKENS,8]:f32"], "rows": "TOKENS", "selection": 0}  # fmt: skip
    return {
        "libraries": {"fast": {"version": "1", "reference": False, "ops": [op]}},
        "num_ops": 1,
        "nodes": [node],
        "selections": [{"op": op, "params": {"n": 8}, "ranged": "M", "bands": [band]}],
    }
