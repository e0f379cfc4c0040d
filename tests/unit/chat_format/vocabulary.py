"""A vocabulary of bytes and special tokens, and llguidance over it."""

from collections.abc import Sequence
from typing import Any

from radiance_core.constrain.native import PlainVocabulary, build_matcher


class Bytes:
    """One id a byte, then the special tokens; the first of those ends a turn."""

    def __init__(self, special: Sequence[str]) -> None:
        self.special = tuple(special)
        self.special_ids = frozenset(range(256, 256 + len(special)))
        self.eos_ids = frozenset({256})

    @property
    def vocab_size(self) -> int:
        return 256 + len(self.special)

    def token_text(self, id_: int) -> str | None:
        return self.special[id_ - 256] if id_ >= 256 else f"b{id_}"

    def token_bytes(self, id_: int) -> bytes:
        return self.special[id_ - 256].encode() if id_ >= 256 else bytes([id_])

    def encode(self, text: str) -> list[int]:
        """Return ids, special tokens where their texts stand."""
        ids: list[int] = []
        while text:
            for n, special in enumerate(self.special):
                if text.startswith(special):
                    ids.append(256 + n)
                    text = text[len(special) :]
                    break
            else:
                ids += text[0].encode()
                text = text[1:]
        return ids


def taken(grammar: str, text: str, vocabulary: Bytes) -> str:
    """Say what a grammar makes of a text: ``whole``, ``open``, or where it is refused."""
    matcher: Any = build_matcher(PlainVocabulary.of(vocabulary).build(), grammar)
    assert not matcher.is_error(), matcher.get_error()
    ids = vocabulary.encode(text)
    count = matcher.try_consume_tokens(ids)
    if count < len(ids):
        return f"refused after {count} tokens"
    return "whole" if matcher.is_accepting() else "open"
