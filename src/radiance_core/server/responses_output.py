"""Builds the output of ``/v1/responses`` from what an answer is made of, and tells each step.

output_item.added  content_part.added  delta …  done  content_part.done  output_item.done
└─ message, reasoning ────────────────────────────────────────────────────────────────────┘
output_item.added                      delta …  done                     output_item.done
└─ function_call ─────────────────────────────────────────────────────────────────────────┘
"""

import copy
import secrets
from collections.abc import Sequence
from typing import Any

from radiance_core.chat_format.events import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Event,
    Reasoning,
)
from radiance_core.server.chat_logprobs import ToldToken
from radiance_core.server.responses_items import (
    FunctionCall,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ReasoningText,
)

Told = dict[str, Any]
_TEXT = "response.output_text"
_THOUGHT = "response.reasoning_text"
_ARGUMENTS = "response.function_call_arguments"


class OutputWriter:
    """The items of one answer, and the events that a stream tells of them.

    ``items`` are the items so far; the last one may be open.
    """

    def __init__(self) -> None:
        self.items: list[OutputItem] = []
        self._pieces: list[str] = []
        self._tokens: list[ToldToken] = []
        self._open: OutputItem | None = None
        self._sequence = 0

    def event(self, kind: str, **facts: object) -> Told:
        """Return an event with the next number."""
        told = {"type": kind, "sequence_number": self._sequence, **facts}
        self._sequence += 1
        return told

    def take(self, event: Event, tokens: Sequence[ToldToken] = ()) -> list[Told]:
        """Take in a piece of the answer, and what is told of the tokens of its text."""
        match event:
            case Content():
                return self._text(OutputMessage, event.text, tokens)
            case Reasoning():
                return self._text(ReasoningItem, event.text)
            case CallBegin():
                call = FunctionCall(_id("fc"), _id("call"), event.name)
                return [*self.close(), *self._add(call)]
            case CallArguments():
                self._pieces.append(event.text)
                return [self._about(f"{_ARGUMENTS}.delta", delta=event.text)]
            case CallEnd():
                return self.close()

    def finish(self, *, is_cut: bool) -> list[Told]:
        """End the answer; one of nothing at all is an empty message."""
        told = self._text(OutputMessage, "") if not self.items else []
        # A call that nothing closed is unfinished, also where a stop string ended the text.
        return told + self.close(is_cut=is_cut or isinstance(self._open, FunctionCall))

    def close(self, *, is_cut: bool = False) -> list[Told]:
        """End the open item, if there is one."""
        item = self._open
        if item is None:
            return []
        text = "".join(self._pieces)
        if isinstance(item, FunctionCall):
            item.arguments = text
            told = [self._about(f"{_ARGUMENTS}.done", arguments=text, name=item.name)]
        else:
            told = self._close_text(item, text)
        item.status = "incomplete" if is_cut else "completed"
        told.append(self.event("response.output_item.done", output_index=self._place, item=item))
        self._open, self._pieces, self._tokens = None, [], []
        return told

    @property
    def _place(self) -> int:
        return len(self.items) - 1

    def _text(
        self,
        kind: type[OutputMessage] | type[ReasoningItem],
        text: str,
        tokens: Sequence[ToldToken] = (),
    ) -> list[Told]:
        told: list[Told] = []
        if not isinstance(self._open, kind):
            told = [*self.close(), *self._add(_new(kind)), self._part("added", "")]
        if not text:
            return told
        self._pieces.append(text)
        if kind is OutputMessage:
            self._tokens += tokens
            delta = self._about(f"{_TEXT}.delta", content_index=0, delta=text, logprobs=tokens)
        else:
            delta = self._about(f"{_THOUGHT}.delta", content_index=0, delta=text)
        return [*told, delta]

    def _close_text(self, item: OutputMessage | ReasoningItem, text: str) -> list[Told]:
        if isinstance(item, OutputMessage):
            item.content = [OutputText(text, logprobs=self._tokens)]
            told = self._tokens
            done = self._about(f"{_TEXT}.done", content_index=0, text=text, logprobs=told)
        else:
            item.content = [ReasoningText(text)]
            done = self._about(f"{_THOUGHT}.done", content_index=0, text=text)
        return [done, self._part("done", text)]

    def _part(self, step: str, text: str) -> Told:
        is_message = isinstance(self._open, OutputMessage)
        part = OutputText(text, logprobs=self._tokens) if is_message else ReasoningText(text)
        return self._about(f"response.content_part.{step}", content_index=0, part=part)

    def _add(self, item: OutputItem) -> list[Told]:
        self.items.append(item)
        self._open = item
        # The item itself changes until it is done, and events are encoded later.
        told = copy.copy(item)
        return [self.event("response.output_item.added", output_index=self._place, item=told)]

    def _about(self, kind: str, **facts: object) -> Told:
        assert self._open is not None, "pieces belong to an item"
        return self.event(kind, item_id=self._open.id, output_index=self._place, **facts)


def _new(kind: type[OutputMessage] | type[ReasoningItem]) -> OutputMessage | ReasoningItem:
    if kind is OutputMessage:
        return OutputMessage(_id("msg"), [])
    return ReasoningItem(_id("rs"), [])


def _id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"
