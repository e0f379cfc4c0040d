"""``radiance chat`` and ``radiance run``: a model in the terminal, without a server."""

import asyncio
import dataclasses
import re
import signal
import sys
import time
import uuid
from collections.abc import Sequence

import click

from radiance_abi.errors import ConfigurationError, RadianceError
from radiance_core.build import plan_model
from radiance_core.cli.loading import Loaded, keep_what_is_loaded, load_all
from radiance_core.cli.logs import configure_logs
from radiance_core.cli.model_settings import build_settings, resolve_model
from radiance_core.cli.sampling_defaults import BUILT_IN
from radiance_core.cli.typed_lines import edited_lines, history_file, read_line
from radiance_core.config import Config
from radiance_core.engine.interface import Request
from radiance_core.engine.sampling import SamplingParams

Message = dict[str, str]
# Servers are asked in OpenAI's terms, whose temperature is 1; small models ramble at that.
TEMPERATURE, TOP_P = 0.7, 0.95


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """What goes with every prompt: a system message, tokens of one answer, a seed for its draws."""

    system: str | None = None
    max_tokens: int | None = None
    seed: int | None = None

    def sampling(self, loaded: Loaded) -> SamplingParams:
        """Return how to draw: settings, then what the model says, then what suits talking."""
        model = loaded.model
        own, sources = model.default_sampling, model.sampling_sources
        calm = dataclasses.replace(
            own,
            temperature=TEMPERATURE if sources["temperature"] == BUILT_IN else own.temperature,
            top_p=TOP_P if sources["top_p"] == BUILT_IN else own.top_p,
        )
        return dataclasses.replace(
            calm, max_tokens=self.max_tokens or own.max_tokens, seed=self.seed
        )

    def begin(self) -> list[Message]:
        """Return the messages that a conversation begins with."""
        return [] if self.system is None else [{"role": "system", "content": self.system}]


def _load(config: Config, model: str | None) -> Loaded:
    # What is not wrong has no place between the lines of a conversation.
    configure_logs("error")
    name = model or config.values["model"]
    if not isinstance(name, str):
        raise ConfigurationError(
            "chat: expected a model, got none; name one: radiance chat MODEL.gguf"
        )
    settings = build_settings(config, resolve_model(name))
    plan = plan_model(dataclasses.replace(settings, max_seqs=1))
    loaded = load_all(plan, config)
    loaded.engine.start()
    keep_what_is_loaded()
    return loaded


class _Answer:
    """Streams one answer to standard output; Ctrl-C ends it, not the program."""

    def __init__(self, loaded: Loaded, ask: Ask) -> None:
        self._loaded = loaded
        self._sampling = ask.sampling(loaded)
        self.stopped = False

    async def stream(self, prompt_ids: Sequence[int]) -> str:
        request = Request(uuid.uuid4().hex, tuple(prompt_ids), self._sampling)
        task = asyncio.ensure_future(self._write(request))
        loop = asyncio.get_running_loop()
        before = signal.getsignal(signal.SIGINT)
        loop.add_signal_handler(signal.SIGINT, task.cancel)
        self.text: list[str] = []
        try:
            await task
        except asyncio.CancelledError:
            self.stopped = True
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)  # the loop leaves one that raises
        return "".join(self.text)

    async def _write(self, request: Request) -> None:
        start = time.monotonic()
        first: float | None = None
        deltas = self._loaded.engine.generate(request)
        try:
            async for delta in deltas:
                first = first or time.monotonic()
                self.text.append(delta.text)
                sys.stdout.write(delta.text)
                sys.stdout.flush()
                if delta.error is not None:
                    if any(self.text):
                        click.echo()
                    raise RadianceError(delta.error)
                if delta.finish_reason is not None and sys.stderr.isatty() and first is not None:
                    spent = max(time.monotonic() - first, 1e-9)
                    rate = max(delta.completion_tokens - 1, 0) / spent
                    click.echo(
                        click.style(
                            f"\n[{delta.completion_tokens} tokens, {rate:.1f}/s, first after "
                            f"{first - start:.2f} s]",
                            dim=True,
                        ),
                        nl=False,
                        err=True,
                    )
        finally:
            await deltas.aclose()  # type: ignore[attr-defined]


