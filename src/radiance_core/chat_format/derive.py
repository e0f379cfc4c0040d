"""What is known of a model's answers, from its chat template alone."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from radiance_core.chat_format.derive_reasoning import derive_reasoning
from radiance_core.chat_format.derive_tools import derive_tools, takes_long_ids
from radiance_core.chat_format.format import ChatFormat, ReasoningFormat, ToolFormat
from radiance_core.chat_format.named import named_like
from radiance_core.chat_format.probes import Probe
from radiance_core.chat_format.read_probe import UnknownFormat
from radiance_core.text.chat_template import ChatTemplate
from radiance_core.text.errors import TemplateError
from radiance_core.text.tokenizer import Tokenizer


def derive_format(template: ChatTemplate, tokenizer: Tokenizer) -> ChatFormat:
    """Render probes and return what they tell; takes some 50 ms, and a template never raises here.

    Args:
        template: of the model; its process does the work.
        tokenizer: whose special tokens may be marks.
    """
    special = special_texts(tokenizer)
    ends = tuple(text for text, id_ in special.items() if id_ in tokenizer.eos_ids)
    render = _Renderer(template)
    probe = Probe(render, tuple(special), ends)
    reasoning = derive_reasoning(probe, template.source)
    try:
        tools, style = derive_tools(probe, reasoning)
    except UnknownFormat as err:
        why = str(err) if render.gave_up is None else "its chat template takes too long"
        return with_special(ChatFormat(reasoning, why_no_tools=why), special)
    form = ChatFormat(
        reasoning,
        replace(tools, name=named_like(tools)),
        arguments_as_text=style.as_text,
        short_ids=not takes_long_ids(probe, style),
    )
    return with_special(form, special)


def special_texts(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of a vocabulary's special tokens by their text."""
    texts = {tokenizer.token_text(id_): id_ for id_ in sorted(tokenizer.special_ids)}
    return {text: id_ for text, id_ in texts.items() if text}


def with_special(form: ChatFormat, special: Mapping[str, int]) -> ChatFormat:
    """Return a format with the special tokens among its marks."""
    reasoning = form.reasoning
    if reasoning is not None:
        marks = {reasoning.opening.strip(), reasoning.closing.strip()}
        reasoning = replace(reasoning, is_special=marks <= special.keys())
    texts = "\n".join((*_texts(reasoning), *_texts(form.tools)))
    found = {text: id_ for text, id_ in special.items() if text in texts}
    return replace(form, reasoning=reasoning, special=found)


def _texts(form: ReasoningFormat | ToolFormat | None) -> list[str]:
    if form is None:
        return []
    values = (getattr(form, one.name) for one in fields(form) if one.name != "name")
    return [value for value in values if isinstance(value, str)]


class _Renderer:
    """Renders probes until one takes too long; start-up does not wait for more of them."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self.gave_up: TemplateError | None = None

    def __call__(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        opens: bool,
    ) -> str:
        if self.gave_up is not None:
            raise self.gave_up
        try:
            return self._template.render(messages, tools=tools, add_generation_prompt=opens)
        except TemplateError as err:
            if err.kind == "timeout":
                self.gave_up = err
            raise
