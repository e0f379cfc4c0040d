"""SIGTERM, while idle and while an answer streams."""

import json
import time

from probes.exchange import CHAT
from probes.table import Probe, Seen
from probes.target import Target

DRAIN_LIMIT_S = 35.0


def idle(target: Target) -> Seen:
    """End a server that has nothing to do."""
    start = time.monotonic()
    target.terminate()
    status = target.ended(DRAIN_LIMIT_S)
    took = time.monotonic() - start
    if status is None:
        return Seen(False, f"still there after {took:.0f} s")
    return Seen(status in (0, "unknown") and took < 2, f"ended after {took:.2f} s, rc {status}")


def streaming(target: Target) -> Seen:
    """End a server while it answers: the answer has an end that a client understands."""
    body = target.chat("Count to a hundred in words.", max_tokens=150, ignore_eos=True)
    with target.client.stream(body) as stream:
        stream.skip(4)
        start = time.monotonic()
        target.terminate()
        late = target.client.post(CHAT, target.chat(), timeout=5)
        events = list(stream.events())
        cut = time.monotonic() - start
    status = target.ended(DRAIN_LIMIT_S)
    took = time.monotonic() - start
    end = last_event(events)
    text = f"the stream ended after {cut:.2f} s with {end}, the process after {took:.2f} s, "
    text += f"rc {status}; a request sent meanwhile got {late}"
    whole = end in ("[DONE]", "an error event")
    return Seen(whole and status in (0, "unknown") and late.status in (0, 503), text)


def last_event(events: list[str]) -> str:
    """Say in a word how a stream ended."""
    if not events:
        return "nothing"
    if events[-1] == "[DONE]":
        return "[DONE]"
    last = json.loads(events[-1])
    if "broken" in last:
        return f"a cut ({last['broken']})"
    return "an error event" if "error" in last else "no final event"


PROBES = [
    Probe(
        "SIGTERM while an answer streams",
        f"[DONE] or an error event, rc 0 within {DRAIN_LIMIT_S:.0f} s",
        streaming,
        needs="pid",
        ends=True,
    ),
    Probe("SIGTERM while idle", "rc 0 within 2 s", idle, needs="command", ends=True),
]
