"""``--live``: the numbers of a running server, drawn on a terminal or printed a line a second."""

import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from radiance_core.cli.figures import Figures, Look, figures, look, pool_pages, spell
from radiance_core.server.lifecycle import Server

DRAW_EVERY_S = 0.5
LINE_EVERY_S = 1.0
WIDTH = 30
_LEVELS = "▁▂▃▄▅▆▇█"


class LiveView:
    """Shows a server's numbers until it is stopped.

    It has a thread of its own, since a terminal that is held (Ctrl-S) must not hold the server.
    The cursor is left as it is, so that whatever ends the process there is nothing to restore.

    Args:
        server: one that has its model, or is about to.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._state = server.state
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)

    def start(self) -> None:
        """Begin to show."""
        self._thread.start()

    def stop(self) -> None:
        """Show no more; leave the last numbers where they are."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(1)

    def _run(self) -> None:
        from rich.console import Console

        console = Console(file=sys.stdout)
        try:
            if console.is_terminal and not console.is_dumb_terminal:
                self._draw(console)
            else:
                self._print()
        except (OSError, ValueError):
            return  # nobody reads any more, or standard output is closed

    def _print(self) -> None:
        for _, now in self._looks(LINE_EVERY_S):
            print(now.line(), flush=True)

    def _draw(self, console: Any) -> None:
        from rich.live import Live

        past: deque[float] = deque(maxlen=WIDTH)
        # What is logged to the same terminal is printed above; a log file gets it as it is.
        live = Live(
            console=console, auto_refresh=False, redirect_stderr=bool(sys.stderr.isatty())
        )  # fmt: skip
        with live:
            console.show_cursor(True)
            for seen, now in self._looks(DRAW_EVERY_S):
                past.append(now.generated_per_s)
                live.update(self._table(seen, now, past), refresh=True)

    def _looks(self, every_s: float) -> Iterator[tuple[Look, Figures]]:
        while self._state.serving is None:
            if self._ended.wait(0.02):
                return
        before = look(self._state)
        ended = False
        while not ended:
            # What is shown last stays on the screen, so it is looked at once more at the end.
            ended = self._ended.wait(every_s)
            seen = look(self._state)
            yield seen, figures(before, seen)
            before = seen

    def _table(self, seen: Look, now: Figures, past: "deque[float]") -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        name = self._state.attached().names[0]
        table.add_row(Text("radiance", style="bold"), Text(f"{name}  {self._server.url}"))
        for head, text in rows(now):
            table.add_row(Text(head), Text(text))
        table.add_row(Text("last"), Text(f"{sparkline(past)} tokens/s, up to {spell(max(past))}"))
        for pool, (used, held, total) in pool_pages(seen.engine).items():
            table.add_row(Text(f"cache {pool}"), Text(pool_bar(used, held, total)))
        return table


def rows(now: Figures) -> list[tuple[str, str]]:
    """Spell the figures for people, some to a row."""
    return [
        ("requests", f"{now.running} running, {now.waiting} waiting, {now.finished} finished, "
                     f"{now.failed} failed"),
        ("decode", f"{spell(now.step_ms)} ms a step, {spell(now.generated_per_s)} tokens/s"),
        ("prompts", f"{spell(now.prompt_per_s)} tokens/s, {_percent(now.hit_rate)} found in the "
                    f"cache, first token after {spell(now.first_token_ms)} ms"),
        ("drafts", f"{_percent(now.draft_accepted)} accepted"),
    ]  # fmt: skip


def pool_bar(used: float, held: float, total: float) -> str:
    """Draw a pool: in flight, held for prompts alike, free."""
    places = [round(WIDTH * pages / total) for pages in (used, used + held, total)]
    drawn = "█" * places[0] + "▒" * (places[1] - places[0]) + "·" * (places[2] - places[1])
    return f"{drawn} {used:.0f} in flight, {held:.0f} held, {total - used - held:.0f} free"


def sparkline(values: "deque[float]") -> str:
    """Draw values as bars, the greatest as high as there is."""
    most = max(values, default=0) or 1
    return "".join(_LEVELS[round(value / most * (len(_LEVELS) - 1))] for value in values)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
