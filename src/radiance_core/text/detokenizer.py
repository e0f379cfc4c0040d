"""Ids to text, one id at a time, so that the deltas joined are the text of all ids."""

import codecs
from collections.abc import Sequence

from radiance_core.text.tokenizer import Tokenizer


class Detokenizer:
    """Incremental decoding of one sequence. Each push costs the token's own bytes, no more.

    The text of deltas and ``flush`` joined equals ``tokenizer.decode`` of all pushed ids (after a
    prompt: of prompt and pushed ids, less the prompt's complete characters). A character
    whose bytes are not all there yet is held back, never shown as U+FFFD.

    Args:
        tokenizer: whose ids these are; shared, not changed.
        skip_special_tokens: leave special tokens out of the text.
        shown_special_ids: special tokens that stay in it all the same.
        prompt_ids_tail: the prompt's ids or its last ones. Nothing of them is emitted; they
            tell whether a character is still open and whether the text has begun.
    """

    __slots__ = ("_at_start", "_decoder", "_hidden", "_tokenizer")

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        shown_special_ids: frozenset[int] = frozenset(),
        prompt_ids_tail: Sequence[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._hidden = hidden - shown_special_ids if shown_special_ids else hidden
        self._decoder = codecs.getincrementaldecoder("utf-8")(tokenizer.error_mode)
        self._at_start = True
        for id_ in self._open_tail(prompt_ids_tail):
            self.push(id_)

    def push(self, token_id: int) -> str:
        """Return the text that this id completes, perhaps none.

        Raises:
            TokenizerError: the id is outside the vocabulary.
        """
        if token_id in self._hidden:
            return ""
        raw = self._tokenizer.token_bytes(token_id)
        if self._at_start:
            self._at_start = False
            if self._tokenizer.starts_with_added_space(token_id):
                raw = raw[1:]
        return self._decoder.decode(raw)

    def flush(self) -> str:
        """Return what an unfinished character at the end comes to (U+FFFD), usually nothing.

        The sequence is over; a new one needs a new detokenizer.
        """
        return self._decoder.decode(b"", final=True)

    def _open_tail(self, prompt_ids: Sequence[int]) -> Sequence[int]:
        """Return the last visible ids, enough of them to hold the longest unfinished character."""
        tail: list[int] = []
        num_bytes = 0
        for id_ in reversed(prompt_ids):
            if id_ in self._hidden:
                continue
            tail.append(id_)
            num_bytes += len(self._tokenizer.token_bytes(id_))
            # UTF-8 characters have at most four bytes, so an open one has at most three.
            if num_bytes > 3:
                break
        return tail[::-1]