async def _ids(loaded: Loaded, messages: Sequence[Message]) -> list[int]:
    model = loaded.model
    if model.template_variables is None:
        raise ConfigurationError(
            f"{model.model_id}: the model has no chat template; use radiance run --raw to "
            "continue text"
        )
    rendered = await model.render_chat(messages, None, {})
    return model.tokenizer.encode_prompt(rendered)


def drawing(sampling: SamplingParams) -> str:
    """Spell the settings that decide most about how an answer reads."""
    return f"temperature {sampling.temperature:g}, top-p {sampling.top_p:g}"


def run_once(config: Config, model: str, prompt: str, ask: Ask, *, raw: bool) -> int:
    """Answer one prompt; return the exit status."""
    loaded = _load(config, model)

    async def work() -> int:
        if raw:
            ids = loaded.model.tokenizer.encode(prompt, add_special_tokens=True)
        else:
            ids = await _ids(loaded, [*ask.begin(), {"role": "user", "content": prompt}])
        answer = _Answer(loaded, ask)
        await answer.stream(ids)
        click.echo()
        if sys.stderr.isatty():
            click.echo(click.style(f"[{drawing(ask.sampling(loaded))}]", dim=True), err=True)
        return 130 if answer.stopped else 0

    try:
        return asyncio.run(work())
    finally:
        loaded.close()


def run_chat(config: Config, model: str | None, ask: Ask, *, keeps_history: bool = True) -> int:
    """Talk until the end of input; return the exit status."""
    loaded = _load(config, model)
    try:
        with edited_lines(history_file() if keeps_history else None) as edited:
            return _Conversation(loaded, ask, edited=edited).go_on()
    finally:
        loaded.close()


class _Conversation:
    """Reads messages and answers them, until the input ends."""

    def __init__(self, loaded: Loaded, ask: Ask, *, edited: bool) -> None:
        self._loaded = loaded
        self._ask = ask
        self._edited = edited
        self._messages = ask.begin()
        self._prompt = "> " if sys.stdin.isatty() else ""

    def go_on(self) -> int:
        """Return the exit status."""
        if self._prompt:
            click.echo(
                f"{self._loaded.model.model_id}, {drawing(self._ask.sampling(self._loaded))}  "
                "(Ctrl-C stops an answer, Ctrl-D ends, /clear starts anew)"
            )
        while True:
            try:
                # From here on Ctrl-C stops an answer, or nothing.
                signal.signal(signal.SIGINT, signal.default_int_handler)
                self._take(read_line(self._prompt, edited=self._edited).strip())
            except EOFError:
                if self._prompt:
                    click.echo()
                return 0
            except KeyboardInterrupt:
                click.echo("\n(Ctrl-D ends the conversation)")

    def _take(self, text: str) -> None:
        if text == "/clear":
            self._messages = self._ask.begin()
        elif re.fullmatch(r"/\w+", text):
            click.echo(
                f"radiance: {text}: expected /clear or a message; /clear starts anew, Ctrl-D ends",
                err=True,
            )
        elif text:
            before = len(self._messages)
            try:
                asyncio.run(self._turn(text))
            except RadianceError as error:
                del self._messages[before:]
                click.echo(f"radiance: {error}", err=True)
            except KeyboardInterrupt:
                # Before the answer began, as while the template renders.
                del self._messages[before:]
                click.echo(" [stopped]")

    async def _turn(self, text: str) -> None:
        self._messages.append({"role": "user", "content": text})
        answer = _Answer(self._loaded, self._ask)
        said = await answer.stream(await _ids(self._loaded, self._messages))
        self._messages.append({"role": "assistant", "content": said})
        click.echo(" [stopped]" if answer.stopped else "")
