"""A browser without a window, and pages in it that must be silent and stay on their server."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from .scripted import ScriptedServer

LIMIT_MS = 120_000
expect.set_options(timeout=LIMIT_MS)
SCREENSHOTS = Path(__file__).parents[3] / ".cache" / "screenshots"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return the system's Chromium."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "chromium is not installed: apt-get install chromium"
    with sync_playwright() as playwright:
        # Containers give no user namespaces and little /dev/shm.
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            timeout=LIMIT_MS,
        )
        yield browser
        browser.close()


class Watched:
    """A page with all that it said and asked for.

    Args:
        page: to watch.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []
        self.asked: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._hear)
        page.on("request", lambda request: self.asked.append(request.url))

    def _hear(self, message: ConsoleMessage) -> None:
        # Browsers report every status past 400 as an error of their own, even where it is meant.
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def hosts(self) -> set[str]:
        """Return the hosts that the page asked."""
        return {urlsplit(url).netloc for url in self.asked}


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    """Return a page of its own; in the end it must not have failed, nor asked two hosts."""
    context = browser.new_context(viewport={"width": 1200, "height": 820})
    context.set_default_timeout(LIMIT_MS)
    made = Watched(context.new_page())
    yield made
    context.close()
    assert made.faults == []
    assert len(made.hosts()) <= 1, made.hosts()


@pytest.fixture
def page(watched: Watched) -> Page:
    """Return a watched page."""
    return watched.page


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    """Return a server whose engine says what the test wants."""
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def screenshot(request: pytest.FixtureRequest):
    """Return what keeps a picture of a page, for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)

    def keep(page: Page, name: str) -> Path:
        path = SCREENSHOTS / f"{name}.png"
        page.screenshot(path=path)
        return path

    return keep
