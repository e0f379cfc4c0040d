"""``--live``: on a terminal, on a pipe, beside logs."""

import json
import re
import signal
import time
import urllib.request

import pytest
from live_server import LiveServer, running, small_model
from promptness import usually

from .terminal import Terminal

OPTIONS = ["--model", str(small_model()), "--port", "0", "--max-num-seqs", "4", "--live"]


def ask(url: str) -> None:
    body = {"prompt": "1, 2, 3,", "max_tokens": 120, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as got:
        got.read()


def looks_of(server: LiveServer) -> list[dict[str, str]]:
    """The lines that were printed, each as its keys and values."""
    lines = re.findall(r"^running=.*(?=\n)", server.output, re.M)
    return [dict(pair.split("=") for pair in line.split()) for line in lines]


def test_a_line_a_second_where_there_is_no_terminal() -> None:
    """Lines of key=value tell of the work, one a second, with no control character in them.

    None comes sooner than a second after the one before, but for one more at the end.
    """
    began = time.monotonic()
    with running("--live", "--max-num-seqs", "4") as server:
        ask(server.url)

        def another() -> float:
            seen, since = len(looks_of(server)), time.monotonic()
            while len(looks_of(server)) == seen:
                assert time.monotonic() - since < 240, server.output
                time.sleep(0.01)
            return time.monotonic() - since

        assert usually(another, 2) < 2
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    took = time.monotonic() - began
    looks = looks_of(server)
    assert len(looks) <= took + 1
    assert "\x1b" not in server.output
    assert max(float(look["generated_per_s"]) for look in looks) > 1
    assert any(look["step_ms"] != "-" and float(look["step_ms"]) > 0 for look in looks)
    assert looks[-1]["finished"] == "1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_terminal_is_drawn_on_and_left_as_it_was(number: int) -> None:
    """Numbers move in place, log lines stay above them, the cursor is never left hidden."""
    terminal = Terminal(OPTIONS, kind="xterm")
    try:
        url = terminal.expect(r"(http://127\.0\.0\.1:\d+)")[1]
        terminal.expect(r"requests\s+0 running, 0 waiting, 0 finished")
        ask(url)
        # A terminal wraps a log line, and the numbers stand below it again.
        terminal.expect(r"event=http_request method=POST")
        terminal.expect(r"requests\s+0 running, 0 waiting, 1 finished")
        terminal.expect(r"cache \w+")
        assert "█" in terminal.output
        assert "\x1b[2K" in terminal.output, "what was drawn is drawn over"
        terminal.process.send_signal(number)
        assert terminal.end() == (0 if number == signal.SIGINT else -number)
        hidden, shown = terminal.output.rfind("\x1b[?25l"), terminal.output.rfind("\x1b[?25h")
        assert shown > hidden
    finally:
        terminal.kill()
