"""What the tests of all clients ask with, and how they look into the server."""

import json
import time
import urllib.request

MODEL = "smol"
SEATS, PLACES = 4, 2  # few, so that a handful of requests takes them
KEY = "a-key-of-the-tests"
GREETING = [{"role": "user", "content": "hi"}]
COUNT = [{"role": "user", "content": "Count from one to fifty in words, please."}]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
ASK_WEATHER = "What is the weather in Paris?"


def engine_stats(url: str) -> dict[str, float]:
    """Return what the engine has counted."""
    asked = urllib.request.Request(f"{url}/stats", headers={"x-api-key": KEY})
    with urllib.request.urlopen(asked, timeout=240) as got:
        return dict(json.load(got)["engine"])


def num_held(url: str) -> int:
    """Return how many requests the server works on, or lets wait."""
    stats = engine_stats(url)
    return int(stats["requests_running"] + stats["requests_waiting"])


def wait_idle(url: str, limit_s: float = 240.0) -> float:
    """Wait until nothing runs; return the seconds that it took."""
    started = time.monotonic()
    while num_held(url):
        assert time.monotonic() - started < limit_s, "a request goes on that nobody waits for"
        time.sleep(0.01)
    return time.monotonic() - started
