"""Log probabilities in the form of ``/v1/chat/completions``: one object a token."""

from collections.abc import Sequence

import msgspec

from radiance_core.engine.interface import Delta, TextTokenizer
from radiance_core.engine.sampling import TokenLogprob
from radiance_core.server.completion_logprobs import FLOOR


class TokenAlternative(msgspec.Struct):
    """A token that might have come; ``bytes`` tells what a part of a character cannot."""

    token: str
    logprob: float
    bytes: list[int]


class ToldToken(msgspec.Struct):
    """A token that came."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TokenAlternative]


class ChatLogprobs(msgspec.Struct):
    """The tokens of an answer, or of a part of it, in their order."""

    content: list[ToldToken]
    refusal: None = None


def told_tokens(delta: Delta, tokenizer: TextTokenizer) -> list[ToldToken]:
    """Return the tokens of a delta with what the model thought of them."""
    return [_told(one, tokenizer) for one in delta.logprobs]


def _told(one: TokenLogprob, tokenizer: TextTokenizer) -> ToldToken:
    came = _alternative(one.token_id, one.logprob, tokenizer)
    return ToldToken(came.token, came.logprob, came.bytes, _top(one.top, tokenizer))


def _top(top: Sequence[tuple[int, float]], tokenizer: TextTokenizer) -> list[TokenAlternative]:
    return [_alternative(id_, logprob, tokenizer) for id_, logprob in top]


def _alternative(id_: int, logprob: float, tokenizer: TextTokenizer) -> TokenAlternative:
    raw = tokenizer.token_bytes(id_)
    return TokenAlternative(raw.decode("utf-8", "replace"), max(logprob, FLOOR), list(raw))
