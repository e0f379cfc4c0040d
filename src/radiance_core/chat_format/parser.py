"""Takes an answer apart while it is written: thoughts, text, calls.

    ┌─ thoughts ─┐┌─ text ─┐┌─ calls ──────────────┐┌─ text …
    <think> … </think> I will look. <tool_call> … </tool_call>

Text is told as soon as it cannot become a mark, and never taken back.
"""

import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from radiance_core.chat_format.calls import CallReader
from radiance_core.chat_format.events import CallArguments, Content, Event, Reasoning
from radiance_core.chat_format.format import ChatFormat, ReasoningFormat, ToolFormat
from radiance_core.chat_format.reader import END, Reader, Step
from radiance_core.chat_format.tools import Tool


class AnswerParser:
    """Parses one answer. The events joined do not depend on how its text was cut into pieces.

    Nothing a model can write raises. What begins like a call and is none is content, as written;
    after a call's name is known, what follows is its arguments, as written.
    ``is_content`` says that the text so far ends neither in thoughts nor in a call.

    Args:
        form: how the model writes.
        tools: those that may be called; without any, calls are not looked for.
        inside_reasoning: the prompt ended within the thoughts; None takes what ``form`` says.
    """

    def __init__(
        self,
        form: ChatFormat,
        tools: Sequence[Tool] = (),
        *,
        inside_reasoning: bool | None = None,
    ) -> None:
        self._reasoning = form.reasoning
        self._tools = form.tools if tools else None
        starts_open = form.reasoning is not None and form.reasoning.starts_open
        self._inside = starts_open if inside_reasoning is None else inside_reasoning
        self.is_content = not self._inside
        self._reader = Reader()
        self._out: list[Event] = []
        # What may go straight through, and as what, while nothing is held.
        self._passing: tuple[re.Pattern[str], type[Content | Reasoning]] | None = None
        self._calls: CallReader | None = None
        if form.tools is not None and tools:
            named = {tool.name: tool for tool in tools}
            self._calls = CallReader(form.tools, named, self._reader, self._out.append)
        self._machine: Generator[None, str, None] | None = self._answer()
        next(self._machine)

    @property
    def num_calls(self) -> int:
        """Calls that are whole."""
        return 0 if self._calls is None else self._calls.count

    def feed(self, text: str) -> list[Event]:
        """Take new text and return what it makes certain."""
        at = 0
        while at < len(text):
            if self._passing is not None:
                plain, kind = self._passing
                if run := plain.match(text, at):
                    self._out.append(kind(run[0]))
                    at = run.end()
                    continue
            self._send(text[at])
            at += 1
        return self._told()

    def finish(self, cut: bool) -> list[Event]:
        """Return what was held back, now that no more text comes.

        Args:
            cut: the answer ended at a limit, so that a call may be unfinished. What had only
                begun to be a call's opening is then left out.
        """
        self._reader.is_cut = cut
        self._send(END)
        return self._told()

    def _send(self, char: str) -> None:
        if self._machine is None:
            return
        try:
            self._machine.send(char)
        except StopIteration:
            self._machine = None

    def _told(self) -> list[Event]:
        told, self._out[:] = list(self._out), ()
        return told if len(told) < 2 else joined(told)

    # The answer as a whole.

    def _answer(self) -> Generator[None, str, None]:
        thoughts = self._reasoning
        if self._inside and thoughts is not None:
            yield from self._thoughts(thoughts)
        yield from self._opening()
        while (mark := (yield from self._text())) is not None:
            if thoughts is not None and mark == thoughts.opening.strip():
                yield from self._thoughts(thoughts)
            elif thoughts is None or mark != thoughts.closing.strip():
                self._reader.record()
                self._reader.put_back(mark)
                yield from self._section()

    def _opening(self) -> Step[None]:
        """Read what only an answer's start can be: thoughts in plain marks, a call without any."""
        reader, thoughts = self._reader, self._reasoning
        if thoughts is None and self._tools is None:
            return
        space = yield from reader.skip_space()
        if thoughts is not None and (yield from reader.choose([thoughts.opening])) is not None:
            yield from self._thoughts(thoughts)
            space = ""
        if self._tools is not None and self._tools.is_bare and (yield from reader.peek()) == "{":
            reader.record()
            yield from self._section()
            return
        reader.put_back(space)

    def _thoughts(self, form: ReasoningFormat) -> Step[None]:
        """Read thoughts up to their closing mark; the space around it is the mark's."""
        self.is_content = False
        yield from self._reader.skip_space()
        if (yield from self._until((form.closing.strip(),), Reasoning)) is not None:
            self.is_content = True
            yield from self._reader.skip_space()

    def _text(self) -> Step[str | None]:
        """Read text up to a mark and return it; None at the end of the answer."""
        marks = []
        if self._tools is not None and not self._tools.is_bare:
            marks.append(self._tools.first_mark)
        if self._reasoning is not None and self._reasoning.is_special:
            marks += [self._reasoning.opening.strip(), self._reasoning.closing.strip()]
        return (yield from self._until(tuple(marks), Content))

    def _until(self, marks: tuple[str, ...], kind: type[Content | Reasoning]) -> Step[str | None]:
        """Tell text up to the first of ``marks``, less the space before it; None at the end."""
        # Space is held where a mark, or the end after calls, may swallow it.
        holds = bool(marks) or self._tools is not None
        word = rf"[^{re.escape(''.join({mark[0] for mark in marks}))}\s]+"
        plain = re.compile(rf"\s*{word}(?:\s+{word})*" if holds else "(?s:.+)")
        reader, space, held = self._reader, "", ""
        while True:
            self._passing = None if space or held or not reader.is_idle else (plain, kind)
            char = yield from reader.take()
            if char == END:
                break
            if held and (yield from reader.is_cut_within(char)):
                break
            held += char
            while held and not any(mark.startswith(held) for mark in marks):
                first, held = held[0], held[1:]
                if first.isspace() and holds:
                    space += first
                else:
                    self._out.append(kind(space + first))
                    space = ""
            if held in marks:
                self._passing = None
                return held
        self._passing = None
        # What a limit cuts short of a mark is left out, with the space that the mark would swallow.
        rest = "" if held and reader.is_cut else space + held
        if rest and kind is Content and (held or not self.num_calls):
            self._out.append(kind(rest))
        return None

    def _section(self) -> Step[None]:
        """Read calls, as many as follow each other; what is none becomes text."""
        form, calls, reader = self._tools, self._calls, self._reader
        assert form is not None, "calls are only looked for with a format"
        assert calls is not None, "and with tools"
        self.is_content = False
        goes_on = yield from reader.expect(form.opening)
        while goes_on and (yield from calls.read()):
            self.is_content = True
            reader.recorded()
            reader.record()
            goes_on = yield from self._goes_on(form)
            if not goes_on:
                reader.recorded()
                return
            self.is_content = False
        self.is_content = True
        text = reader.recorded()
        if text and not (reader.is_cut and reader.has_ended):
            self._out.append(Content(text))

    def _goes_on(self, form: ToolFormat) -> Step[bool]:
        """Pass over what parts two calls of a section, or over what ends the last."""
        reader, more = self._reader, form.separator + form.call_open
        if not form.section_open.strip():
            return False
        if more.strip():
            return (yield from reader.choose([more, form.section_close], closing=True)) == 0
        yield from reader.skip_space()
        return (yield from reader.choose([form.section_close, ""], closing=True)) == 1 and (
            (yield from reader.peek()) == "{"
        )


def joined(events: Iterable[Event]) -> list[Event]:
    """Join neighbouring texts of one kind."""
    told: list[Event] = []
    for _, group in groupby(events, _sort):
        same = list(group)
        texts = [e.text for e in same if isinstance(e, Content | Reasoning | CallArguments)]
        first = same[0]
        if isinstance(first, Content | Reasoning | CallArguments):
            told.append(replace(first, text="".join(texts)))
        else:
            told += same
    return told


def _sort(event: Event) -> tuple[type[Event], int]:
    return type(event), getattr(event, "index", 0)
