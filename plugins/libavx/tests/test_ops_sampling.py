"""Sampling stages against their definitions in float64, and draws against the known sequence."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

GREEDY, PENALTY, MASK, XTC = 1, 2, 4, 8
FLOATS = (
    "temp top_p min_p typical_p rep_penalty freq_penalty pres_penalty xtc_probability "
    "xtc_threshold dry_multiplier dry_base"
)
INTS = (
    "top_k penalty_last_n dry_allowed_length dry_penalty_last_n hist_off hist_len mask_row flags "
    "dry_rep_limit"
)
ROW = np.dtype(
    [("seed", "<u8"), ("pos", "<u8")]
    + [(name, "<f4") for name in FLOATS.split()]
    + [(name, "<i4") for name in INTS.split()]
)
HOLE = -np.inf


def rows_of(*settings_of_rows: dict[str, Any]) -> np.ndarray:
    """Return the rows as records; what is not given is neutral."""
    rows = np.zeros(len(settings_of_rows), ROW)
    rows["temp"], rows["rep_penalty"], rows["mask_row"] = 1, 1, -1
    for row, given_fields in zip(rows, settings_of_rows, strict=True):
        for name, value in given_fields.items():
            row[name] = value
    return rows


def as_bytes(rows: np.ndarray) -> np.ndarray:
    """Return [M,96] bytes, at an odd address: nothing may rely on alignment."""
    raw = np.zeros(rows.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(rows.tobytes(), np.uint8)
    return np.asarray(raw[1:].reshape(len(rows), 96))


def uniform(seed: int, pos: int) -> float:
    """splitmix64 of seed * golden + pos, upper 24 bits, in Python's integers."""
    m = 2**64 - 1
    z = (seed * 0x9E3779B97F4A7C15 + pos + 0x9E3779B97F4A7C15) & m
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & m
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & m
    return ((z ^ (z >> 31)) >> 40) / 2**24


def call(level: Any, op: str, operands: list[np.ndarray], grouping: int = 0, **params: int) -> int:
    return int(level.row(op)(operands, {"M": len(operands[0]), **params}, grouping))


def candidates(rng: np.random.Generator, rows: int, width: int, spread: float = 3.0) -> Any:
    """Descending candidates with some ties and holes at the end."""
    values = np.sort(rng.normal(size=(rows, width)) * spread)[:, ::-1].astype(np.float32)
    values = np.where(rng.random((rows, 1)) < 0.5, np.round(values), values).copy()
    ids = np.array([rng.permutation(5 * width)[:width] for _ in range(rows)], np.int32)
    for r in range(rows):
        live = int(rng.integers(0, width + 1)) if r else width
        values[r, live:], ids[r, live:] = HOLE, -1
    return ids, values.astype(np.float32)


def softmax(values: np.ndarray) -> np.ndarray:
    weights = np.exp(values.astype(np.float64) - float(values.max()))
    return np.asarray(weights / weights.sum())


def test_layout() -> None:
    """The record is the 96 bytes that the kernels read."""
    assert ROW.itemsize == 96


