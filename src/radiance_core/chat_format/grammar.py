"""What an answer must look like, as a Lark grammar: thoughts, then text or calls.

    start: thoughts? answer        answer: text, without calls or up to one
                                         | text whose form was asked for
                                         | calls

A call that has begun can only go on as a call of an offered tool, with arguments of its schema;
after the last one the answer ends. Where calls may not come, their mark cannot be written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from radiance_core.chat_format.format import ID_HOLE, ChatFormat, ToolFormat
from radiance_core.chat_format.lark import ANYTHING, Pieces, escaped, json_of
from radiance_core.chat_format.tagged_grammar import SchemaNotServed, tagged_arguments
from radiance_core.chat_format.tools import Tool, ToolChoice

_SPACE = r"/[ \n]{0,4}/"


def answer_grammar(
    form: ChatFormat,
    choice: ToolChoice,
    schemas: Mapping[str, Mapping[str, Any]],
    *,
    inside_reasoning: bool,
    has_content: bool = False,
) -> str | None:
    """Return the grammar of an answer, None when there is nothing to say beside its content.

    Args:
        form: how the model writes.
        choice: what may be called.
        schemas: of the arguments, by tool; such that all of it can be enforced.
        inside_reasoning: the prompt ends within the thoughts.
        has_content: what text must look like is said by a grammar of its own, ``@content``.

    Raises: ``SchemaNotServed`` for a schema that this form of calls cannot enforce.
    """
    if not choice.shown and not (has_content and form.reasoning is not None):
        return None
    return _Grammar(form, choice, schemas, has_content).whole(inside_reasoning)


class _Grammar:
    """The rules of one answer."""

    def __init__(
        self,
        form: ChatFormat,
        choice: ToolChoice,
        schemas: Mapping[str, Mapping[str, Any]],
        has_content: bool,
    ) -> None:
        self._form = form
        self._tools: ToolFormat | None = form.tools if choice.shown else None
        self._choice = choice
        self._schemas = schemas
        self._has_content = has_content
        number = self._tools is not None and self._tools.id_is_number
        ids = "[0-9]{1,3}" if number else "[A-Za-z0-9]{9}"
        self._pieces = Pieces(form.special, ID_HOLE, ids)
        self._rules: list[str] = []

    def whole(self, inside: bool) -> str:
        """Return the grammar with all of its rules."""
        answer = self._answer()
        self._rule("answer", answer)
        thoughts = self._thoughts(inside)
        self._rules.insert(0, f"start: {' | '.join(f'{one}answer' for one in thoughts)}")
        return "\n".join(self._rules) + "\n"

    def _rule(self, name: str, text: str) -> str:
        self._rules.append(f"{name}: {text}")
        return name

    def _thoughts(self, inside: bool) -> Sequence[str]:
        """Return what may stand before the answer: thoughts, or nothing."""
        marks = self._form.reasoning
        if marks is None:
            return [""]
        closing = marks.closing.strip()
        end = self._pieces.special_id(closing)
        if end is None:
            self._rule("thoughts[lazy]", f"/{ANYTHING}{escaped(closing)}/")
        else:
            self._rule("thoughts", f"/{ANYTHING}/ <[{end}]>")
        gap = "" if self._takes_space() else f" {_SPACE}"
        if inside:
            return [f"thoughts{gap} "]
        opening = self._pieces.text(marks.opening.strip())
        return ["", f"{_SPACE} {opening} thoughts{gap} "]

    def _takes_space(self) -> bool:
        """Say whether the answer may begin with white space by itself."""
        return not self._has_content and not self._choice.must_call

    # The answer after the thoughts.

    def _answer(self) -> str:
        calls = self._calls()
        if self._choice.must_call:
            assert calls is not None, "a due call has tools"
            return calls
        if self._has_content:
            text = self._rule("text", "@content")
            return text if calls is None else f"{text} | {calls}"
        if self._tools is None:
            return f"/{ANYTHING}/"
        return self._free(calls)

    def _free(self, calls: str | None) -> str:
        """Return text that may, or may not, end in calls."""
        assert self._tools is not None, "callers look"
        if self._tools.is_bare:
            members = "|".join(map(escaped, (self._tools.name_key, self._tools.arguments_key)))
            text = f'/{ANYTHING}/ & ~/\\s*\\{{\\s*"({members})"{ANYTHING}/{self._unthought()}'
            self._rule("TEXT", text)
            return "TEXT" if calls is None else f"TEXT | {calls}"
        mark = self._tools.first_mark
        id_ = self._pieces.special_id(mark)
        if id_ is not None:
            self._rule("TEXT", f"/{ANYTHING}/{self._unthought()}")
            return "TEXT" if calls is None else f"TEXT | TEXT {calls}"
        ends = f"/{ANYTHING}{escaped(mark)}"
        self._rule("TEXT", f"/{ANYTHING}/ & ~{ends}{ANYTHING}/{self._unthought()}")
        if calls is None:
            return "TEXT"
        self._rule("HEAD", f"{ends}/{self._unthought()}")
        self._rule("head[lazy]", "HEAD")
        return f"TEXT | head {calls}"

    def _unthought(self) -> str:
        """Return what keeps text from beginning as thoughts do, in whose mark nothing is told."""
        marks = self._form.reasoning
        if marks is None or self._pieces.special_id(marks.opening.strip()) is not None:
            return ""
        return f" & ~/\\s*{escaped(marks.opening.strip())}{ANYTHING}/"

    def _calls(self) -> str | None:
        """Return all calls of an answer; less their first mark where text before it has that."""
        if self._tools is None or not self._choice.callable:
            return None
        form, text = self._tools, self._pieces.text
        self._rule(
            "call", " | ".join(self._call(n, t) for n, t in enumerate(self._choice.callable))
        )
        opening = form.opening.lstrip()
        has_head = not self._choice.must_call and not self._has_content and not form.is_bare
        if has_head and self._pieces.special_id(form.first_mark) is None:
            opening = opening.removeprefix(form.first_mark)
        more = text(form.separator, form.call_open)
        repeat = f"({more} call)*" if self._choice.parallel else ""
        parts = [text(opening), "call", repeat, text(form.section_close.rstrip())]
        return self._rule("calls", " ".join(part for part in parts if part))

    def _call(self, number: int, tool: Tool) -> str:
        """Return one call from its name's place on; what stands before it is every call's."""
        form, text = self._tools, self._pieces.text
        assert form is not None, "callers look"
        schema = self._schemas[tool.name]
        if form.values == "tagged":
            try:
                arguments = tagged_arguments(form, self._pieces, schema, f"v{number}", self._rule)
            except SchemaNotServed as err:
                err.tool = tool.name
                raise
            parts = [text(tool.name, form.name_end), arguments, text(form.call_close)]
        else:
            arguments = self._rule(f"arguments{number}", json_of({"type": "object", **schema}))
            parts = [
                text(form.object_open, tool.name, form.name_end),
                arguments,
                text(form.object_close, form.call_close),
            ]
        return self._rule(f"call{number}", " ".join(part for part in parts if part))
