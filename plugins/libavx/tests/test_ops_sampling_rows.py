"""What rows bring along and are told: repetitions, biases, log probabilities."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processor_time import least

from radiance_abi.testing.sampling_inputs import BIAS, DRY, GREEDY, LOGPROBS, MASK, XTC, settings_of

Fields = dict[str, Any]


def call(level: Any, op: str, operands: list[np.ndarray | None], **params: int) -> int:
    rows = next(o for o in operands if o is not None)
    return int(level.row(op)(operands, {"M": len(rows), **params}, 2))


def continued(window: list[int], allowed: int, cap: int, exempt: list[bool]) -> dict[int, int]:
    """Return the longest match by the token that goes on with it, compared one by one."""
    found: dict[int, int] = {}
    for j in range(len(window) - 1):
        length = 0
        while length <= j and length < cap and window[j - length] == window[-1 - length]:
            length += 1
        if length >= allowed and not exempt[j + 1]:
            found[window[j + 1]] = max(length, found.get(window[j + 1], 0))
    return found


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-1, 4), max_size=60),
    st.integers(-1, 5),
    st.sampled_from([-1, 0, 1, 3, 9000]),
    st.sampled_from([-1, 0, 5, 40]),
    st.integers(0, 2**32 - 1),
)
def test_dry(
    levels: Any, history: list[int], allowed: int, limit: int, last_n: int, seed: int
) -> None:
    """Each token that goes on with a repetition is lowered once, by its longest one."""
    rng = np.random.default_rng(seed)
    exempt = rng.random(len(history)) < 0.15
    offset = 3
    plane = np.concatenate([[4] * offset, history, [4]]).astype(np.int32)
    breakers = np.concatenate([[1] * offset, exempt, [1]]).astype(np.uint8)
    logits = rng.normal(size=(2, 4)).astype(np.float32)
    fields = {"flags": DRY, "dry_multiplier": 0.8, "dry_base": 1.75, "hist_off": offset}
    fields |= {"dry_allowed_length": allowed, "dry_rep_limit": limit}
    fields |= {"dry_penalty_last_n": last_n, "hist_len": len(history)}
    params = settings_of(fields, {**fields, "flags": DRY | GREEDY})
    kept = history if last_n < 0 else history[len(history) - min(last_n, len(history)) :]
    skipped = exempt[len(history) - len(kept) :].tolist()
    for with_breakers in (True, False):
        want = logits.copy()
        counted = skipped if with_breakers else [False] * len(kept)
        cap, least = limit if limit > 0 else 4096, allowed if allowed > 0 else 2
        for token, length in continued(kept, least, cap, counted).items():
            if 0 <= token < 4:
                penalty = np.float32(0.8)
                for _ in range(length - least):
                    penalty *= np.float32(1.75)
                want[0, token] -= penalty
        for level in levels:
            got = logits.copy()
            operands = [got, params, plane, breakers if with_breakers else None]
            assert call(level, "sample_dry", operands, n_vocab=4) == 0
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("pattern", ["one token", "two tokens", "no repetition"])
def test_dry_of_a_long_conversation_takes_linear_time(best: Any, pattern: str) -> None:
    """Two million tokens, however they repeat, take under a second; penalties stay finite."""
    n, vocab = 2_000_000, 1000
    ramp = np.arange(n, dtype=np.int32)
    tokens = {"one token": ramp * 0, "two tokens": ramp % 2, "no repetition": ramp}[pattern]
    fields = {"flags": DRY, "dry_multiplier": 0.8, "dry_base": 1.75, "hist_len": n}
    params = settings_of({**fields, "dry_penalty_last_n": -1})
    logits = np.zeros((1, vocab), np.float32)
    assert call(best, "sample_dry", [logits, params, tokens, None], n_vocab=vocab) == 0
    again = [logits.copy(), params, tokens, None]
    took = least(lambda: call(best, "sample_dry", again, n_vocab=vocab), 1.0, time.thread_time)
    assert took < 1.0
    assert np.isfinite(logits).all()
    lowered = {"one token": [0], "two tokens": [0], "no repetition": []}[pattern]
    assert np.flatnonzero(logits[0]).tolist() == lowered
    assert (logits[0, lowered] < -1e37).all()


def test_bias(levels: Any) -> None:
    """Values are added in order up to the first negative id, in rows with the flag."""
    rng = np.random.default_rng()
    logits = rng.normal(size=(4, 70)).astype(np.float32)
    ids = np.tile(np.array([[3, 69, 3, 70, 2**30, -1, 5]], np.int32), (4, 1))
    values = rng.normal(size=ids.shape).astype(np.float32)
    ids[1] = np.arange(7)
    params = settings_of({"flags": BIAS}, {"flags": BIAS}, {"flags": 0}, {"flags": BIAS | GREEDY})
    want = logits.copy()
    for place in (0, 1, 2):
        want[0, ids[0, place]] += values[0, place]
    want[1, :7] += values[1]
    for level in levels:
        got = logits.copy()
        assert call(level, "sample_bias", [got, params, ids, values], n_vocab=70, n_bias=7) == 0
        np.testing.assert_array_equal(got, want)


def test_keep(levels: Any) -> None:
    """Rows whose log probabilities are wanted are copied, greedy or not; others stay."""
    logits = np.random.default_rng().normal(size=(3, 101)).astype(np.float32)
    params = settings_of({"flags": LOGPROBS}, {"flags": 0}, {"flags": LOGPROBS | GREEDY})
    for level in levels:
        kept = np.full_like(logits, 7)
        assert call(level, "sample_keep", [logits, params, kept], n_vocab=101) == 0
        np.testing.assert_array_equal(kept[[0, 2]], logits[[0, 2]])
        assert (kept[1] == 7).all()


@pytest.mark.parametrize("n", [1, 7, 33, 1000, 50_257])
def test_logprobs(levels: Any, n: int) -> None:
    """Within one rounding of log-softmax in float64, the same bits at every level, ranks exact."""
    rng = np.random.default_rng()
    kept = (rng.normal(size=(8, n)) * 4).astype(np.float32)
    kept[1] = np.round(kept[1])
    kept[2, rng.random(n) < 0.5] = -np.inf
    kept[2, -1] = 1.5
    kept[3, n // 2] = np.nan
    kept[4] = -np.inf
    kept[5, 0] = np.inf
    token = rng.integers(0, n, (8, 1)).astype(np.int32)
    asked = np.full((8, 1), -1, np.int32)
    asked[6], token[7] = n - 1, -1
    params = settings_of(*[{"flags": LOGPROBS | (GREEDY if i % 2 else 0)} for i in range(8)])
    first: list[np.ndarray] = []
    for level in levels:
        told = [np.full((8, 1), 9, np.float32), np.full((8, 1), 9, np.int32)]
        told += [np.full((8, 20), 9, np.int32), np.full((8, 20), 9, np.float32)]
        operands = [kept, params, token, asked, *told]
        assert call(level, "sample_logprobs", operands, n_vocab=n, n_top=20) == 0
        first = first or told
        for mine, theirs in zip(told, first, strict=True):
            assert mine.tobytes() == theirs.tobytes()
    logprob, rank, ids, values = first
    for r in (3, 4):
        assert (logprob[r, 0], rank[r, 0]) == (-np.inf, 0)
        assert (ids[r] == -1).all()
    assert (logprob[7, 0], rank[7, 0]) == (-np.inf, 0)
    for r in (0, 1, 2, 6, 7):
        row = kept[r].astype(np.float64)
        logs = row - row.max() - np.log(np.exp(row - row.max()).sum())
        order = np.lexsort((np.arange(n), -row))
        order = order[row[order] > -np.inf][:20]
        assert ids[r].tolist() == [*order, *[-1] * (20 - len(order))]
        np.testing.assert_allclose(values[r, : len(order)], logs[order], rtol=1e-7, atol=1e-9)
        if r != 7:
            t = int(token[r, 0]) if asked[r, 0] < 0 else int(asked[r, 0])
            np.testing.assert_allclose(logprob[r, 0], logs[t], rtol=1e-7, atol=1e-9)
            assert rank[r, 0] == 1 + (row > row[t]).sum()
    assert values[5, 0] == 0, "one infinite logit has all the probability"


def test_rows_without_the_flag_are_told_nothing(best: Any) -> None:
    """What they held stays."""
    told = [np.full((1, 1), 9, np.float32), np.full((1, 1), 9, np.int32)]
    told += [np.full((1, 3), 9, np.int32), np.full((1, 3), 9, np.float32)]
    kept, ids = np.zeros((1, 10), np.float32), np.zeros((1, 1), np.int32)
    operands = [kept, settings_of({"flags": MASK | XTC}), ids, ids, *told]
    assert call(best, "sample_logprobs", operands, n_vocab=10, n_top=3) == 0
    assert all((t == 9).all() for t in told)


def _operands(m: int) -> dict[str, list[np.ndarray]]:
    """Return operands of each stage that rows must ask for, in rows that ask for nothing."""
    logits, params = np.zeros((m, 64), np.float32), settings_of(*[{"temp": 1.0}] * m)
    one, history = np.zeros((m, 1), np.int32), np.zeros(10, np.int32)
    ids, values = np.zeros((m, 8), np.int32), np.zeros((m, 8), np.float32)
    told = [np.zeros((m, 1), np.float32), one, ids, values]
    return {
        "sample_keep": [logits, params, logits.copy()],
        "sample_penalties": [logits, params, history],
        "sample_dry": [logits, params, history, np.zeros(10, np.uint8)],
        "sample_bias": [logits, params, ids, values],
        "sample_temp": [logits, params],
        "sample_mask": [logits, params, np.zeros((m, 2), np.int32)],
        "sample_argmax": [logits, params, one],
        "sample_topp": [ids, values, params],
        "sample_minp": [ids, values, params],
        "sample_typical": [ids, values, params],
        "sample_xtc": [ids, values, params],
        "sample_logprobs": [logits, params, one, one, *told],
    }


SIZES = {"n_vocab": 64, "n_bias": 8, "n_top": 8, "n_cand": 8}


def sizes_of(row: Any) -> dict[str, int]:
    return {name: size for name, size in SIZES.items() if row.schema.param(name) is not None}


@pytest.mark.parametrize("op", _operands(1))
def test_a_stage_that_no_row_asks_for_has_no_pieces(levels: Any, op: str) -> None:
    """The pool of threads is not woken for it."""
    for level in levels:
        row = level.row(op)
        bound, _kept = row.bind(_operands(5)[op], {"M": 5, **sizes_of(row)})
        assert row.c.tiles(bound) == 0


@pytest.mark.parametrize("op", ["sample_keep", "sample_dry", "sample_bias", "sample_logprobs"])
def test_refuses_wrong_operands(levels: Any, op: str) -> None:
    """Wrong extents, types and missing operands are a status."""
    for level in levels:
        row = level.row(op)
        good = _operands(3)[op]
        sizes = {"M": 3, **sizes_of(row)}
        assert row(good, sizes) == 0
        for k, right in enumerate(good):
            for bad in (right.astype(np.float64), right[:, None], right[:2] if k != 2 else None):
                if bad is None and row.schema.operands[k].optional:
                    continue
                if bad is not None and bad.ndim == 1 and bad.dtype == right.dtype:
                    continue  # lists of any length, but for breakers
                assert row([*good[:k], bad, *good[k + 1 :]], sizes) < 0
    if op == "sample_dry":
        short = [*good[:3], np.zeros(9, np.uint8)]
        assert row(short, sizes) < 0


@pytest.mark.parametrize("bad", [{"hist_off": -1}, {"hist_len": -1}, {"hist_off": 6}])
def test_histories_outside_are_refused(best: Any, bad: Fields) -> None:
    """A window that leaves the plane is a status."""
    params = settings_of({"flags": DRY, "dry_penalty_last_n": -1, "hist_len": 5, **bad})
    operands = [np.zeros((1, 9), np.float32), params, np.zeros(10, np.int32), None]
    assert call(best, "sample_dry", operands, n_vocab=9) == -12
