"""What an answer says beyond the OpenAI form, under the key ``radiance``."""

import re
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from radiance_core.engine.sampling import SamplingParams
from radiance_core.server.exchange import Exchange
from radiance_core.server.requests import SamplingRequest

_MAX_NAMED = 32
_PLAIN = re.compile(r"[A-Za-z0-9_.\[\]-]{1,64}")


class Extension(msgspec.Struct, omit_defaults=True):
    """Fields of the request that were ignored, and the seed that was drawn for it."""

    ignored: tuple[str, ...] = ()
    seed: int | None = None


def extension(
    ignored: Sequence[str], request: SamplingRequest, params: SamplingParams
) -> Extension | UnsetType:
    """Return what there is to say, or nothing."""
    drawn = params.seed if request.seed is None and params.temperature > 0 else None
    if not ignored and drawn is None:
        return UNSET
    return Extension(tuple(name[:64] for name in ignored[:_MAX_NAMED]), drawn)


def name_ignored(exchange: Exchange, ignored: Sequence[str]) -> None:
    """Name the ignored fields in a header; names that do not fit one become ``?``."""
    if ignored:
        shown = (name if _PLAIN.fullmatch(name) else "?" for name in ignored[:_MAX_NAMED])
        exchange.headers["X-Radiance-Ignored"] = ",".join(shown)
        exchange.facts["ignored"] = list(ignored[:_MAX_NAMED])
