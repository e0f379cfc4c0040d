"""What a server says on standard output while it starts."""

import sys
import time

import click

from radiance_core.build import Plan
from radiance_core.config import Config
from radiance_core.discover import core_version
from radiance_core.engine.interface import TextModel
from radiance_core.resolve.report import selection_text
from radiance_core.startup_report import chat_line, placement_text, ready_line, report


def tell_plan(plan: Plan, config: Config) -> None:
    """Say what will be loaded."""
    if config.flag("debug-selection"):
        click.echo(selection_text(plan.resolution.nodes))
    if config.flag("debug-placement"):
        click.echo(placement_text(plan))
    click.echo(report(plan, config, core_version()))
    sys.stdout.flush()


def tell_ready(model: TextModel, plan: Plan, started: float) -> None:
    """Say how the model chats, and how long all of it took since ``started``."""
    if model.template_variables is not None:
        click.echo(chat_line(model.chat_format))
    click.echo(ready_line(time.monotonic() - started, plan.stage_seconds))


def tell_address(url: str, *, keyed: bool) -> None:
    """Say where the server is and how to ask it."""
    click.echo(f"{url}   dashboard /   models /v1/models   metrics /metrics")
    click.echo(_example(url, keyed=keyed))
    sys.stdout.flush()


def _example(url: str, *, keyed: bool) -> str:
    """Return a command to paste; a key stands in it by the variable that holds it, never itself."""
    local = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    key = '-H "authorization: Bearer $RADIANCE_API_KEY" ' if keyed else ""
    return (
        f"try: curl {local}/v1/chat/completions {key}-H 'content-type: application/json' "
        '-d \'{"messages":[{"role":"user","content":"hi"}]}\''
    )
