"""Requests that are large: how soon they are refused, and what those beside them notice."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from probes.exchange import CHAT, JSON
from probes.refusals import refused
from probes.table import Probe, Seen
from probes.target import Target

PROMPT_BYTES = 20_000_000
DEPTH = 5_000_000
_MIB = 1 << 20


@contextmanager
def bystander(target: Target) -> Iterator[list[float]]:
    """Ask for the list of models again and again; yields how long each answer took, in seconds."""
    waits: list[float] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            waits.append(target.client.get("/v1/models").seconds)
            time.sleep(0.01)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield waits
    finally:
        done.set()
        thread.join()


def huge_prompt(target: Target) -> Seen:
    """Send a prompt of 20 MB: tokenising it is work that a count of bytes spares."""
    with bystander(target) as quiet:
        time.sleep(0.5)
    body = target.chat("a b " * (PROMPT_BYTES // 4))
    with bystander(target) as waits:
        answer = target.client.post(CHAT, body)
    seen = refused(answer, 400, 413, within_s=1.0)
    worst = max(waits)
    text = f"{seen.text}; a bystander waited {worst:.2f} s at most ({max(quiet):.2f} s before)"
    return Seen(bool(seen.ok and worst < 0.5), text)


def endless_array(target: Target) -> Seen:
    """Send an array 5,000,000 deep in a field that nobody knows."""
    before = target.resident()
    body = b'{"messages":[{"role":"user","content":"Hi"}],"max_tokens":1,"model":"'
    body += target.model.encode() + b'","unheard_of":' + b"[" * DEPTH + b"]" * DEPTH + b"}"
    seen = refused(target.client.send("POST", CHAT, body, {"content-type": JSON}), 400)
    after = target.resident()
    if before is None or after is None:
        return seen
    grown = (after - before) / _MIB
    return Seen(bool(seen.ok and grown < 64), f"{seen.text}; resident memory {grown:+.0f} MiB")


PROBES = [
    Probe("prompt of 20 MB", "400 or 413 within 1 s, bystanders wait < 0.5 s", huge_prompt),
    Probe("JSON array 5,000,000 deep", "400 within 2 s, < 64 MiB kept", endless_array),
]
