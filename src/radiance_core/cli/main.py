"""``radiance``: serve a model, or run one of the commands."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from radiance_core.cli.command import EXIT_ERROR, run_command
from radiance_core.cli.options import config_of, given, hand_down, setting_options
from radiance_core.config import Config
from radiance_core.nearest import did_you_mean
from radiance_core.settings import SAMPLING_SETTINGS

_SAMPLING = tuple(s.name for s in SAMPLING_SETTINGS if "max-tokens" not in s.name)
_BUILDING = (
    "kernels", "max-model-len", "threads", "memory-mib", "gpu-headroom-mib", "kv-cache-dtype",
    "activations", "num-speculative-tokens", "tuning", "debug-accept-reference-kernels",
)  # fmt: skip


class _Group(click.Group):
    """A group whose unknown command is answered with the nearest one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None:
            hint = did_you_mean(name, self.commands) or "."
            model = name if Path(name).exists() or name.endswith(".gguf") else "FILE"
            raise click.UsageError(
                f"unknown command {name!r}{hint} To serve a model: radiance --model {model}", ctx
            )
        return super().resolve_command(ctx, args)


@click.group(cls=_Group, invoke_without_command=True, context_settings={"max_content_width": 100})
@click.version_option(package_name="radiance", message="radiance %(version)s")
@setting_options()
@click.pass_context
def cli(context: click.Context, /, **params: Any) -> None:
    """Serve a model over OpenAI-compatible HTTP: radiance --model FILE --port 8000.

    Every setting can also stand in radiance.toml (port = 8001) or in the environment
    (RADIANCE_PORT=8001); a flag goes before the environment, and that before the file.
    """
    if context.invoked_subcommand is not None:
        hand_down(context, cli, params)
        return
    config = config_of(context, params)
    if config.values["model"] is None:
        if given(context, params):
            raise click.UsageError(
                "--model is missing: expected a GGUF file, a safetensors folder or a hub id to "
                "serve with these settings.", context,
            )  # fmt: skip
        from radiance_core.cli.welcome import welcome

        click.echo(welcome())
        return
    context.exit(_serve(config))


def _serve(config: Config) -> int:
    """Serve; the process for the chat template starts while this one imports the rest."""
    from radiance_core.text.template_process import TemplateProcess

    templates = TemplateProcess()
    templates.start()
    try:
        from radiance_core.cli.serve import serve

        return serve(config, templates)
    finally:
        templates.close()


@cli.command()
@click.argument("model", required=False)
@click.option("--system", metavar="TEXT", help="system message to begin with")
@setting_options(*_BUILDING, "generation-config", *_SAMPLING)
@click.option("--max-tokens", type=click.IntRange(1), default=None, help="tokens of one answer")
@click.option("--seed", type=int, default=None, help="make the draws repeatable")
@click.option("--no-history", is_flag=True, help="keep no file of the lines that were typed")
@click.pass_context
def chat(context: click.Context, /, model: str | None, **params: Any) -> None:
    """Talk to MODEL in the terminal; Ctrl-C stops an answer, Ctrl-D ends."""
    from radiance_core.cli.chat import Ask, run_chat

    config = config_of(context, params)
    ask = Ask(params["system"], params["max_tokens"], params["seed"])
    context.exit(run_chat(config, model, ask, keeps_history=not params["no_history"]))


@cli.command()
@click.argument("model", required=False)
@click.argument("prompt", required=False)
@click.option("--system", metavar="TEXT", help="system message before the prompt")
@setting_options(*_BUILDING, "generation-config", *_SAMPLING)
@click.option("--max-tokens", type=click.IntRange(1), default=None, help="tokens of the answer")
@click.option("--seed", type=int, default=None, help="make the draws repeatable")
@click.option("--raw", is_flag=True, help="continue PROMPT as it is, without the chat template")
@click.pass_context
def run(
    context: click.Context,
    /,
    model: str | None,
    prompt: str | None,
    **params: Any,
) -> None:
    """Answer PROMPT with MODEL once, on standard output.

    Without PROMPT, or with - for it, it is read from standard input, whole.
    """
    from radiance_core.cli.chat import Ask, run_once
    from radiance_core.cli.prompt_text import prompt_text

    if prompt is None and context.get_parameter_source("model") is ParameterSource.COMMANDLINE:
        before = context.lookup_default("model")  # radiance --model MODEL run PROMPT
        model, prompt = (before, model) if before else (model, prompt)
    if params["raw"] and params["system"] is not None:
        raise click.UsageError("--system: expected without --raw, which has no messages.", context)
    text = prompt_text(prompt)
    if text is None or model is None:
        raise click.UsageError(f"Missing argument '{'MODEL' if model is None else 'PROMPT'}'.")
    config = config_of(context, params)
    ask = Ask(params["system"], params["max_tokens"], params["seed"])
    context.exit(run_once(config, model, text, ask, raw=params["raw"]))


@cli.command()
@setting_options("kernels")
@click.pass_context
def plugins(context: click.Context, /, **params: Any) -> None:
    """List plugins: what each serves, and why it was or was not chosen."""
    from radiance_core.cli.plugins import plugins_text

    click.echo(plugins_text(config_of(context, params).names("kernels") or None))


@cli.command()
@click.argument("file", metavar="[MODEL]", required=False)
@setting_options("model", "max-num-seqs", "max-num-batched-tokens", *_BUILDING)
@click.pass_context
def doctor(context: click.Context, /, file: str | None, **params: Any) -> None:
    """Print a report to paste when something is wrong, also of how MODEL would be served."""
    from radiance_core.cli.doctor import doctor_text

    text, sound = doctor_text(file, lambda: config_of(context, params))
    click.echo(text)
    context.exit(0 if sound else EXIT_ERROR)


@cli.group()
def config() -> None:
    """Look at settings."""


@config.command("show")
@setting_options()
@click.pass_context
def config_show(context: click.Context, /, **params: Any) -> None:
    """Print every setting, its value, and where it came from."""
    from radiance_core.cli.settings import settings_text

    click.echo(settings_text(config_of(context, params)))


def main() -> None:
    """Run the command line."""
    run_command(cli, "radiance")


if __name__ == "__main__":
    main()
