"""A conversation in a terminal that can be drawn on: lines are edited, kept and found again."""

from pathlib import Path

import pytest

from .terminal import Terminal
from .test_cli import model

__all__ = ["model"]
UP, CTRL_A, CTRL_K, PASTE, PASTED = "\x1b[A", "\x01", "\x0b", "\x1b[200~", "\x1b[201~"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the state of programs goes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_lines_are_edited_and_found_again(model: str, state: Path) -> None:
    """Keys of a shell work, and what was typed in one conversation is there in the next."""
    for turn in range(2):
        t = Terminal(["chat", model, "--temp", "0", "--max-tokens", "8"], kind="xterm")
        try:
            t.expect(r"temperature 0, top-p 0\.95 .*> ")
            if turn == 0:
                t.type(f"nothing{CTRL_A}{CTRL_K}/wrong\n")
            else:
                t.type(f"{UP}\n")
            t.expect(r"/wrong: expected /clear or a message[^>]*> ")
            t.type("\x03")
            # Ctrl-D means the end only to who reads keys: before the prompt it would be lost.
            t.expect(r"\(Ctrl-D ends the conversation\)[^>]*> ")
            t.type("\x04")
            assert t.end() == 0
            assert "Traceback" not in t.output
        finally:
            t.kill()
    history = state / "radiance" / "chat_history"
    assert "/wrong" in history.read_text().splitlines()
    assert history.stat().st_mode & 0o777 == 0o600


def test_a_pasted_text_is_one_message(model: str, state: Path) -> None:
    """Lines that are pasted at once are answered at once; without a history no file is made."""
    ask = ["chat", model, "--temp", "0", "--max-tokens", "8", "--no-history"]
    t = Terminal(ask, kind="xterm")
    try:
        t.expect(r"> ")
        t.type(f"{PASTE}Here are two lines.\nSay hello.{PASTED}\n")
        t.expect(r"\[\d+ tokens, \d+\.\d/s, first after \d+\.\d\d s\][^>]*> ")
        t.type("\x04")
        assert t.end() == 0
        assert t.output.count(" tokens, ") == 1
    finally:
        t.kill()
    assert not list(state.iterdir())
