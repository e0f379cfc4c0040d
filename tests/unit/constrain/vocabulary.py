"""A vocabulary for tests, and walks over the masks of a text."""

import random

import numpy as np

EOS = (0, 1)
UNUSED = 3
PADDING = 45
"""Rows that a model has past its vocabulary's last id."""
PIECES = (
    "the", " a", "in", "er", "true", "false", "null", '"', '":', '": ', '",', ', "', "{", '{"', "}",
    "[", "]", "],", "},", "\n", "  ", "0", "1", "12", "123", "2024", "-", ".5", "e+", "\\n", '\\"',
    "ab", "abc", "aa", "yes", "no", "é", "日本", "🙂", "🙂🙂",
)  # fmt: skip


class SmallVocabulary:
    """Two end tokens, a special and an unused one, all bytes, pieces, parts of characters."""

    def __init__(self):
        self.texts = ["</s>", "<|end|>", "<|tool|>", None]
        halves = ["é".encode()[:1] + b"", "日".encode()[:2], "🙂".encode()[1:3], "🙂".encode()[:3]]
        self.bytes = [
            b"</s>", b"<|end|>", b"<|tool|>", b"",
            *(bytes([value]) for value in range(256)),
            *(piece.encode() for piece in PIECES),
            *halves,
            b"ab",  # a second token of the same bytes
            b"</s>",  # and a plain one that reads like the end
        ]  # fmt: skip
        self.vocab_size = len(self.bytes)
        self.eos_ids = frozenset(EOS)
        self.special_ids = frozenset({*EOS, 2})

    def token_text(self, id_):
        return self.texts[id_] if id_ < 4 else self.bytes[id_].decode("latin-1")

    def token_bytes(self, id_):
        return self.bytes[id_]

    def ids(self, data):
        """Return one token a byte."""
        return [4 + value for value in data]


VOCABULARY = SmallVocabulary()
WORDS = -(-(VOCABULARY.vocab_size + PADDING) // 32)


def allowed(matcher):
    """Return the ids that a mask allows, as a sorted array."""
    words = np.full(WORDS, -1, np.int32)
    matcher.fill(words)
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))


def takes(source, text):
    """Say whether a text, given byte by byte, is allowed and may end."""
    matcher = source.start()
    data = text if isinstance(text, bytes) else text.encode()
    return all(map(matcher.accept, VOCABULARY.ids(data))) and 0 in allowed(matcher)


def walk(source, seed, limit=300, longing=0.3):
    """Take random allowed tokens; return the bytes, and whether the text was whole at the end.

    ``longing``: how often an end is taken where one may be.
    """
    dice, matcher, data = random.Random(seed), source.start(), b""
    for _ in range(limit):
        ids = allowed(matcher)
        assert len(ids), f"nothing may follow {data!r}"
        assert ids[-1] < VOCABULARY.vocab_size
        assert UNUSED not in ids
        if 0 in ids and (len(ids) <= 2 or dice.random() < longing):
            assert 1 in ids, "every end token is allowed where one is"
            assert matcher.accept(dice.choice(EOS))
            assert matcher.is_complete
            return data, True
        token = int(dice.choice([i for i in ids if i not in EOS]))
        assert matcher.accept(token)
        data += VOCABULARY.bytes[token]
        if matcher.is_complete:
            assert set(allowed(matcher)) == set(EOS)
            return data, True
    return data, False
