"""Log probabilities in the form of ``/v1/completions``: four lists, one entry a token.

    text           "The end"      tokens        ["The", " end"]
                    ^0  ^3        text_offset   [0, 3]

Offsets count characters of the choice's text, which begins with the prompt when it is echoed.
"""

import codecs
from collections.abc import Sequence

import msgspec

from radiance_core.engine.interface import Delta, TextTokenizer
from radiance_core.engine.sampling import TokenLogprob

FLOOR = -9999.0
"""Stands for a probability of zero: JSON has no infinity."""
_TAIL_IDS = 16  # enough of a prompt to hold a character that it leaves open


class LogprobLists(msgspec.Struct):
    """The four lists; the first token of a prompt has no log probability."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]

    def extend(self, more: "LogprobLists") -> None:
        """Put the entries of other lists behind these."""
        for name in self.__struct_fields__:
            getattr(self, name).extend(getattr(more, name))


class TokenLists:
    """Gathers one choice's tokens and hands them out once the text that they begin in is shown.

    Args:
        tokenizer: spells tokens.
        prompt_ids: what the choice continues.
        echo: the prompt as the choice's text shows it, ``None`` when it does not.
    """

    def __init__(
        self, tokenizer: TextTokenizer, prompt_ids: Sequence[int], echo: str | None
    ) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = False
        self._length = 0
        self._waiting: list[tuple[str, TokenLogprob | None, int]] = []
        self._prompt = prompt_ids if echo is not None else ()
        self._echo_length = len(echo or "")
        if echo is None:
            for id_ in prompt_ids[-_TAIL_IDS:]:
                self._advance(id_)
            self._length = 0

    def add(self, delta: Delta) -> None:
        """Take in what a choice gained."""
        if self._prompt and (delta.prompt_logprobs or delta.token_ids or delta.finish_reason):
            self._add_prompt(delta.prompt_logprobs)
        for id_, told in zip(delta.token_ids, delta.logprobs, strict=False):
            self._add(id_, told)

    def take(self, num_shown: int | None = None) -> LogprobLists | None:
        """Return the tokens that begin before character ``num_shown``, or all; none is ``None``."""
        count = len(self._waiting)
        if num_shown is not None:
            count = next((n for n, item in enumerate(self._waiting) if item[2] >= num_shown), count)
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        if not taken:
            return None
        return LogprobLists(
            [text for text, _, _ in taken],
            [None if told is None else max(told.logprob, FLOOR) for _, told, _ in taken],
            [None if told is None else self._top(told) for _, told, _ in taken],
            [offset for _, _, offset in taken],
        )

    def _add_prompt(self, told: Sequence[TokenLogprob]) -> None:
        ids, self._prompt = self._prompt, ()
        for place, id_ in enumerate(ids):
            one = told[place - 1] if 0 < place <= len(told) else None
            self._add(id_, one, self._echo_length)
        self._length = self._echo_length

    def _add(self, id_: int, told: TokenLogprob | None, most: int | None = None) -> None:
        offset = self._length if most is None else min(self._length, most)
        self._waiting.append((spell(self._tokenizer.token_bytes(id_)), told, offset))
        self._advance(id_)

    def _advance(self, id_: int) -> None:
        """Count the characters that a token completes."""
        if self._tokenizer.decode((id_, id_)) == "":
            return  # a special token; alone, a space that the encoder adds would give no text too
        raw = self._tokenizer.token_bytes(id_)
        if not self._begun:
            self._begun = True
            if raw.startswith(b" ") and not self._tokenizer.decode((id_,)).startswith(" "):
                raw = raw[1:]
        self._length += len(self._decoder.decode(raw))

    def _top(self, told: TokenLogprob) -> dict[str, float]:
        top: dict[str, float] = {}
        for id_, logprob in (*told.top, (told.token_id, told.logprob)):
            top.setdefault(spell(self._tokenizer.token_bytes(id_)), max(logprob, FLOOR))
        return top


def spell(raw: bytes) -> str:
    """Return a token's text, or its bytes in letters when they are no whole characters."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
