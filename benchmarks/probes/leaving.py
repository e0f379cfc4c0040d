"""Clients that leave in the middle of an answer."""

import re
import time

from probes.exchange import CHAT
from probes.table import Probe, Seen
from probes.target import Target, wait_until

FREE_LIMIT_S = 20.0
_RUNNING = re.compile(r"^vllm:num_requests_running(?:{[^}]*})? (\S+)$", re.MULTILINE)


def running(target: Target) -> float | None:
    """Return how many requests the server says that it runs, None when it does not say."""
    if isinstance(load := target.client.get("/load").decoded.get("server_load"), int | float):
        return float(load)
    found = _RUNNING.search(target.client.get("/metrics").body.decode("utf-8", "replace"))
    return float(found[1]) if found else None


def disconnect(target: Target) -> Seen:
    """Leave a long streamed answer after three tokens; say when its seat was free again."""
    long = target.chat("Count to a thousand in words.", max_tokens=4000, ignore_eos=True)
    if running(target) is None:
        return _by_waiting(target, long)
    with target.client.stream(long) as stream:
        got = stream.skip(4)
        busy = running(target)
    left = time.monotonic()
    free = wait_until(lambda: running(target) == 0, FREE_LIMIT_S)
    took = time.monotonic() - left
    if not busy or got < 4:
        return Seen(None, f"the stream was over before the client left ({got} events)")
    text = f"free {took:.2f} s later" if free else f"still busy after {FREE_LIMIT_S:.0f} s"
    return Seen(free and took <= 0.5, text)


def _by_waiting(target: Target, long: dict[str, object]) -> Seen:
    """Compare another request's time afterwards with its time on a quiet server."""
    quiet = target.canary().seconds
    with target.client.stream(long) as stream:
        got = stream.skip(4)
    answer = target.client.post(CHAT, target.chat("Count from one to five."))
    extra = answer.seconds - quiet
    text = (
        f"no count of running requests to read; after {got} events a small request took "
        f"{answer.seconds:.2f} s, {quiet:.2f} s on a quiet server"
    )
    return Seen(answer.status == 200 and extra <= 0.5, text)


PROBES = [Probe("client leaves in mid-stream", "its seat is free within 0.5 s", disconnect)]
