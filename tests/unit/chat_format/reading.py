"""What a parser makes of an answer, put together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from radiance_core.chat_format.events import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Event,
    Reasoning,
)
from radiance_core.chat_format.format import ChatFormat
from radiance_core.chat_format.parser import AnswerParser
from radiance_core.chat_format.tools import Tool


@dataclass
class Read:
    """The parts of an answer; ``ended`` has the numbers of its whole calls."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)


def read(
    form: ChatFormat,
    tools: Sequence[Tool],
    pieces: Iterable[str],
    *,
    cut: bool = False,
    inside: bool | None = None,
) -> Read:
    """Return what comes of an answer that arrives in pieces; checks the order of its events."""
    parser = AnswerParser(form, tools, inside_reasoning=inside)
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.finish(cut)
    found = collect(events)
    assert parser.num_calls == len(found.ended)
    return found


def collect(events: Iterable[Event]) -> Read:
    """Return the parts of an answer from its events; checks their order."""
    found = Read()
    for event in events:
        match event:
            case Content(text):
                assert text
                found.content += text
            case Reasoning(text):
                assert text
                found.reasoning += text
            case CallBegin(index, name):
                assert index == len(found.calls)
                found.calls.append((name, ""))
            case CallArguments(index, text):
                assert text
                assert index == len(found.calls) - 1
                found.calls[index] = (found.calls[index][0], found.calls[index][1] + text)
            case CallEnd(index):
                assert index == len(found.calls) - 1 == len(found.ended)
                found.ended.append(index)
    return found
