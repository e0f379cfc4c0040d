"""``--live``: on a terminal, on a pipe, beside logs."""

import json
import re
import signal
import time
import urllib.request

import pytest
from live_server import running, small_model

from .terminal import Terminal

OPTIONS = ["--model", str(small_model()), "--port", "0", "--max-num-seqs", "4", "--live"]


def ask(url: str) -> None:
    body = {"prompt": "1, 2, 3,", "max_tokens": 120, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as got:
        got.read()


def test_a_line_a_second_where_there_is_no_terminal() -> None:
    """Lines of key=value tell of the work, one a second, with no control character in them."""
    with running("--live", "--max-num-seqs", "4") as server:
        began = time.monotonic()
        ask(server.url)
        time.sleep(2.5)
        took = time.monotonic() - began
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    lines = re.findall(r"^running=.*$", server.output, re.M)
    looks = [dict(pair.split("=") for pair in line.split()) for line in lines]
    assert took - 2 <= len(looks) <= took + 3
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
        terminal.expect(r"1 finished")
        terminal.expect(r"cache \w+")
        # A terminal wraps a log line, and the numbers stand below it again.
        assert re.search(r"event=http_request method=POST.*requests ", terminal.output, re.DOTALL)
        assert "█" in terminal.output
        assert "\x1b[2K" in terminal.output, "what was drawn is drawn over"
        terminal.process.send_signal(number)
        assert terminal.end() == (0 if number == signal.SIGINT else -number)
        hidden, shown = terminal.output.rfind("\x1b[?25l"), terminal.output.rfind("\x1b[?25h")
        assert shown > hidden
    finally:
        terminal.kill()
