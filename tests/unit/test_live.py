"""The live numbers: what they are of, and how they are drawn."""

import io
import random
import threading
import time
from collections import deque

import pytest

from radiance_core.cli import live
from radiance_core.cli.figures import Figures, Look, figures, pool_pages, spell
from radiance_core.server.counts import Counts
from radiance_core.server.lifecycle import Server
from radiance_core.server.settings import ServerSettings

POOLS = {"kv_pages_total_full": 50, "kv_pages_used_full": 20, "kv_pages_cached_full": 5,
         "kv_pages_total_window": 10, "kv_pages_used_window": 1}  # fmt: skip


def test_rates_are_of_the_time_between_two_looks():
    """Each figure is the gain of its counters; shares of nothing are unknown."""
    start, seconds = random.uniform(0, 1e6), random.uniform(0.3, 3)
    old = {name: random.randint(0, 1000) for name in (
        "decode_steps", "tokens_generated", "prompt_tokens", "prefix_cache_queries",
        "prefix_cache_hits", "draft_tokens", "accepted_tokens",
    )} | {"decode_seconds": random.uniform(0, 9)}  # fmt: skip
    gains = {"decode_steps": 40, "decode_seconds": 0.6, "tokens_generated": 160,
             "prompt_tokens": 64, "prefix_cache_queries": 100, "prefix_cache_hits": 25}  # fmt: skip
    new = {name: value + gains.get(name, 0) for name, value in old.items()}
    new |= {"requests_running": 4, "requests_waiting": 2, "requests_failed": 1, **POOLS}
    got = figures(Look(start, old, 10, 5.0, 9), Look(start + seconds, new, 14, 5.8, 12))
    assert got == Figures(
        4, 2, pytest.approx(15), pytest.approx(160 / seconds), pytest.approx(64 / seconds),
        0.4, 0.1, 0.25, None, pytest.approx(200), 12, 1,
    )  # fmt: skip
    assert pool_pages(new) == {"full": (20, 5, 50), "window": (1, 0, 10)}


def test_a_line_has_every_figure_as_a_pair():
    """One line, no space in a value, unknown figures are a dash."""
    look = Look(0, {}, 0, 0, 0)
    line = figures(look, Look(1, {}, 0, 0, 0)).line()
    pairs = dict(part.split("=") for part in line.split(" "))
    assert list(pairs) == list(Figures.__dataclass_fields__)
    assert (pairs["running"], pairs["step_ms"], pairs["generated_per_s"]) == ("0", "-", "0")
    assert [spell(v) for v in (None, 0.0, 3, 0.01234, 12.345, 1234.5)] == [
        "-", "0", "3", "0.0123", "12.3", "1234",
    ]  # fmt: skip


def test_bars_have_the_width_of_their_pool():
    """Whatever the shares, a pool's bar has its three parts and always the same width."""
    for _ in range(200):
        total = random.randint(1, 10_000)
        used = random.randint(0, total)
        held = random.randint(0, total - used)
        drawn, _, words = live.pool_bar(used, held, total).partition(" ")
        assert len(drawn) == live.WIDTH
        assert drawn == "█" * drawn.count("█") + "▒" * drawn.count("▒") + "·" * drawn.count("·")
        assert abs(drawn.count("█") / live.WIDTH - used / total) <= 1 / live.WIDTH
        assert words == f"{used} in flight, {held} held, {total - used - held} free"
    assert live.sparkline(deque([0.0, 5.0, 10.0])) == "▁▅█"
    assert live.sparkline(deque([0.0, 0.0])) == "▁▁"


class Steady:
    """As much of an engine as is looked at."""

    def __init__(self):
        self.failing = False

    def stats(self):
        return {"requests_running": 1, **POOLS}


class Named:
    model_id, created = "tiny", 0


@pytest.fixture
async def server():
    made = Server(ServerSettings(port=0), "1")
    made.state.counts = Counts()
    return made


@pytest.fixture
def looked(monkeypatch):
    """Set when a view has looked at its server."""
    happened, look = threading.Event(), live.look

    def noted(state):
        seen = look(state)
        happened.set()
        return seen

    monkeypatch.setattr(live, "look", noted)
    return happened


def ended(view):
    """Stop a view; its thread may be slow, but ends."""
    view.stop()
    view._thread.join(60)
    return not view._thread.is_alive()


async def show(server, monkeypatch, looked, out, attach_after_s=0.0, lines=0):
    """Show a server until some lines are there; return for how long it had a model."""
    monkeypatch.setattr(live, "LINE_EVERY_S", 0.05)
    monkeypatch.setattr("sys.stdout", out)
    view = live.LiveView(server)
    view.start()
    time.sleep(attach_after_s)
    began = time.monotonic()
    server.attach(Steady(), Named())
    assert looked.wait(60)
    while out.getvalue().count("\n") < lines:
        assert time.monotonic() - began < 60, out.getvalue()
        time.sleep(0.01)
    assert ended(view)
    return time.monotonic() - began


async def test_redirected_it_is_lines(server, monkeypatch, looked):
    """Without a terminal there are plain lines, from the moment that there is a model."""
    out = io.StringIO()
    took = await show(server, monkeypatch, looked, out, 0.2, lines=3)
    lines = out.getvalue().splitlines()
    assert 3 <= len(lines) <= took / 0.05 + 1, "one a turn and one at the end"
    assert all(line.startswith("running=1 waiting=0 ") for line in lines)
    assert "\x1b" not in out.getvalue()


async def test_the_last_look_is_of_the_end(server, monkeypatch, looked):
    """What stays on the screen is what was true when the view was stopped."""
    out = io.StringIO()
    monkeypatch.setattr(live, "LINE_EVERY_S", 60)
    monkeypatch.setattr("sys.stdout", out)
    server.attach(Steady(), Named())
    view = live.LiveView(server)
    view.start()
    assert looked.wait(60)
    server.state.counts.finished["stop"] += 7
    assert ended(view)
    (line,) = out.getvalue().splitlines()
    assert " finished=7 " in line


async def test_a_reader_that_left_ends_the_view_only(server, monkeypatch):
    """A closed pipe stops the lines and raises nowhere."""
    tried = threading.Event()

    class Closed(io.StringIO):
        def flush(self):
            tried.set()
            raise BrokenPipeError

    monkeypatch.setattr(live, "LINE_EVERY_S", 0.05)
    monkeypatch.setattr("sys.stdout", Closed())
    server.attach(Steady(), Named())
    view = live.LiveView(server)
    view.start()
    assert tried.wait(60)
    view._thread.join(60)
    assert not view._thread.is_alive()
    assert ended(view)


async def test_a_view_that_never_began_can_be_stopped(server):
    """Stopping without a start, as after a load that failed, does nothing."""
    live.LiveView(server).stop()