@pytest.mark.parametrize("n", [1, 16, 33, 1000, 50001])
def test_argmax(levels: Any, n: int) -> None:
    """Greedy rows get the lowest id of the largest logit; NaN and all -inf give -1; others stay."""
    rng = np.random.default_rng()
    logits = np.round(rng.normal(size=(6, n)) * 2).astype(np.float32)
    logits[3, n // 2] = np.nan
    logits[4] = -np.inf
    logits[5] = np.where(rng.random(n) < 0.5, 0.0, -0.0)
    flags = [GREEDY, 0, GREEDY | MASK, GREEDY, GREEDY, GREEDY]
    params = as_bytes(rows_of(*({"flags": f} for f in flags)))
    want = [logits[0].argmax(), 77, logits[2].argmax(), -1, -1, 0]
    for level in levels:
        token = np.full((6, 1), 77, np.int32)
        assert call(level, "sample_argmax", [logits, params, token], n_vocab=n) == 0
        assert token[:, 0].tolist() == want


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 700), st.sampled_from([1, 7, 40, 256]), st.integers(0, 2**32 - 1))
def test_topk(levels: Any, n: int, width: int, seed: int) -> None:
    """The k best by (logit, lower id first) among many ties; holes after them."""
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(size=(8, n)) * 3).astype(np.float32)
    logits[1] = rng.normal(size=n)
    logits[2, rng.random(n) < 0.8] = -np.inf
    logits[3, int(rng.integers(n))] = np.nan
    logits[4] = np.sort(logits[4])
    logits[5] = np.where(rng.random(n) < 0.5, 0.0, -0.0)
    logits[6, 0] = np.inf
    ks = rng.integers(-1, width + 5, 8)
    fields = [{"top_k": k, "flags": (i == 7) * GREEDY} for i, k in enumerate(ks)]
    params = as_bytes(rows_of(*fields))
    for level in levels:
        ids, values = np.zeros((8, width), np.int32), np.zeros((8, width), np.float32)
        operands = [logits, params, ids, values]
        assert call(level, "sample_topk", operands, 3, n_vocab=n, n_cand=width) == 0
        for r, k in enumerate(ks):
            order = np.lexsort((np.arange(n), -logits[r].astype(np.float64)))
            order = order[logits[r][order] > -np.inf][: width if k <= 0 else k][:width]
            if r == 7:  # a greedy row's candidates are left as they are
                assert not ids[r].any()
                continue
            if r == 3:
                order = order[:0]
            assert ids[r].tolist() == [*order, *[-1] * (width - len(order))]
            np.testing.assert_array_equal(values[r, : len(order)], logits[r][order])
            assert (values[r, len(order) :] == HOLE).all()


@pytest.mark.parametrize("kind", ["random", "ascending", "descending", "equal", "two", "saw"])
@pytest.mark.parametrize("width", [1024, 300_000])
def test_topk_of_large_vocabularies(levels: Any, kind: str, width: int) -> None:
    """Exact for 300k logits in any order, whether they fill the pool often or are all sorted."""
    rng = np.random.default_rng()
    n = 300_000
    ramp = np.arange(n, dtype=np.float32)
    orders: dict[str, Any] = {
        "random": rng.normal(size=n), "ascending": ramp, "descending": -ramp,
        "equal": np.ones(n), "two": rng.integers(0, 2, n), "saw": ramp % 5000,
    }  # fmt: skip
    logits = orders[kind].astype(np.float32)[None]
    want = np.argsort(-logits[0], kind="stable")[:width]
    params = as_bytes(rows_of({}))
    for level in levels:
        ids, values = np.zeros((1, width), np.int32), np.zeros((1, width), np.float32)
        operands = [logits, params, ids, values]
        assert call(level, "sample_topk", operands, n_vocab=n, n_cand=width) == 0
        np.testing.assert_array_equal(ids[0], want)


def test_penalties(levels: Any) -> None:
    """Repetition, frequency and presence, once for each distinct token of the row's window."""
    rng = np.random.default_rng()
    n = 50
    history = rng.integers(-2, n + 2, 300).astype(np.int32)
    some = {"flags": PENALTY, "rep_penalty": 1.3, "freq_penalty": 0.2, "pres_penalty": 0.7}
    rows = rows_of(
        {**some, "hist_off": 0, "hist_len": 100, "penalty_last_n": -1},
        {**some, "hist_off": 100, "hist_len": 150, "penalty_last_n": 64},
        {**some, "hist_off": 250, "hist_len": 50, "penalty_last_n": 0},
        {**some, "hist_off": 250, "hist_len": 50, "penalty_last_n": 9000},
        {**some, "hist_len": 100, "penalty_last_n": -1, "flags": PENALTY | GREEDY},
        {**some, "hist_len": 100, "penalty_last_n": -1, "flags": 0},
        {**some, "hist_off": 300, "hist_len": 0, "penalty_last_n": -1},
    )
    logits = (rng.normal(size=(len(rows), n)) * 5).astype(np.float32)
    want = logits.copy()
    for r, (lo, hi) in {0: (0, 100), 1: (186, 250), 3: (250, 300)}.items():
        for token in set(history[lo:hi].tolist()) & set(range(n)):
            count = np.float32((history[lo:hi] == token).sum())
            row, v = rows[r], want[r, token]
            v = v / row["rep_penalty"] if v > 0 else v * row["rep_penalty"]
            want[r, token] = v - count * row["freq_penalty"] - row["pres_penalty"]
    for level in levels:
        got = logits.copy()
        assert call(level, "sample_penalties", [got, as_bytes(rows), history], 2, n_vocab=n) == 0
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "bad", [{"hist_off": -1}, {"hist_len": -1}, {"hist_off": 6}, {"hist_off": 2**31 - 1}]
)
def test_histories_outside_are_refused(best: Any, bad: dict[str, int]) -> None:
    """A window that leaves the plane is a status."""
    rows = rows_of({"flags": PENALTY, "penalty_last_n": -1, "hist_len": 5, **bad})
    operands = [np.zeros((1, 9), np.float32), as_bytes(rows), np.zeros(10, np.int32)]
    assert call(best, "sample_penalties", operands, n_vocab=9) == -12


