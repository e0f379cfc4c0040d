"""What the sampling ops share: a request's row of settings, its draws, probabilities."""

import numpy as np
import numpy.typing as npt

from radiance_abi import Call, KernelError

INVAL = -12
Array = npt.NDArray[np.generic]

GREEDY, PENALTY, MASK, XTC, DRY, LOGPROBS, BIAS = 1, 2, 4, 8, 16, 32, 64
XTC_STREAM = 0x58544311

_FIELDS = (
    ("<u8", "seed pos"),
    ("<f4", "temp top_p min_p typical_p rep_penalty freq_penalty pres_penalty"),
    ("<f4", "xtc_probability xtc_threshold dry_multiplier dry_base"),
    ("<i4", "top_k penalty_last_n dry_allowed_length dry_penalty_last_n"),
    ("<i4", "hist_off hist_len mask_row flags dry_rep_limit"),
)
ROW = np.dtype([(name, kind) for kind, names in _FIELDS for name in names.split()])
"""One row of ``params``."""


def uniform(seed: int, pos: int) -> float:
    """Return the draw in [0, 1) of (seed, pos): splitmix64, upper 24 bits."""
    mask = (1 << 64) - 1
    z = (seed * 0x9E3779B97F4A7C15 + pos + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return float((z ^ (z >> 31)) >> 40) / (1 << 24)


def window_of(history: np.ndarray, row: np.void, last_n: int) -> slice:
    """Return which of the row's history counts."""
    start, count = int(row["hist_off"]), int(row["hist_len"])
    if min(start, count) < 0 or start + count > len(history):
        raise KernelError(f"history: expected {start}+{count} of {len(history)} tokens", INVAL)
    kept = count if last_n < 0 else min(last_n, count)
    return slice(start + count - kept, start + count)


def arrays(call: Call) -> list[np.ndarray]:
    """Return all operands; none may be absent."""
    present = [a for a in call.arrays() if a is not None]
    if len(present) != len(call.tensors):
        raise KernelError("sampling: expected every operand, got an absent one", INVAL)
    return present


def settings_of(params: np.ndarray) -> np.ndarray:
    """Return ``params`` u8 [M,96] as M records."""
    return np.ascontiguousarray(params).view(ROW)[:, 0]


def sampled(settings: np.ndarray, flag: int = 0) -> list[int]:
    """Return the rows that are not greedy and have ``flag``."""
    flags = settings["flags"]
    return [int(i) for i in np.flatnonzero((flags & GREEDY == 0) & (flags & flag == flag))]


def probabilities(values: np.ndarray) -> np.ndarray:
    """Return softmax in f64; logits of +inf share everything."""
    values = values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        weights = np.where(values == values.max(), 1.0, np.exp(values - values.max()))
    return np.asarray(weights / weights.sum())
