"""``/v1/completions``: text or token ids in, their continuation out."""

import secrets
import time
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import UNSET

from radiance_core.engine.interface import Request, TextModel
from radiance_core.engine.sampling import ConstraintSource, SamplingParams
from radiance_core.server import fields, web
from radiance_core.server.answer import answer
from radiance_core.server.body import read_json
from radiance_core.server.completion_form import CompletionForm
from radiance_core.server.errors import invalid
from radiance_core.server.exchange import Exchange
from radiance_core.server.extension import extension, name_ignored
from radiance_core.server.generation import Choice, Generation
from radiance_core.server.nested_keys import unknown_inside
from radiance_core.server.prompts import check_length, encode
from radiance_core.server.requests import (
    CompletionRequest,
    check,
    check_token,
    fit,
    for_choice,
    read_fields,
    sampling,
)
from radiance_core.server.settings import ServerSettings
from radiance_core.server.state import Serving, State
from radiance_core.server.structured import read_and_compile

Prompt = str | list[int]


async def completions(exchange: Exchange, state: State) -> web.StreamResponse:
    """Continue one or several prompts."""
    state.current()  # a server that cannot serve says so before it reads a body
    body = await read_json(exchange.request, state.settings)
    strict = state.settings.strict_requests
    known, ignored = fields.sort_out(body, fields.COMPLETION, strict=strict)
    ignored += unknown_inside(known, strict=strict)
    request = read_fields(known, CompletionRequest)
    serving = state.named(request.model)
    check(request, serving.model, state.settings)
    params = _told_tokens(request, sampling(request, serving.model))
    source = await read_and_compile(request, serving.model, ignored, strict=strict)
    form = CompletionForm(
        id=f"cmpl-{secrets.token_hex(16)}",
        created=int(time.time()),
        model=serving.names[0],
        fingerprint=serving.fingerprint,
        usage=None if request.wants_usage else UNSET,
        said=extension(ignored, request, params),
        tokenizer=None if request.logprobs is None else serving.model.tokenizer,
        echo=bool(request.echo),
    )
    generation = Generation(
        serving.engine,
        await _choices(request, params, source, serving, state.settings),
        buffer_chars=state.settings.stream_buffer_bytes,
        param="prompt",
        retry_after_s=state.settings.retry_after_s,
    )
    name_ignored(exchange, ignored)
    return await answer(exchange, state, generation, form, request)


def _told_tokens(request: CompletionRequest, params: SamplingParams) -> SamplingParams:
    """Ask for the log probabilities of the answer's tokens and of those that are echoed."""
    count = request.logprobs
    if count is None:
        return params
    if not fields.LOGPROBS.holds(count):
        raise invalid(f"logprobs: expected a number {fields.LOGPROBS}, got {count}.", "logprobs")
    return replace(params, logprobs=count, prompt_logprobs=count if request.echo else None)


def read_prompts(prompt: str | list[Any], model: TextModel) -> list[tuple[str, Prompt]]:
    """Return each prompt with its path: a string, strings, token ids, or lists of token ids.

    Raises: ``ApiError`` 400 for an empty list, a mixture, or an id outside the vocabulary.
    """
    if isinstance(prompt, str):
        return [("prompt", prompt)]
    if not prompt:
        raise invalid("prompt: expected text or token ids, got an empty list.", "prompt")
    if all(isinstance(item, str) for item in prompt):
        return [(f"prompt[{place}]", item) for place, item in enumerate(prompt)]
    if all(isinstance(item, list) for item in prompt):
        paths = [f"prompt[{place}]" for place in range(len(prompt))]
        return [(path, _ids(item, model, path)) for path, item in zip(paths, prompt, strict=True)]
    return [("prompt", _ids(prompt, model, "prompt"))]


def _ids(listed: list[Any], model: TextModel, path: str) -> list[int]:
    if len(listed) > model.max_context:
        return listed  # refused by its number, so that nobody looks at each of a million ids
    return [check_token(token, model, f"{path}[{n}]") for n, token in enumerate(listed)]


async def _choices(
    request: CompletionRequest,
    params: SamplingParams,
    source: ConstraintSource | None,
    serving: Serving,
    settings: ServerSettings,
) -> list[Choice]:
    model = serving.model
    prompts = read_prompts(request.prompt, model)
    each = request.n or 1
    if len(prompts) * each > settings.max_choices:
        raise invalid(
            f"prompt: expected at most {settings.max_choices} answers in one request, got "
            f"{len(prompts)} prompts of {each} each.",
            "prompt",
        )
    choices = []
    for number, (path, prompt) in enumerate(prompts):
        if isinstance(prompt, str):
            how = partial(model.tokenizer.encode, add_special_tokens=True)
            ids = await encode(model, prompt, how, path)
        else:
            ids = prompt
        check_length(model, len(ids), params.max_tokens, path)
        fitted = fit(params, len(ids), model)
        prefix = _echo(prompt, model) if request.echo else ""
        for n in range(each):
            wanted = Request(
                secrets.token_hex(16),
                tuple(ids),
                for_choice(fitted, n),
                constraint=None if source is None else source.start(),
            )
            choices.append(Choice(number * each + n, number, wanted, prefix))
    return choices


def _echo(prompt: Prompt, model: TextModel) -> str:
    return prompt if isinstance(prompt, str) else model.tokenizer.decode(prompt)
