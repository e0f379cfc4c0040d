"""What the tests of all clients ask with, and how they look into the server."""

import json
import time
import urllib.request

MODEL = "smol"
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


def num_running(url: str) -> int:
    """Return how many requests the server works on."""
    asked = urllib.request.Request(f"{url}/load", headers={"x-api-key": KEY})
    with urllib.request.urlopen(asked, timeout=10) as got:
        return int(json.load(got)["server_load"])


def wait_idle(url: str, limit_s: float = 60.0) -> float:
    """Wait until nothing runs; return the seconds that it took."""
    started = time.monotonic()
    while num_running(url):
        assert time.monotonic() - started < limit_s, "a request goes on that nobody waits for"
        time.sleep(0.01)
    return time.monotonic() - started
