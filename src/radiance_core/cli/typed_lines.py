"""Lines that someone types, or that a pipe holds, for ``radiance chat``."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from radiance_core.config import draws_on_terminal

HISTORY_LINES = 1000
WAKE_S = 0.2


def history_file() -> Path:
    """Return where the lines that were typed are kept, for this user alone."""
    from platformdirs import user_state_path

    return user_state_path("radiance", appauthor=False) / "chat_history"


@contextmanager
def edited_lines(history: Path | None) -> Iterator[bool]:
    """Have lines edited while they are typed, and found again, as far as this terminal can.

    Args:
        history: keeps them for the next time; None for nothing.

    Yields: whether they are edited.
    """
    readline = _readline()
    if readline is None:
        yield False
        return
    readline.set_history_length(HISTORY_LINES)
    if history is not None:
        with suppress(OSError):  # none yet, or it cannot be read
            readline.read_history_file(history)
    try:
        yield True
    finally:
        if history is not None:
            _keep(readline, history)


def _readline() -> ModuleType | None:
    """Return what edits lines, where there is a terminal that can be drawn on."""
    ends = sys.stdin.isatty() and sys.stdout.isatty()
    if not ends or not draws_on_terminal():
        return None
    try:
        import readline
    except ImportError:  # Python can be built without it
        return None
    return readline


def _keep(readline: ModuleType, history: Path) -> None:
    # A conversation must not end in an error because its lines cannot be kept.
    with suppress(OSError):
        history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(history, os.O_CREAT | os.O_WRONLY, 0o600))
        readline.write_history_file(history)


def read_line(prompt: str, *, edited: bool) -> str:
    """Return a line of input.

    Raises:
        EOFError: the input has ended.
        KeyboardInterrupt: Ctrl-C.
    """
    if edited:
        with _woken_often():
            return input(prompt)
    if prompt:
        _wait(prompt)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


@contextmanager
def _woken_often() -> Iterator[None]:
    """Interrupt the wait for a key now and then, so that Ctrl-C is never lost.

    The editing input looks for signals only when one ends its wait, and so sleeps over one that
    came just before the wait began: the next of these finds that too.
    """
    before = signal.signal(signal.SIGALRM, lambda _number, _frame: None)
    signal.setitimer(signal.ITIMER_REAL, WAKE_S, WAKE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _wait(prompt: str) -> None:
    """Prompt and wait for a line, so that Ctrl-C is never lost.

    The built-in input loses one that comes between the prompt and the wait for a key. Here the
    signal also writes to a pipe that is waited for together with the terminal.
    """
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(wake)
    try:
        sys.stdout.write(prompt)
        sys.stdout.flush()
        while sys.stdin not in select.select([sys.stdin, woken], [], [])[0]:
            os.read(woken, 64)
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wake)
