"""Every page does what it says."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages.environment import overlay
from pages.following import Follower
from pages.page import Block, Command, blocks, commands, matches

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("plugins/*/README.md")),
    ROOT / "abi" / "README.md",
]
ACTIVE = [p for p in PAGES if any(b.does_something for b in blocks(p))]


def name_of(page: object) -> str:
    return str(page.relative_to(ROOT)) if isinstance(page, Path) else str(page)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", ACTIVE, ids=name_of)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Files are written, code runs, commands print what is shown, servers stop cleanly."""
    if pytestconfig.getoption("--rewrite-help"):
        rewrite_help(page, overlay(tmp_path / "env"))
    work = tmp_path / "work"
    work.mkdir()
    Follower(work, overlay(tmp_path / "env")).follow(page)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file that is there."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", ACTIVE, ids=name_of)
def test_python_on_a_page_is_as_tidy_as_the_tree(page: Path, tmp_path: Path) -> None:
    """Python on a page is formatted as the tree is, and passes its linter as scripts do."""
    for number, block in enumerate(b for b in blocks(page) if b.language == "python"):
        ast.parse(block.text)
        file = tmp_path / f"block{number}.py"
        file.write_text(block.text, encoding="utf-8")
        for command in (
            ["ruff", "format", "--diff"],
            ["ruff", "check", "--extend-ignore", "D,T20,S,INP,ARG002,PT017"],
        ):
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    *command,
                    "--config",
                    str(ROOT / "pyproject.toml"),
                    str(file),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"


def rewrite_help(page: Path, bin_folder: Path) -> None:
    """Put the present text below each `--help` command of a page."""
    follower = Follower(ROOT, bin_folder)
    source = page.read_text("utf-8")
    for block in blocks(page):
        for command in commands(block) if block.language == "console" else ():
            if not command.text.endswith("--help") or "not-run" in block.words:
                continue
            shown = subprocess.run(
                ["bash", "-c", command.text],
                env=follower.environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            shown = "".join(f"{line.rstrip()}\n" for line in shown.splitlines())
            source = source.replace(block.text, f"$ {command.text}\n{shown}")
    page.write_text(source, encoding="utf-8")


def test_every_help_on_a_page_is_compared_whole() -> None:
    """A `--help` command on a page stands with its full text, none of it left to `...`."""
    found = [
        command
        for page in PAGES
        for block in blocks(page)
        if block.language == "console" and "not-run" not in block.words
        for command in commands(block)
        if command.text.endswith("--help")
    ]
    assert len(found) >= 5
    assert all(c.expected and "..." not in [e.strip() for e in c.expected] for c in found)


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        (["a"], "a\n", True),
        (["a"], "a\nb\n", False),
        (["a", "..."], "a\nb\nc\n", True),
        (["a", "...", "c"], "a\nc\n", True),
        (["a...c"], "a b c", True),
        (["a...c"], "a b\nc", False),
        (["a.c"], "abc", False),
        (["...", "x"], "x", True),
    ],
)
def test_dots_stand_for_anything_and_nothing_else_does(
    expected: list[str], printed: str, *, same: bool
) -> None:
    """The comparison that the pages rely on can fail."""
    assert matches(tuple(expected), printed) is same


def test_commands_of_a_block(tmp_path: Path) -> None:
    """A command goes on behind a backslash or inside a quote; other lines are what it prints."""
    page = tmp_path / "page.md"
    page.write_text("text\n```console fails\n$ a \\\n  b\nout\n$ c 'd\ne'\n```\n")
    (block,) = blocks(page)
    assert isinstance(block, Block)
    assert (block.line, block.words) == (3, frozenset({"fails"}))
    assert commands(block) == [Command("a \\\n  b", ("out",)), Command("c 'd\ne'", ())]
