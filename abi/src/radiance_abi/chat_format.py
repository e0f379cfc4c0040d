"""How a model spells its thoughts and its calls; an architecture may state it.

Without a statement the core finds both out from the model's chat template.
"""

import re
from dataclasses import dataclass
from typing import Literal

ValueKind = Literal["json_object", "tagged", "json_call"]
"""Arguments as one JSON object, as one marked text each, or name and arguments in one object."""

ID_HOLE = "\0"
"""Stands in a format's texts where the model writes a call's number or id."""

CDATA = ("<![CDATA[", "]]>")

_FIRST_MARK = re.compile(r"[<\[][^>\]\s]*[>\]]|\S*")


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """Marks around what a model thinks before it answers.

    ``starts_open``: the prompt ends inside the reasoning, so the text has no opening mark.
    ``is_special``: the marks are special tokens, which ordinary text cannot hold.
    """

    opening: str
    closing: str
    starts_open: bool = False
    is_special: bool = False


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How one model spells a call.

        section_open  call_open name name_end arguments call_close  separator …  section_close

    ``json_call`` has one JSON object, whose braces are in ``object_open`` and ``object_close``:

        … call_open object_open name name_end arguments object_close call_close …

    Space and line breaks in these texts are how the model was taught; it need not keep to them.

    Args:
        name: of the family, as a setting names it.
        section_open, section_close: around all calls of an answer, or empty.
        call_open: before a call's name; the text that triggers parsing with ``section_open``.
        name_end: between the name and the arguments.
        call_close: after the arguments.
        separator: between two calls.
        values: how arguments are written.
        key_open, key_close: around an argument's name, for ``tagged``.
        value_close: after its value, for ``tagged``.
        id_is_number: calls are numbered; otherwise an id is nine letters and digits.
        has_cdata: a text that holds marks stands in ``<![CDATA[…]]>``, for ``tagged``.
        other_key_close: in place of ``key_close`` before values that are no text, or empty.
        object_open: from the brace of a call's object to before its name, for ``json_call``.
        object_close: from after the arguments to the object's last brace.
        name_key, arguments_key: the members of that object.
        id_key: the member that holds a call's id, or empty.
        parallel: whether an answer may have several calls.
    """

    name: str
    call_open: str
    name_end: str
    call_close: str
    section_open: str = ""
    section_close: str = ""
    separator: str = ""
    values: ValueKind = "json_object"
    key_open: str = ""
    key_close: str = ""
    value_close: str = ""
    parallel: bool = True
    object_open: str = ""
    object_close: str = ""
    name_key: str = "name"
    arguments_key: str = "arguments"
    id_key: str = ""
    other_key_close: str = ""
    id_is_number: bool = False
    has_cdata: bool = False

    @property
    def opening(self) -> str:
        """What an answer's first call begins with, up to its name or its object."""
        return self.section_open + self.call_open

    @property
    def first_mark(self) -> str:
        """The part of ``opening`` that begins a call wherever it stands; nothing less does."""
        found = _FIRST_MARK.match(self.opening.strip())
        assert found is not None, "the pattern takes any text"
        return found[0]

    @property
    def is_bare(self) -> bool:
        """Whether a call has no mark, so that only a whole answer can be one."""
        return not self.opening.strip()


@dataclass(frozen=True, slots=True)
class ChatMarks:
    """What an architecture states of its models' answers; None leaves it to the chat template.

    ``Architecture.chat_marks``, which need not be there, returns one.
    """

    reasoning: ReasoningFormat | None = None
    tools: ToolFormat | None = None
