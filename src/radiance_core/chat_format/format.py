"""The facts about one model's answers: which marks enclose reasoning and tool calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from radiance_abi.chat_format import CDATA, ID_HOLE, ReasoningFormat, ToolFormat, ValueKind

__all__ = ["CDATA", "ID_HOLE", "ChatFormat", "ReasoningFormat", "ToolFormat", "ValueKind"]


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """What is known of one model's answers.

    Args:
        reasoning: its marks; ``None`` for a model that does not think aloud.
        tools: its calls; ``None`` when it cannot be told how it calls.
        why_no_tools: the reason, in words for a client.
        source: where the facts are from: the template, the architecture, or a setting.
        arguments_as_text: the template takes a call's arguments as JSON text, not as an object.
        short_ids: the template takes ids of nine letters and digits only.
        template_has_tools: the template writes tools, calls and results; otherwise they are told
            in plain messages.
        special: ids of the special tokens that stand in these texts, by their text.
    """

    reasoning: ReasoningFormat | None = None
    tools: ToolFormat | None = None
    why_no_tools: str = "this model's chat template does not mention tools"
    source: str = "template"
    arguments_as_text: bool = False
    short_ids: bool = False
    template_has_tools: bool = True
    special: Mapping[str, int] = field(default_factory=dict)
