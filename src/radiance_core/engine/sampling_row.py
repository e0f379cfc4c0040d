"""The 96-byte row that tells the sampling ops how to draw one token."""

import struct

from radiance_core.engine.sampling import SamplingParams

GREEDY, PENALTY, MASK, XTC, DRY, LOGPROBS, BIAS = 1, 2, 4, 8, 16, 32, 64
ROW = struct.Struct("<QQ11f9i")
"""In order: seed, position; temperature, top_p, min_p, typical_p, repetition, frequency, presence,
XTC probability and threshold, DRY multiplier and base; top_k, penalty window, DRY allowed length
and window, history offset and length, mask row, flags, DRY repeat limit."""
POSITION = struct.Struct("<Q")
HISTORY = struct.Struct("<ii")
MASK_ROW = struct.Struct("<i")
FLAGS_AND_LIMIT = struct.Struct("<ii")
POSITION_AT, HISTORY_AT, MASK_ROW_AT, FLAGS_AT = 8, 76, 84, 88
"""Where in a row those of its numbers lie that move from step to step."""

assert ROW.size == 96, "the row has no padding"


def penalised(s: SamplingParams) -> bool:
    """Return whether any penalty acts."""
    moves = s.repetition_penalty != 1 or s.frequency_penalty != 0 or s.presence_penalty != 0
    return moves and s.penalty_last_n != 0


def avoids_repetition(s: SamplingParams) -> bool:
    """Return whether DRY acts."""
    return s.dry_multiplier > 0 and s.dry_last_n != 0


def flags_of(s: SamplingParams, *, masked: bool) -> int:
    """Return the flags of a row that draws.

    A greedy row skips every stage, so one whose logits change first is none.
    """
    flags = (
        (PENALTY if penalised(s) else 0)
        | (DRY if avoids_repetition(s) else 0)
        | (BIAS if s.logit_bias else 0)
        | (MASK if masked else 0)
    )
    if s.temperature <= 0:
        flags |= 0 if flags else GREEDY
    elif s.xtc_probability > 0:
        flags |= XTC
    return flags | (0 if s.logprobs is None else LOGPROBS)


def pack_row(s: SamplingParams, seed: int, flags: int) -> bytes:
    """Return the row at position 0, without history and mask.

    Args:
        s: the request's sampling.
        seed: the draw depends on it and the position, and nothing else; the position counts
            generated tokens.
        flags: what ``flags_of`` gives, or a greedy row's.
    """
    temperature, top_k = s.temperature, s.top_k
    if temperature <= 0 and not flags & GREEDY:
        # It takes the most likely token of what is left: it draws among one.
        temperature, top_k = 1.0, 1
    return ROW.pack(
        seed, 0,
        temperature, s.top_p, s.min_p, s.typical_p,
        s.repetition_penalty, s.frequency_penalty, s.presence_penalty,
        s.xtc_probability, s.xtc_threshold, s.dry_multiplier, s.dry_base,
        top_k, s.penalty_last_n, s.dry_allowed_length, s.dry_last_n, 0, 0, -1, flags, 0,
    )  # fmt: skip
