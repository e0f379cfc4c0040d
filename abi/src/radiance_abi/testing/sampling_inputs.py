"""Operands of the sampling ops: request rows of 96 bytes, logits, candidates, masks, histories."""

from collections.abc import Callable, Mapping

import numpy as np

from radiance_abi.kernels import Geometry
from radiance_abi.testing.case import Array, Case, Weight

Operands = dict[str, Array | Weight | None]

GREEDY, PENALTY, MASK, XTC, DRY, LOGPROBS, BIAS = 1, 2, 4, 8, 16, 32, 64

SETTINGS = np.dtype(
    [("seed", "<u8"), ("pos", "<u8")]
    + [(name, "<f4") for name in ("temp", "top_p", "min_p", "typical_p")]
    + [(name, "<f4") for name in ("rep_penalty", "freq_penalty", "pres_penalty")]
    + [(name, "<f4") for name in ("xtc_probability", "xtc_threshold")]
    + [(name, "<f4") for name in ("dry_multiplier", "dry_base")]
    + [(name, "<i4") for name in ("top_k", "penalty_last_n")]
    + [(name, "<i4") for name in ("dry_allowed_length", "dry_penalty_last_n")]
    + [(name, "<i4") for name in ("hist_off", "hist_len", "mask_row", "flags", "dry_rep_limit")]
)
"""One request's row of the ``params`` operand: 96 bytes, no padding."""


def settings_of(*fields_of_rows: Mapping[str, float]) -> Array:
    """Return request rows as u8 [rows, 96]; what is not given is neutral."""
    made = np.zeros(len(fields_of_rows), SETTINGS)
    made["temp"] = made["rep_penalty"] = 1
    made["mask_row"] = -1
    for i, fields in enumerate(fields_of_rows):
        for name, value in fields.items():
            made[name][i] = value
    return made.view(np.uint8).reshape(-1, SETTINGS.itemsize)


def settings(rows: int, rng: np.random.Generator) -> Array:
    """Return random request rows as u8 [rows, 96]; a quarter of them greedy."""
    made = np.zeros(rows, SETTINGS)
    made["seed"] = rng.integers(0, 1 << 63, rows)
    made["pos"] = rng.integers(0, 1 << 20, rows)
    made["temp"] = rng.choice([0.0, 0.3, 0.7, 1.0, 1.5], rows)
    made["top_p"] = rng.choice([0.0, 0.1, 0.5, 0.9, 0.95, 1.0], rows)
    made["min_p"] = rng.choice([0.0, 0.02, 0.1, 0.5], rows)
    made["typical_p"] = rng.choice([0.0, 0.2, 0.7, 0.95, 1.0], rows)
    made["rep_penalty"] = rng.choice([1.0, 1.1, 1.3, 0.9], rows)
    made["freq_penalty"] = rng.choice([0.0, 0.2, -0.3], rows)
    made["pres_penalty"] = rng.choice([0.0, 0.5, -0.1], rows)
    made["xtc_probability"] = rng.choice([0.0, 0.5, 1.0], rows)
    made["xtc_threshold"] = rng.choice([0.02, 0.1, 0.3], rows)
    made["top_k"] = rng.choice([0, 1, 5, 20, 1000], rows)
    made["penalty_last_n"] = rng.choice([-1, 0, 3, 64], rows)
    made["mask_row"] = -1
    greedy = np.where(rng.random(rows) < 0.25, GREEDY, 0)
    made["dry_multiplier"] = rng.choice([0.0, 0.8, 2.0], rows)
    made["dry_base"] = rng.choice([1.75, 1.0, 0.5, 40.0], rows)
    made["dry_allowed_length"] = rng.choice([0, 1, 2, 4], rows)
    made["dry_penalty_last_n"] = rng.choice([-1, 0, 3, 30], rows)
    made["dry_rep_limit"] = rng.choice([0, 1, 5, 9999], rows)
    every = PENALTY | MASK | XTC | DRY | LOGPROBS | BIAS
    others = rng.choice([0, PENALTY, MASK, XTC, DRY, LOGPROBS, BIAS, every], rows)
    made["flags"] = greedy | others
    return made.view(np.uint8).reshape(rows, SETTINGS.itemsize)


def records(params: Array) -> Array:
    """Return u8 [rows, 96] as records with the fields of ``SETTINGS``."""
    return np.ascontiguousarray(params).view(SETTINGS)[:, 0]


def sampled_rows(case: Case, flag: int = 0) -> list[tuple[int, np.void]]:
    """Return (index, settings) of rows of a case that are sampled and have ``flag``."""
    every = enumerate(records(case.array("params")))
    return [(i, r) for i, r in every if not r["flags"] & GREEDY and (r["flags"] & flag) == flag]


