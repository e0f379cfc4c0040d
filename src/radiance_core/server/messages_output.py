"""Builds the content of a message from what an answer is made of, and tells each step.

content_block_start  content_block_delta …  content_block_stop
└─ thinking, text, tool_use: one after the other, numbered ─┘
"""

import secrets
from typing import Any

import msgspec

from radiance_core.chat_format.events import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Event,
    Reasoning,
)

Told = dict[str, Any]
_FIELDS = {"text": "text", "thinking": "thinking"}


class ContentWriter:
    """The blocks of one answer, and the events that a stream tells of them.

    ``blocks`` are the blocks so far; the last one may be open. ``is_calling`` says whether there
    are calls and all of them are whole.
    """

    def __init__(self) -> None:
        self.blocks: list[Told] = []
        self.is_calling = False
        self._pieces: list[str] = []
        self._is_open = False

    def take(self, event: Event) -> list[Told]:
        """Take in a piece of the answer."""
        match event:
            case Content():
                return self._text({"type": "text", "text": ""}, event.text)
            case Reasoning():
                # A signature proves to the server who thought; here nobody needs to prove it.
                block = {"type": "thinking", "thinking": "", "signature": ""}
                return self._text(block, event.text)
            case CallBegin():
                self.is_calling = False
                id_ = f"toolu_{secrets.token_hex(12)}"
                call: Told = {"type": "tool_use", "id": id_, "name": event.name, "input": {}}
                return [*self.close(), *self._begin(call)]
            case CallArguments():
                return [self._delta("input_json_delta", "partial_json", event.text)]
            case CallEnd():
                self.is_calling = True
                return self.close()

    def close(self) -> list[Told]:
        """End the open block, if there is one."""
        if not self._is_open:
            return []
        block, text = self.blocks[-1], "".join(self._pieces)
        if block["type"] == "tool_use":
            _set_input(block, text)
        else:
            block[_FIELDS[block["type"]]] = text
        self._is_open, self._pieces = False, []
        return [{"type": "content_block_stop", "index": len(self.blocks) - 1}]

    def _text(self, block: Told, text: str) -> list[Told]:
        told: list[Told] = []
        if not self._is_open or self.blocks[-1]["type"] != block["type"]:
            told = [*self.close(), *self._begin(block)]
        key = _FIELDS[block["type"]]
        return [*told, self._delta(f"{key}_delta", key, text)] if text else told

    def _begin(self, block: Told) -> list[Told]:
        self.blocks.append(block)
        self._is_open = True
        place = len(self.blocks) - 1
        return [{"type": "content_block_start", "index": place, "content_block": {**block}}]

    def _delta(self, kind: str, key: str, text: str) -> Told:
        assert self._is_open, "pieces belong to a block"
        self._pieces.append(text)
        delta = {"type": kind, key: text}
        return {"type": "content_block_delta", "index": len(self.blocks) - 1, "delta": delta}


def _set_input(block: Told, text: str) -> None:
    """Set a call's input; one that was cut short is no JSON and stays as text beside it."""
    try:
        given = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        given = None
    if isinstance(given, dict):
        block["input"] = given
    else:
        block["partial_json"] = text