def test_temperature(levels: Any) -> None:
    """Rows are divided; temperatures of 0, below, NaN and 1, and greedy rows, are left alone."""
    rng = np.random.default_rng()
    logits = rng.normal(size=(6, 1003)).astype(np.float32)
    temps = [0.7, 0.0, -1.0, 1.0, np.nan, 0.7]
    rows = rows_of(*({"temp": t} for t in temps))
    rows["flags"][5] = GREEDY
    want = logits.copy()
    want[0] /= np.float32(0.7)
    for level in levels:
        got = logits.copy()
        assert call(level, "sample_temp", [got, as_bytes(rows)], n_vocab=1003) == 0
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("n", [1, 31, 32, 50, 1000])
def test_mask(levels: Any, n: int) -> None:
    """Cleared bits forbid; rows without the flag or a line stay; a line outside is a status."""
    rng = np.random.default_rng()
    allowed = rng.random((3, n)) < [[0.5], [0.02], [0.98]]
    words = -(-n // 32)
    packed = np.packbits(np.pad(allowed, ((0, 0), (0, 32 * words - n))), axis=1, bitorder="little")
    bitmask = packed.view(np.int32)
    rows = rows_of(
        {"flags": MASK, "mask_row": 2}, {"flags": MASK, "mask_row": 0},
        {"flags": MASK, "mask_row": 1}, {"flags": 0, "mask_row": 1},
        {"flags": MASK}, {"flags": MASK | GREEDY, "mask_row": 0},
    )  # fmt: skip
    logits = rng.normal(size=(6, n)).astype(np.float32)
    logits[0, 0] = np.nan
    want = logits.copy()
    for r, line in ((0, 2), (1, 0), (2, 1)):
        want[r, ~allowed[line]] = -np.inf
    for level in levels:
        got = logits.copy()
        assert call(level, "sample_mask", [got, as_bytes(rows), bitmask], n_vocab=n) == 0
        np.testing.assert_array_equal(got, want)
        rows_bad = rows_of(*[{"flags": MASK, "mask_row": 3}] * 6)
        assert call(level, "sample_mask", [got, as_bytes(rows_bad), bitmask], n_vocab=n) == -12


def test_draws_are_the_known_sequence() -> None:
    """The generator's first values, worked out by hand from its definition, stay as they are."""
    assert uniform(0, 0) == (0xE220A8397B1DCDAF >> 40) / 2**24
    assert uniform(1, 0) == (0x6E789E6AA1B965F4 >> 40) / 2**24


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(1, 70), st.integers(0, 2**32)
)
def test_pick(levels: Any, seed: int, pos: int, width: int, entropy: int) -> None:
    """The first candidate whose cumulative probability exceeds the draw of (seed, pos)."""
    ids, values = candidates(np.random.default_rng(entropy), 6, width)
    rows = rows_of(*({"seed": seed, "pos": (pos + i) % 2**64} for i in range(6)))
    rows["flags"][5] = GREEDY
    values[4, 0] = np.nan
    for level in levels:
        token = np.full((6, 1), -5, np.int32)
        operands = [ids, values, as_bytes(rows), token]
        assert call(level, "sample_pick", operands, n_cand=width) == 0
        assert token[5, 0] == -5
        assert token[4, 0] == (-1)
        for r in range(4):
            live = int((ids[r] >= 0).sum())
            if not live:
                assert token[r, 0] == -1
                continue
            above = np.cumsum(softmax(values[r, :live])) > uniform(seed, (pos + r) % 2**64)
            first = int(above.argmax()) if above.any() else live - 1
            assert token[r, 0] == ids[r, first]


