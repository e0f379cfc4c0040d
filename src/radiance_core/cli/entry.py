"""Where every program begins: Ctrl-C ends it in order from here on, also while it imports the rest.

What is imported here is little, so that next to nothing comes before. ``radiance`` begins with
``main``; the programs beside it lie in ``__main__`` of their packages, and begin with ``begin``.
"""

import gc
import os
import signal
import sys
from pathlib import Path

INTERRUPTED = 130
"""The status of what Ctrl-C ended, as shells know it."""


def main() -> None:
    """Run the command line of ``radiance``."""
    begin()
    # What a start makes stays. To look through it again and again is a fifth of the start; commands
    # that go on for long turn the collector on when they have loaded (keep_what_is_loaded).
    gc.disable()
    from radiance_core.cli.main import main as run

    run()


def begin() -> None:
    """Do what a program does first, before it imports what it consists of."""
    signal.signal(signal.SIGINT, _leave)
    _open_missing_streams()


def _open_missing_streams() -> None:
    """Give a program that was started without standard streams empty ones.

    Else their numbers would be those of the first files that it opens.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (kept)


def _leave(*_: object) -> None:
    """End at once: before there is a server or an answer, nothing needs an orderly end.

    An exception would pass through whatever is being imported or loaded, and some of that takes
    it for a fault of its own.
    """
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
