"""Which format is used: a setting's, else the architecture's, else the chat template's."""

from dataclasses import replace

from radiance_abi.chat_format import ChatMarks
from radiance_core.chat_format.derive import derive_format, special_texts, with_special
from radiance_core.chat_format.format import ChatFormat
from radiance_core.chat_format.named import FORMATS
from radiance_core.text.chat_template import ChatTemplate
from radiance_core.text.tokenizer import Tokenizer


def choose_format(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    stated: ChatMarks | None = None,
    *,
    tool_format: str = "auto",
    reasoning_format: str = "auto",
) -> ChatFormat:
    """Return what is known of a model's answers.

    Args:
        template, tokenizer: of the model.
        stated: by its architecture.
        tool_format: the name of a way of writing calls, or ``auto``.
        reasoning_format: ``none`` leaves thoughts in the text, ``auto`` parts them from it.
    """
    form = derive_format(template, tokenizer)
    told = form.tools is not None
    if stated is not None:
        form = replace(
            form,
            reasoning=stated.reasoning or form.reasoning,
            tools=stated.tools or form.tools,
            source="architecture",
        )
    if tool_format != "auto":
        form = replace(form, tools=FORMATS[tool_format], source="--tool-format")
    if reasoning_format == "none":
        form = replace(form, reasoning=None)
    if form.tools is not None and not told:
        form = replace(form, template_has_tools=False)
    return with_special(form, special_texts(tokenizer))


def describe_format(form: ChatFormat) -> str:
    """Say in one line what is known, and from where."""
    if form.tools is None:
        tools = f"none: {form.why_no_tools}"
    else:
        shown = "" if form.template_has_tools else ", told in a system message"
        tools = f"{form.tools.name} format (from the {form.source}{shown})"
        tools = tools.replace("the --", "--")
    if form.reasoning is None:
        return f"tools: {tools}   reasoning: none"
    return f"tools: {tools}   reasoning: {form.reasoning.opening}"
