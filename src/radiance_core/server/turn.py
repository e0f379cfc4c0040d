"""One turn of the assistant, made ready: its prompt, what its text must be, how to read it.

Every route that holds a conversation asks in the same words and gets the same:

    messages, tools, options ── Ask ── prepare_turn ── Turn ── ids, constraint, parser
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from radiance_core.chat_format.content_stops import ContentStops
from radiance_core.chat_format.format import ChatFormat
from radiance_core.chat_format.merging import simpler
from radiance_core.chat_format.messages import for_template
from radiance_core.chat_format.parser import AnswerParser
from radiance_core.chat_format.tools import ToolChoice
from radiance_core.chat_format.writing import without_tools
from radiance_core.engine.interface import TextModel
from radiance_core.engine.sampling import ConstraintSource, ConstraintSpec, SamplingParams
from radiance_core.server.errors import from_engine, invalid
from radiance_core.server.prompts import encode
from radiance_core.text.errors import TemplateError


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request wants of the next turn.

    Args:
        messages: in OpenAI's form, plain JSON that has been checked.
        choice: the tools and what may be done with them.
        kwargs: variables for the template.
        content: what the answer's text must look like.
        opens_turn: end the prompt with what makes the model answer.
        prolongs: go on with the last message, which is the assistant's.
        param: the field to name in errors.
    """

    messages: Sequence[Mapping[str, Any]]
    choice: ToolChoice = field(default_factory=ToolChoice)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    content: ConstraintSpec | None = None
    opens_turn: bool = True
    prolongs: bool = False
    param: str = "messages"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn to generate.

    Args:
        ids: the prompt.
        form: how the model writes.
        choice: what may be called.
        inside_reasoning: the prompt ends within the model's thoughts.
        constraint: what its text must be; each answer starts one of its own.
        shown_special_ids: special tokens that the parser has to see.
    """

    ids: tuple[int, ...]
    form: ChatFormat
    choice: ToolChoice
    inside_reasoning: bool
    constraint: ConstraintSource | None
    shown_special_ids: frozenset[int]

    def parser(self) -> AnswerParser:
        """Return a parser for one answer."""
        return AnswerParser(self.form, self.choice.callable, inside_reasoning=self.inside_reasoning)

    def reader(self, params: SamplingParams, eos_ids: frozenset[int]) -> ContentStops | None:
        """Return what ends one answer in its content only; None where all of it is content."""
        token_ids = frozenset(params.stop_token_ids) - eos_ids
        is_content = self.form.reasoning is None and not self.choice.callable
        if is_content or not (params.stop or token_ids):
            return None
        return ContentStops(self.parser(), params.stop, token_ids)


async def prepare_turn(model: TextModel, ask: Ask, retry_after_s: float) -> Turn:
    """Render and encode the prompt, and compile what the answer must look like.

    Raises: ``ApiError`` when the template refuses the conversation, the options do not go
    together, or something cannot be enforced.
    """
    form = model.chat_format
    text, ids = await prompt_of(model, ask, retry_after_s)
    inside = _ends_inside(text, form) if ask.opens_turn else False
    source = await _constraint(model, ask, inside)
    shown = form.special if ask.choice.callable else _marks_of_thoughts(form)
    return Turn(tuple(ids), form, ask.choice, inside, source, frozenset(shown.values()))


async def _constraint(model: TextModel, ask: Ask, inside: bool) -> ConstraintSource | None:
    """Return the constraint of the answer; what makes one is imported when the first one comes."""
    if not ask.choice.shown and ask.content is None:
        return None
    from radiance_core.server.answer_grammar import compile_answer

    return await compile_answer(model, ask.choice, ask.content, inside_reasoning=inside)


async def prompt_of(model: TextModel, ask: Ask, retry_after_s: float) -> tuple[str, list[int]]:
    """Return the prompt of a turn, as text and as ids."""
    text = await _render(model, ask, model.chat_format, retry_after_s)
    return text, await encode(model, text, model.tokenizer.encode_prompt, ask.param)


def _marks_of_thoughts(form: ChatFormat) -> dict[str, int]:
    """Return the special tokens among the marks that stand around thoughts."""
    marks = "" if form.reasoning is None else form.reasoning.opening + form.reasoning.closing
    return {text: id_ for text, id_ in form.special.items() if text in marks}


def _ends_inside(prompt: str, form: ChatFormat) -> bool:
    """Say whether a prompt ends right after the mark that opens the thoughts."""
    return form.reasoning is not None and prompt.rstrip().endswith(form.reasoning.opening.strip())


async def _render(model: TextModel, ask: Ask, form: ChatFormat, retry_after_s: float) -> str:
    """Render the conversation; where the template refuses it, in a simpler form of it."""
    kwargs = {**ask.kwargs, "add_generation_prompt": ask.opens_turn}
    tools = [dict(tool.definition) for tool in ask.choice.shown] or None
    messages = for_template(ask.messages, form)
    end = secrets.token_hex(12)  # stands where the last message ends; no template knows it
    if ask.prolongs:
        messages = [*messages[:-1], _ended_by(messages[-1], end)]
    if form.tools is not None and not form.template_has_tools:
        messages, tools = without_tools(messages, tools or (), form.tools), None
    try:
        text = await model.render_chat(messages, tools, kwargs)
    except Exception as err:
        simplified = await _render_simpler(model, messages, tools, kwargs, err)
        if simplified is None:
            raise from_engine(err, ask.param, retry_after_s) from err
        text = simplified
    if not ask.prolongs:
        return text
    return _cut_before(text, end)


async def _render_simpler(
    model: TextModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    kwargs: Mapping[str, Any],
    refusal: Exception,
) -> str | None:
    """Return the text of the first simpler form that the template takes, None for none."""
    if not (isinstance(refusal, TemplateError) and refusal.kind == "raised"):
        return None
    for form in simpler(messages):
        try:
            return await model.render_chat(form, tools, kwargs)
        except TemplateError:
            continue
    return None


def _ended_by(message: Mapping[str, Any], end: str) -> dict[str, Any]:
    return {**message, "content": f"{message.get('content') or ''}{end}"}


def _cut_before(rendered: str, end: str) -> str:
    """Cut a rendered conversation where its last message's text ends.

    The text itself is not looked for: short ones also stand in what the template writes. What
    templates trim at the ends of a message is kept, since the text goes on.
    """
    before, *after = rendered.split(end)
    if len(after) != 1:
        raise invalid(
            "continue_final_message: the template does not write the last message as it is, so "
            "it cannot be continued.",
            "continue_final_message",
        )
    return before
