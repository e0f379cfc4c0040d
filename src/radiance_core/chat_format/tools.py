"""The functions that a request offers, and which of them an answer may or must call."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ChoiceMode = Literal["none", "auto", "required", "named"]


@dataclass(frozen=True, slots=True)
class Tool:
    """One function.

    Args:
        name: letters, digits, ``_``, ``-`` and ``.``.
        parameters: JSON schema of the arguments, an object; ``{}`` takes any.
        definition: the tool in OpenAI's form, as the chat template reads it.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    definition: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What an answer may do with the tools.

    Args:
        mode: calls are impossible, free to come, due (``required``), or one certain call is due.
        shown: tools that the template is told of.
        callable: those of them that may be called.
        parallel: whether several calls may come.
    """

    mode: ChoiceMode = "none"
    shown: tuple[Tool, ...] = ()
    callable: tuple[Tool, ...] = ()
    parallel: bool = True

    @property
    def must_call(self) -> bool:
        """Whether an answer without a call is impossible."""
        return self.mode in {"required", "named"}
