"""What a request asks of each token: how it is drawn, what may come, what is told about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from radiance_core.chat_format.events import Event

DRY_BREAKERS = ("\n", ":", '"', "*")
"""Texts that end a repetition for DRY unless a request names others."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request's tokens are drawn and when it ends.

    Args:
        max_tokens: tokens to generate at most; ``None`` means up to the end of the context.
        temperature: 0 takes the most likely token.
        top_p: kept probability mass, in (0, 1]; 1 keeps all.
        top_k: kept candidates; 0 keeps all.
        min_p: least share of the best candidate's probability; 0 keeps all.
        typical_p: kept mass by typicality, in (0, 1]; 1 keeps all.
        repetition_penalty: divisor of the logits of tokens seen; 1 is off.
        frequency_penalty: subtracted once per occurrence; 0 is off.
        presence_penalty: subtracted when a token occurred; 0 is off.
        penalty_last_n: tokens that the penalties look back on; 0 none, negative all.
        xtc_probability: chance that XTC acts on a token; 0 is off.
        xtc_threshold: least probability of a candidate that XTC may drop.
        dry_multiplier: strength of DRY; 0 is off.
        dry_base: growth of DRY's penalty with each repeated token.
        dry_allowed_length: longest repetition that DRY leaves alone, in tokens.
        dry_last_n: tokens that DRY looks back on; 0 none, negative all.
        dry_breakers: texts over which no repetition reaches.
        logit_bias: added to the logits of single tokens, by token id.
        logprobs: alternatives whose log probabilities are told with each token; ``None`` tells
            none, 0 only the token's own.
        prompt_logprobs: the same for the tokens of the prompt after its first.
        seed: key of the draws, an unsigned 64-bit number; ``None`` lets the engine pick one.
        stop: strings that end the text and are not part of it.
        stop_token_ids: tokens that end the text and are not part of it.
        ignore_eos: go on past the model's own end tokens.
        min_tokens: tokens before which nothing may end the text.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_last_n: int = -1
    dry_breakers: tuple[str, ...] = DRY_BREAKERS
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """What the model, before any sampling setting, thought of one token.

    Args:
        token_id: the token.
        logprob: natural logarithm of its probability under the unscaled logits.
        rank: tokens that were more likely, plus one.
        top: the most likely tokens with their log probabilities, best first.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


ConstraintKind = Literal["json_object", "json_schema", "regex", "choice", "lark", "gbnf", "answer"]


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """What a text must look like.

    ``text``: the JSON schema as JSON, the regular expression, a JSON list of the choices, or the
    grammar; empty for ``json_object``. An ``answer`` is a grammar of the server's own making,
    never a request's. ``field`` is the path of the request's field that says so.
    """

    kind: ConstraintKind
    text: str = ""
    field: str = ""


class Constraint(Protocol):
    """The state of one text under a constraint; one thread at a time uses it, none may block long.

    A token is accepted only after it was allowed, so a fault here is a fault of ours.
    """

    def fill(self, words: np.ndarray) -> None:
        """Write which tokens may come next: i32 [ceil(V / 32)], bit t % 32 of word t // 32.

        End tokens are allowed exactly where the text may end.
        """

    def accept(self, token: int) -> bool:
        """Go on by a token; False when it was not allowed, and then nothing has changed."""

    def rewind(self, count: int) -> None:
        """Take the last ``count`` accepted tokens back."""

    @property
    def is_complete(self) -> bool:
        """Whether the text is whole and nothing more may come."""


class AnswerReader(Protocol):
    """Reads one text on the engine's thread and says where it ends; none may block long."""

    def passes(self, token_id: int) -> bool:
        """Say whether a stop token ends nothing where the text is now."""

    def feed(self, text: str, *, may_stop: bool) -> str | None:
        """Take new text; return the stop string that it completes."""

    def finish(self, *, cut: bool, may_stop: bool) -> str | None:
        """Take the end in, ``cut`` when not the model's own; return the stop string before it."""

    def take(self) -> tuple[Event, ...]:
        """Return what the text was found to be made of since the last time."""


class ConstraintSource(Protocol):
    """A compiled constraint."""

    @property
    def ignored(self) -> tuple[str, ...]:
        """Paths in it that mean nothing to anybody, such as keywords that JSON Schema lacks."""

    def start(self) -> Constraint:
        """Return the state of a text that has not begun; cheap enough for each choice."""
