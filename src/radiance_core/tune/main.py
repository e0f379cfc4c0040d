"""``rad-tune``: measure the axes of a model's kernels, and write down what is faster here."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from radiance_abi.errors import ConfigurationError
from radiance_core.build import Plan, measured_on, plan_model
from radiance_core.cli.model_settings import build_settings, resolve_model
from radiance_core.cli.options import config_of, setting_options
from radiance_core.config import Config
from radiance_core.resolve.tuning_file import NONE, machine_file
from radiance_core.tune.bench import Bench
from radiance_core.tune.places import Place, find_places
from radiance_core.tune.report import found_lines, place_lines, summary
from radiance_core.tune.search import Found, search
from radiance_core.tune.verdict import LEAST_ROUNDS
from radiance_core.tune.written import earlier, merge, write

_SETTINGS = (
    "model", "kernels", "threads", "max-num-seqs", "max-num-batched-tokens", "max-model-len",
    "memory-mib", "gpu-headroom-mib", "kv-cache-dtype", "activations", "num-speculative-tokens",
    "debug-accept-reference-kernels",
)  # fmt: skip


@click.command(context_settings={"max_content_width": 100})
@setting_options(*_SETTINGS)
@click.option("--op", default="", help="tune the kernels whose op contains this text")
@click.option(
    "--rounds",
    type=click.IntRange(LEAST_ROUNDS),
    default=21,
    show_default=True,
    help="how often each value is run; with fewer than 10, nothing can be told from noise",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="file to write  [default: this machine's, which serving reads]",
)
@click.option("--list", "only_list", is_flag=True, help="print what would be measured, and exit")
@click.pass_context
def tune(context: click.Context, /, **params: Any) -> None:
    """Measure the axes of the kernels that serve a model, and write down what is faster.

    Values are run on the model's own weights, in turn with the defaults, with as many threads as
    serving uses. One is kept where it wins by more than noise. What is written is read when a model
    is served here; choices for other models stay in the file.
    """
    config = config_of(context, params)
    if config.values["model"] is None:
        raise ConfigurationError(
            "--model is missing: expected a GGUF file, a safetensors folder or a hub id"
        )
    _tune(config, params)


def _tune(config: Config, params: Mapping[str, Any]) -> None:
    settings = build_settings(config, resolve_model(config.text("model")))
    plan = plan_model(replace(settings, tuning=NONE))
    here = measured_on(plan.settings, plan.machine, plan.libraries)
    click.echo(f"{here.processor}, {here.threads} threads, {plan.metadata.checkpoint.path.name}")
    places = _places(plan, params["op"])
    if params["only_list"]:
        click.echo("\n".join(line for place in places for line in place_lines(place)))
        return
    output = params["output"] or machine_file(here.processor, here.threads)
    earlier(output, here)  # another machine's file is told before anything is measured
    today = datetime.now(UTC).astimezone().date()

    def save(found: Sequence[Found]) -> None:
        measured = [f.place.choice(f.values, f.gain, today) for f in found]
        chosen = [choice for choice in measured if choice.values]
        # What others have written meanwhile stays.
        write(output, *merge(here, earlier(output, here), measured, chosen))

    save(())  # what cannot be written is told before anything is measured
    found = _measure(plan, places, params["rounds"], save)
    click.echo(summary(found))
    click.echo(f"written to {output}")


def _places(plan: Plan, op: str) -> list[Place]:
    places = [p for p in find_places(plan.resolution.nodes, plan.largest) if op in p.band.kernel.op]
    if not places:
        option, named = ("--op", f" whose op contains {op!r}") if op else ("--model", "")
        raise ConfigurationError(
            f"{option}: expected a kernel with axes{named} among those that serve this model, got "
            "none; --debug-graph of radiance shows them"
        )
    return places


def _measure(
    plan: Plan, places: Sequence[Place], rounds: int, save: Callable[[Sequence[Found]], None]
) -> list[Found]:
    """Return what was found; it is saved after each place, so that nobody has to wait for all."""
    bench = Bench(plan)
    found: list[Found] = []
    try:
        for number, place in enumerate(places, 1):
            _progress("")
            click.echo("\n".join(place_lines(place)))

            def progress(text: str, number: int = number) -> None:
                _progress(f"{number} of {len(places)}: {text}")

            found.append(search(bench, place, rounds, progress))
            _progress("")
            click.echo("\n".join(found_lines(found[-1])))
            save(found)
    finally:
        bench.close()
    return found


def _progress(text: str) -> None:
    """Show what is being run, on a terminal only."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)