def _logits(operands: Operands, geometry: Geometry, rng: np.random.Generator) -> None:
    rows, vocab = int(geometry["M"]), int(geometry["n_vocab"])
    # Coarse values make ties, which go to the lower id.
    fine = rng.normal(size=(rows, vocab)) * 3
    coarse = np.round(fine * 4) / 4
    logits = np.where(rng.random((rows, 1)) < 0.5, fine, coarse).astype(np.float32)
    logits[rng.random((rows, vocab)) < 0.1] = -np.inf
    if rng.random() < 0.3:
        logits[int(rng.integers(rows)), int(rng.integers(vocab))] = np.nan
    if rng.random() < 0.3:
        logits[int(rng.integers(rows))] = -np.inf
    operands["logits"] = logits
    operands["params"] = settings(rows, rng)
    if "token" in operands:
        operands["token"] = rng.integers(0, vocab, (rows, 1)).astype(np.int32)


def _penalties(operands: Operands, geometry: Geometry, rng: np.random.Generator) -> None:
    """Make histories of few tokens, which repeat themselves."""
    _logits(operands, geometry, rng)
    rows, vocab = int(geometry["M"]), int(geometry["n_vocab"])
    params = operands["params"]
    assert isinstance(params, np.ndarray), "made above"
    made = records(params).copy()
    made["hist_len"] = rng.integers(0, 90, rows)
    made["hist_off"] = np.concatenate(([0], np.cumsum(made["hist_len"])[:-1]))
    total = max(int(made["hist_len"].sum()), 1)
    different = int(rng.choice([1, 2, 3, min(vocab, 40)]))
    operands["history"] = rng.integers(-1, different, total).astype(np.int32)
    operands["params"] = made.view(np.uint8).reshape(rows, -1)
    if operands.get("breakers") is not None:
        operands["breakers"] = (rng.random(total) < 0.1).astype(np.uint8) * np.uint8(7)


def _keep(operands: Operands, geometry: Geometry, rng: np.random.Generator) -> None:
    _logits(operands, geometry, rng)
    logits = operands["logits"]
    assert isinstance(logits, np.ndarray), "made above"
    operands["kept"] = rng.normal(size=logits.shape).astype(np.float32)


def _bias(operands: Operands, geometry: Geometry, rng: np.random.Generator) -> None:
    """Make lists of all lengths; one id may come twice, and some do not exist."""
    _logits(operands, geometry, rng)
    rows, vocab = int(geometry["M"]), int(geometry["n_vocab"])
    shape = (rows, int(geometry["n_bias"]))
    ids = rng.integers(0, min(vocab, 20), shape)
    ids[rng.random(shape) < 0.1] = vocab
    for i, length in enumerate(rng.integers(0, shape[1] + 1, rows)):
        ids[i, length:] = -1
    operands["ids"] = ids.astype(np.int32)
    operands["values"] = rng.choice([-100.0, -1.3, 0.7, 100.0], shape).astype(np.float32)


def _logprobs(operands: Operands, geometry: Geometry, rng: np.random.Generator) -> None:
    _logits(operands, geometry, rng)
    rows, vocab = int(geometry["M"]), int(geometry["n_vocab"])
    operands["kept"] = operands.pop("logits")
    for name in ("token", "given"):
        operands[name] = rng.choice([-1, 0, vocab // 2, vocab - 1, vocab], (rows, 1)).astype(
            np.int32
        )


def _mask(operands: Operands, geometry: Geometry, rng: np.random.Generator) -> None:
    _logits(operands, geometry, rng)
    rows, vocab = int(geometry["M"]), int(geometry["n_vocab"])
    params = operands["params"]
    assert isinstance(params, np.ndarray), "made above"
    made = records(params).copy()
    lines = max(1, rows // 2)
    made["mask_row"] = rng.integers(-1, lines, rows)
    bits = rng.integers(-(1 << 31), 1 << 31, (lines, -(-vocab // 32)))
    operands["bitmask"] = bits.astype(np.int32)
    operands["params"] = made.view(np.uint8).reshape(rows, -1)


def _candidates(operands: Operands, geometry: Geometry, rng: np.random.Generator) -> None:
    """Make descending candidates with distinct ids, a tail of dropped ones in some rows."""
    rows, width = int(geometry["M"]), int(geometry["n_cand"])
    values = -np.sort(-rng.normal(size=(rows, width)) * 3, axis=1).astype(np.float32)
    ids = np.argsort(rng.random((rows, 3 * width + 5)), axis=1)[:, :width].astype(np.int32)
    for i in range(rows):
        if rng.random() < 0.5:
            left = int(rng.integers(0, width + 1))
            ids[i, left:], values[i, left:] = -1, -np.inf
    operands["cand_idx"], operands["cand_val"] = ids, values
    operands["params"] = settings(rows, rng)
    if "token" in operands:
        operands["token"] = rng.integers(0, 1000, (rows, 1)).astype(np.int32)


MAKERS: dict[str, Callable[[Operands, Geometry, np.random.Generator], None]] = {
    "sample_keep": _keep,
    "sample_penalties": _penalties,
    "sample_dry": _penalties,
    "sample_bias": _bias,
    "sample_temp": _logits,
    "sample_mask": _mask,
    "sample_topk": _logits,
    "sample_draw": _logits,
    "sample_argmax": _logits,
    "sample_topp": _candidates,
    "sample_minp": _candidates,
    "sample_typical": _candidates,
    "sample_xtc": _candidates,
    "sample_pick": _candidates,
    "sample_logprobs": _logprobs,
}
"""What makes the operands of each sampling op."""