def test_picks_follow_the_distribution(best: Any) -> None:
    """Over many positions each candidate is drawn as often as its probability says (chi-square)."""
    m = 40_000
    logits = np.array([2.0, 1.5, 1.0, 0.0, -0.5, -1.0, -2.0], np.float32)
    ids = np.tile(np.arange(7, dtype=np.int32), (m, 1))
    values = np.tile(logits, (m, 1))
    seed = int(np.random.default_rng().integers(2**63))
    rows = rows_of(*[{"seed": seed}] * m)
    rows["pos"] = np.arange(m)
    token = np.zeros((m, 1), np.int32)
    assert call(best, "sample_pick", [ids, values, as_bytes(rows), token], n_cand=7) == 0
    expected = softmax(logits) * m
    seen = np.bincount(token[:, 0], minlength=7)
    # 6 degrees of freedom: 45 is passed once in twenty million runs.
    assert ((seen - expected) ** 2 / expected).sum() < 45


def test_infinite_logits_share_everything(best: Any) -> None:
    """Candidates of +inf are equally likely and all others impossible."""
    values = np.array([[np.inf, np.inf, 3.0, 1.0]] * 500, np.float32)
    ids = np.tile(np.arange(4, dtype=np.int32), (500, 1))
    rows = rows_of(*({"seed": 9, "pos": i} for i in range(500)))
    token = np.zeros((500, 1), np.int32)
    assert call(best, "sample_pick", [ids, values, as_bytes(rows), token], n_cand=4) == 0
    assert set(token[:, 0].tolist()) == {0, 1}


SHAPES: dict[str, list[tuple[Any, str]]] = {
    "sample_temp": [(np.float32, "V"), (np.uint8, "P")],
    "sample_penalties": [(np.float32, "V"), (np.uint8, "P"), (np.int32, "H")],
    "sample_mask": [(np.float32, "V"), (np.uint8, "P"), (np.int32, "W")],
    "sample_topk": [(np.float32, "V"), (np.uint8, "P"), (np.int32, "C"), (np.float32, "C")],
    "sample_argmax": [(np.float32, "V"), (np.uint8, "P"), (np.int32, "T")],
    "sample_topp": [(np.int32, "C"), (np.float32, "C"), (np.uint8, "P")],
    "sample_pick": [(np.int32, "C"), (np.float32, "C"), (np.uint8, "P"), (np.int32, "T")],
}


@pytest.mark.parametrize("op", SHAPES)
def test_refuses_wrong_operands(levels: Any, op: str) -> None:
    """Wrong extents, types and missing operands are a status."""
    extents = {"V": (3, 64), "P": (3, 96), "C": (3, 8), "T": (3, 1), "H": (10,), "W": (2, 2)}
    params = {"n_vocab": 64} if op not in ("sample_topp", "sample_pick") else {"n_cand": 8}
    params |= {"n_cand": 8} if op == "sample_topk" else {}
    for level in levels:
        good = [np.zeros(extents[e], kind) for kind, e in SHAPES[op]]
        assert call(level, op, good, **params) == 0
        for k, (kind, e) in enumerate(SHAPES[op]):
            wrong = np.zeros(extents[e], np.float64), np.zeros((5, 97), kind), np.zeros((), kind)
            for bad in wrong:
                operands = [*good[:k], bad, *good[k + 1 :]]
                if e == "W" and bad.ndim == 2 and bad.dtype == kind:
                    continue
                row = level.row(op)
                assert row(operands, {"M": 3, **params}) < 0
