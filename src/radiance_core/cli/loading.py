"""From settings to a running engine: what serve, chat and run share."""

import ctypes
import gc
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from radiance_core.build import Plan, begin_loading, load_model
from radiance_core.chat_format.choose import choose_format
from radiance_core.chat_format.format import ChatFormat
from radiance_core.cli.model_settings import max_queued
from radiance_core.cli.sampling_defaults import sampling_defaults
from radiance_core.config import Config
from radiance_core.engine.serving import LAST_STEP_S, LocalEngine
from radiance_core.load.loading import Loading
from radiance_core.runtime import StepModel
from radiance_core.startup_report import model_id
from radiance_core.text import load_chat_template, load_tokenizer
from radiance_core.text.chat_template import ChatTemplate
from radiance_core.text.template_process import TemplateProcess
from radiance_core.text.tokenizer import Tokenizer
from radiance_core.text_model import LoadedTextModel


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with its engine, ready to start."""

    engine: LocalEngine
    model: LoadedTextModel
    step_model: StepModel

    def close(self) -> bool:
        """Stop the engine, the threads and the template's process.

        Returns:
            False when a step does not end: the model is then still in use and stays as it is.
        """
        ended = self.engine.stop(LAST_STEP_S)
        if ended:
            self.step_model.close()
        self.model.close()
        return ended


def load_all(
    plan: Plan,
    config: Config,
    templates: TemplateProcess | None = None,
    loading: Loading | None = None,
) -> Loaded:
    """Load the weights, the tokenizer and the template, and make the engine.

    Args:
        plan: of the model.
        config: the settings.
        templates: a process for the chat template that has been started already.
        loading: the weights, which have begun to be loaded already.
    """
    checkpoint = plan.metadata.checkpoint
    loading = loading or begin_loading(plan)
    defaults = sampling_defaults(config, checkpoint)
    start = time.monotonic()
    tokenizer = load_tokenizer(checkpoint)
    template = load_chat_template(checkpoint, tokenizer, templates)
    plan.stage_seconds["tokenizer"] = time.monotonic() - start
    with ThreadPoolExecutor(1, "template") as beside:
        # Its process reads it meanwhile. A template that is none is refused after the weights.
        facts = None if template is None else beside.submit(lambda: template.facts)
        step_model = load_model(plan, loading)
    start = time.monotonic()
    if facts is not None:
        facts.result()
    chat_format = None if template is None else _chat_format(plan, config, template, tokenizer)
    plan.stage_seconds["chat format"] = time.monotonic() - start
    budget = plan.budget
    engine = LocalEngine(
        step_model,
        tokenizer,
        max_context=budget.max_context,
        max_seqs=plan.settings.max_seqs,
        max_tokens=plan.settings.max_tokens,
        max_queued=max_queued(config),
        max_queued_tokens=config.number("max-queued-tokens"),
        keep_prefixes=not config.flag("no-prefix-cache"),
        max_drafts=plan.settings.max_drafts,
    )
    model = LoadedTextModel(
        model_id(checkpoint.path),
        checkpoint.path,
        budget.max_context,
        tokenizer,
        template,
        defaults.params,
        chat_format,
        sampling_sources=defaults.sources,
        max_tokens_cap=config.number("max-tokens-cap") or None,
    )
    return Loaded(engine, model, step_model)


def keep_what_is_loaded() -> None:
    """Let the garbage collector work from now on, and pass over what the start has made.

    It is not to look for garbage first: that is a twentieth of a second and finds next to nothing.
    What was freed, as by building the tokenizer, goes back to the system where the C library can.
    """
    gc.freeze()
    gc.enable()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _chat_format(
    plan: Plan, config: Config, template: ChatTemplate, tokenizer: Tokenizer
) -> ChatFormat:
    """Return how the model spells thoughts and calls."""
    metadata = plan.metadata
    state = getattr(metadata.arch, "chat_marks", None)
    return choose_format(
        template,
        tokenizer,
        None if state is None else state(metadata.cfg),
        tool_format=config.text("tool-format"),
        reasoning_format=config.text("reasoning-format"),
    )
