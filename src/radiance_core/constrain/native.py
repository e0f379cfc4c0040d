"""llguidance behind a few functions: its limits, its vocabulary, its compiled grammars, its words.

Imported by the process that tries constraints out too, so it needs nothing but the standard
library until something is compiled.
"""

import re
from collections.abc import Sequence
from typing import Any, Protocol

TOO_HARD = (
    "expected one that can be made into masks within 1 s of processor time and 512 MiB, "
    "it cannot; make it smaller, with fewer nested repetitions and alternatives"
)
MAX_LEXER_STATES = 64_000
"""States that a text may lead to, of 0.6 to 1 KiB each, for every text under way."""
MAX_STEP_ITEMS = 10_000
"""Ways to read a text that one mask may look at; each takes about a microsecond (ADR 0008)."""
_NOISE = re.compile(r"\n?<(?:non-verbose/|state|grammar).*", re.DOTALL)
_EMPTY = "NoExtensionBias"
_OF_OURS = re.compile(
    r'at \d+\(\d+\): (?:failed to compile JSON schema: |invalid regex ".*" \(in regex\): )'
)
"""Where a fault is in the grammar around a schema or an expression, which no client sees."""
_PLACE = re.compile(r"json-schema:///(#\S*)")
_BETTER = {
    "oneOf constraints are not supported": (
        "alternatives of a oneOf that do not exclude each other by type or by a constant; use anyOf"
    ),
    "Too many items": (
        "more ways to read one text than can be told apart in time; make the grammar unambiguous, "
        "so that each text has one way to read it"
    ),
    "initial_lexer_fuel": "more alternatives and repetitions than fit into one expression",
}
"""What llguidance says to its own users, in words for a client."""


class Tokens(Protocol):
    """What a vocabulary must tell; ``radiance_core.text.tokenizer.Tokenizer`` does."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a text."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that are no text."""

    def token_bytes(self, id_: int) -> bytes:
        """Bytes that an id stands for."""

    def token_text(self, id_: int) -> str | None:
        """Text of an id as the vocabulary spells it; None for an unused id."""


class PlainVocabulary:
    """A vocabulary as llguidance reads it; the attribute names are its contract.

    Args:
        tokens: bytes of every id; empty for an id that no text has.
        special_ids: ids that are no text.
        eos_ids: ids that end a text.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(
        self, tokens: Sequence[bytes], special_ids: Sequence[int], eos_ids: Sequence[int]
    ) -> None:
        self.tokens = tokens
        self.special_token_ids = special_ids
        self.eos_token_id = eos_ids[0]
        self.eos_ids = list(eos_ids)

    @classmethod
    def of(cls, tokenizer: Tokens) -> "PlainVocabulary":
        """Read a tokenizer once."""
        size = tokenizer.vocab_size
        special = tokenizer.special_ids
        tokens = [
            (tokenizer.token_text(id_) or "").encode()
            if id_ in special
            else tokenizer.token_bytes(id_)
            for id_ in range(size)
        ]
        # A model without an end token ends a text by completing it; the id is then never allowed.
        eos = sorted(tokenizer.eos_ids) or [size]
        return cls(tokens, sorted(special), eos)

    def __call__(self, _: str | bytes) -> list[int]:
        """Return no ids: only grammars that force an encoding would ask, and none here does."""
        return []

    def build(self) -> Any:
        """Return llguidance's own form of this vocabulary; takes a third of a second."""
        from llguidance import LLTokenizer

        if self.eos_token_id == len(self.tokens):
            self.tokens = [*self.tokens, b"<end>"]
            self.special_token_ids = [*self.special_token_ids, self.eos_token_id]
        vocabulary: Any = self  # llguidance asks for the attributes, and names a class of its own
        return LLTokenizer(vocabulary, eos_token=self.eos_ids)


def build_matcher(vocabulary: Any, grammar: str) -> Any:
    """Return a matcher; ``error_of`` says whether it is one."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(
        max_lexer_states=MAX_LEXER_STATES,
        step_max_items=MAX_STEP_ITEMS,
        step_lexer_fuel=200_000,
        verbose_errors=False,
    )
    return LLMatcher(vocabulary, grammar, log_level=0, limits=limits)


def error_of(matcher: Any) -> str:
    """Return what is wrong with a matcher, in one line, or an empty text."""
    if not matcher.is_error():
        return ""
    said = _OF_OURS.sub("", _NOISE.sub("", matcher.get_error()))
    if _EMPTY in said:
        return "no text can satisfy it"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    wrong = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    for known, better in _BETTER.items():
        if known in said:
            place = _PLACE.findall(said)
            return better + (f" (at {place[-1]})" if place else "")
    return (wrong[0] if wrong else lines[0] if lines else "unknown fault")[:300]
