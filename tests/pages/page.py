"""The fenced blocks of a Markdown page.

The word after the fence is the language; words behind it say what to do with the block::

    ```c file=mylib/mylib.c      write this file
    ```python                    run it
    ```console                   run each `$ ` line and compare what it prints with the lines below
    ```console fails             the same, and each command must fail
    ```console not-run           for reading only; the page says why
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(?P<info>[^`\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = ("python", "console")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. ``line``: of its first line of text; ``file``: where its text belongs."""

    page: Path
    line: int
    language: str
    words: frozenset[str]
    file: str | None
    text: str

    @property
    def does_something(self) -> bool:
        """Whether following the page means more than reading this block."""
        return "not-run" not in self.words and (self.file is not None or self.language in RUN)

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a console block and the lines it should print, `...` standing for anything."""

    text: str
    expected: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    source = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(source):
        language, *words = shlex.split(match["info"]) or [""]
        files = [w.removeprefix("file=") for w in words if w.startswith("file=")]
        found.append(
            Block(
                page,
                source.count("\n", 0, match.start("text")) + 1,
                language,
                frozenset(words),
                files[0] if files else None,
                match["text"],
            )
        )
    return found


def commands(block: Block) -> list[Command]:
    """Return the commands of a console block; a command goes on where the shell would."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and not found[-1][1] and _goes_on(found[-1][0]):
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        elif found:
            found[-1][1].append(line)
        else:
            raise ValueError(f"{block}: expected a line that begins with '$ ', got {line!r}")
    return [Command(text, tuple(expected)) for text, expected in found]


def _goes_on(text: str) -> bool:
    """Return whether the shell would read on: a backslash at the end, or an open quote."""
    return text.endswith("\\") or text.count("'") % 2 == 1


def matches(expected: tuple[str, ...], printed: str, *, whole: bool = True) -> bool:
    """Return whether what was printed is what the page shows, up to space at the ends of lines."""
    parts = []
    for line in expected:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            pieces = (re.escape(p) for p in line.rstrip().split("..."))
            parts.append(r"[^\n]*?".join(pieces) + r"[ \t]*\n")
    pattern = "".join(parts)
    text = printed.strip("\n") + "\n"
    return bool((re.fullmatch if whole else re.match)(pattern, text))
