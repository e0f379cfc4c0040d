"""Fields of a request that are no plain numbers: biases, breakers, log probabilities, its cache."""

import hashlib
import re
from collections.abc import Mapping, Sequence

from radiance_core.engine.breakers import MOST_TOKENS
from radiance_core.engine.interface import Request, TextModel
from radiance_core.graph.sampler import MOST_BIASES
from radiance_core.server.errors import invalid
from radiance_core.server.fields import LOGIT_BIAS, LOGPROBS

MOST_BREAKERS, MOST_BREAKER_BYTES = 16, 40
_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_SALT = re.compile(r"[\x21-\x7e]{1,128}")


def biases(listed: Mapping[str, float] | None, model: TextModel) -> dict[int, float]:
    """Return what to add to logits, by token id; entries of 0 change nothing and are left out.

    Raises: ``ApiError`` 400 for too many, for what is no token id, and for a value out of range.
    """
    size = model.tokenizer.vocab_size
    if len(listed or ()) > MOST_BIASES:
        raise invalid(
            f"logit_bias: expected at most {MOST_BIASES} tokens, got {len(listed or ())}.",
            "logit_bias",
        )
    found: dict[int, float] = {}
    for key, value in (listed or {}).items():
        if not _TOKEN_ID.fullmatch(key) or int(key) >= size:
            raise invalid(
                f"logit_bias: expected token ids from 0 to {size - 1}, got {key!r:.40}.",
                "logit_bias",
            )
        if not LOGIT_BIAS.holds(value):
            raise invalid(
                f"logit_bias.{key}: expected a number {LOGIT_BIAS}, got {value}.",
                f"logit_bias.{key}",
            )
        if value:
            found[int(key)] = value
    return found


def breakers(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts over which no repetition reaches.

    Raises: ``ApiError`` 400 for too many, an empty one and one too long.
    """
    name = "dry_sequence_breakers"
    if len(texts) > MOST_BREAKERS:
        raise invalid(f"{name}: expected at most {MOST_BREAKERS} texts, got {len(texts)}.", name)
    for place, text in enumerate(texts):
        size = len(text.encode("utf-8", "surrogatepass"))
        if not 0 < size <= MOST_BREAKER_BYTES:
            raise invalid(
                f"{name}[{place}]: expected 1 to {MOST_BREAKER_BYTES} bytes, which spread over at "
                f"most {MOST_TOKENS} tokens, got {size} bytes.",
                f"{name}[{place}]",
            )
    return tuple(texts)


def told_alternatives(wanted: bool | None, count: int | None) -> int | None:
    """Return for how many alternatives a chat request wants log probabilities, None for nothing.

    Raises: ``ApiError`` 400 for a number out of range, or without ``logprobs`` true.
    """
    if count is not None and not LOGPROBS.holds(count):
        raise invalid(f"top_logprobs: expected a number {LOGPROBS}, got {count}.", "top_logprobs")
    if not wanted:
        if count:
            raise invalid(
                "top_logprobs: expected only with logprobs true, got it without; add that.",
                "top_logprobs",
            )
        return None
    return count or 0


def check_salt(salt: str | None) -> None:
    """Refuse a salt that is no short printable text without blanks."""
    if salt is not None and not _SALT.fullmatch(salt):
        raise invalid(
            "cache_salt: expected 1 to 128 printable ASCII characters without blanks, got "
            f"{salt!r:.40}.",
            "cache_salt",
        )


def steer(
    wanted: Request, tenant: str, salt: str | None, priority: int | None, reuse: bool | None
) -> None:
    """Say whose cached prompts a request may start from, and who goes before whom.

    Args:
        wanted: what the engine is going to be asked; changed.
        tenant: who asks, by the digest of the key; empty where no key is asked for.
        salt, priority, reuse: ``cache_salt``, ``priority`` and ``cache_prompt`` of the request.
    """
    wanted.priority = priority or 0
    wanted.reuse_cache = reuse is not False
    wanted.tenant = tenant
    if tenant or salt:
        # Hashed with its length, so that no salt can be another tenant's key and salt.
        text = f"{len(tenant)}:{tenant}:{salt or ''}"
        wanted.salt = hashlib.sha256(text.encode()).hexdigest()
