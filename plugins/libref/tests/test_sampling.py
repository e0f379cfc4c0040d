"""Sampling ops by what they promise: distributions, orders, and whose row it is."""

from typing import Any

import numpy as np
import pytest

from radiance_abi import KernelError
from radiance_abi.testing import caller
from radiance_libref.library import library
from radiance_libref.sampling_rows import DRY, GREEDY, LOGPROBS, MASK, PENALTY, ROW, XTC, uniform

call = caller(library())


def _params(rows: int = 1, **fields: Any) -> np.ndarray:
    made = np.zeros(rows, ROW)
    made["mask_row"] = -1
    made["rep_penalty"] = 1
    for name, value in fields.items():
        made[name] = value
    return made.view(np.uint8).reshape(rows, -1)


def _logits(rows: int = 1, vocab: int = 50) -> np.ndarray:
    return (np.random.default_rng().normal(size=(rows, vocab)) * 2).astype(np.float32)


def _room(rows: int, width: int) -> dict[str, np.ndarray]:
    """Return room for candidates that holds what nobody should read."""
    return {
        "cand_idx": np.full((rows, width), -9, np.int32),
        "cand_val": np.full((rows, width), 9, np.float32),
    }


def _topk(logits: np.ndarray, params: np.ndarray, width: int = 8) -> dict[str, np.ndarray]:
    sizes = {"n_vocab": logits.shape[1], "n_cand": width}
    return call("sample_topk", sizes, logits=logits, params=params, **_room(len(logits), width))


def test_a_row_is_96_bytes_in_the_stated_order() -> None:
    """Offsets are those of the contract."""
    assert ROW.itemsize == 96
    fields = ROW.fields
    assert fields is not None
    offsets = {name: fields[name][1] for name in ROW.names or ()}
    assert offsets["temp"] == 16
    assert offsets["dry_base"] == 56
    assert offsets["top_k"] == 60
    assert offsets["hist_off"] == 76
    assert offsets["flags"] == 88
    assert offsets["dry_rep_limit"] == 92


def test_draws_are_uniform_and_depend_on_both_numbers() -> None:
    """splitmix64's published first output for seed 0 comes out; draws fill [0, 1) evenly."""
    # 0xE220A8397B1DCDAF is the first output of splitmix64 seeded with 0.
    assert uniform(0, 0) == (0xE220A8397B1DCDAF >> 40) / 2**24
    draws = np.array([uniform(s, p) for s in range(60) for p in range(60)])
    assert draws.min() >= 0
    assert draws.max() < 1
    histogram = np.histogram(draws, 10, (0, 1))[0]
    assert histogram.min() > 280
    assert histogram.max() < 440
    assert uniform(1, 0) != uniform(0, 1) != uniform(1, 1)


def test_a_greedy_row_is_the_argmax_and_nothing_else_touches_it() -> None:
    """Every other stage leaves greedy rows alone; argmax leaves the others alone."""
    logits = _logits(2)
    params = _params(2, flags=[GREEDY | PENALTY | MASK | XTC, 0], temp=0.5, mask_row=0, top_p=0.1)
    vocab = {"n_vocab": 50}
    history, bitmask = np.zeros(3, np.int32), np.zeros((1, 2), np.int32)
    for op, more in (
        ("sample_penalties", {"history": history}),
        ("sample_temp", {}),
        ("sample_mask", {"bitmask": bitmask}),
    ):
        out = call(op, vocab, logits=logits, params=params, **more)["logits"]
        assert np.array_equal(out[0], logits[0])
    found = _topk(logits, params)
    assert (found["cand_idx"][0] == -9).all()
    assert (found["cand_idx"][1] >= 0).all()
    token = np.array([[-7], [-8]], np.int32)
    out = call("sample_argmax", vocab, logits=logits, params=params, token=token)["token"]
    assert out.tolist() == [[int(logits[0].argmax())], [-8]]
    picked = call("sample_pick", {"n_cand": 8}, **found, params=params, token=token)["token"]
    assert picked[0, 0] == -7
    assert picked[1, 0] in found["cand_idx"][1]


def test_picks_follow_the_distribution() -> None:
    """Over many positions tokens appear as often as softmax says (chi-square)."""
    values = np.array([[1.5, 1.0, 0.2, -0.7, -1.6]], np.float32)
    rows = 6000
    params = _params(rows, seed=np.random.default_rng().integers(1 << 62), pos=np.arange(rows))
    ids = np.array([4, 9, 2, 7, 0], np.int32)
    out = call(
        "sample_pick",
        {"n_cand": 5},
        cand_idx=np.tile(ids, (rows, 1)),
        cand_val=np.repeat(values, rows, 0),
        params=params,
        token=np.zeros((rows, 1), np.int32),
    )["token"]
    seen = np.array([(out == token).sum() for token in ids])
    p = np.exp(values[0].astype(np.float64))
    expected = rows * p / p.sum()
    # 4 degrees of freedom: 40 is passed once in twenty million runs.
    assert ((seen - expected) ** 2 / expected).sum() < 40


def test_a_nan_row_gives_no_token() -> None:
    """NaN logits end as token -1 on both roads."""
    logits = _logits(2)
    logits[:, 17] = np.nan
    params = _params(2, flags=[GREEDY, 0])
    token = np.zeros((2, 1), np.int32)
    out = call("sample_argmax", {"n_vocab": 50}, logits=logits, params=params, token=token)["token"]
    found = _topk(logits, params)
    out = call("sample_pick", {"n_cand": 8}, **found, params=params, token=out)["token"]
    assert out.tolist() == [[-1], [-1]]


def test_masked_tokens_are_never_candidates() -> None:
    """Only set bits stay, and a word that a short line lacks forbids its tokens."""
    logits = _logits(1, 70)
    allowed = [3, 31, 32, 40]
    words = np.zeros((1, 2), np.uint32)
    for t in allowed:
        words[0, t // 32] |= np.uint32(1 << (t % 32))
    params = _params(flags=MASK, mask_row=0)
    out = call(
        "sample_mask", {"n_vocab": 70}, logits=logits, params=params, bitmask=words.view(np.int32)
    )["logits"]
    assert np.flatnonzero(out[0] > -np.inf).tolist() == allowed
    found = _topk(out, params)
    assert sorted(found["cand_idx"][0].tolist()) == [-1] * 4 + allowed


@pytest.mark.parametrize(
    ("last_n", "window"), [(-1, [5, 5, 9, 6]), (2, [9, 6]), (0, []), (99, [5, 5, 9, 6])]
)
def test_penalties_look_at_the_last_tokens(last_n: int, window: list[int]) -> None:
    """Once per distinct token: repetition by sign, then count times frequency, then presence."""
    logits = _logits()
    logits[0, 5], logits[0, 9] = 2.0, -2.0
    params = _params(
        flags=PENALTY,
        rep_penalty=1.25,
        freq_penalty=0.5,
        pres_penalty=0.25,
        penalty_last_n=last_n,
        hist_off=2,
        hist_len=4,
    )
    history = np.array([1, 1, 5, 5, 9, 6, 3], np.int32)
    out = call("sample_penalties", {"n_vocab": 50}, logits=logits, params=params, history=history)
    want = logits.astype(np.float64)
    for t in set(window):
        v = want[0, t]
        want[0, t] = (v / 1.25 if v > 0 else v * 1.25) - window.count(t) * 0.5 - 0.25
    assert np.allclose(out["logits"], want, atol=1e-6)


def test_ties_go_to_the_lower_id() -> None:
    """Equal logits are listed, and won, in order of id."""
    logits = np.zeros((1, 50), np.float32)
    params = _params(top_k=3)
    found = _topk(logits, params)
    assert found["cand_idx"][0].tolist() == [0, 1, 2, -1, -1, -1, -1, -1]


def _narrow(op: str, probabilities: list[float], **fields: Any) -> list[int]:
    values = np.log(np.array([probabilities], np.float64)).astype(np.float32)
    ids = np.arange(10, 10 + len(probabilities), dtype=np.int32)[None]
    out = call(
        op, {"n_cand": len(probabilities)}, cand_idx=ids, cand_val=values, params=_params(**fields)
    )
    kept = [int(t) for t in out["cand_idx"][0] if t >= 0]
    assert (out["cand_idx"][0, len(kept) :] == -1).all()
    assert np.isneginf(out["cand_val"][0, len(kept) :]).all()
    return kept


def test_candidates_are_narrowed_as_defined() -> None:
    """Small distributions with known answers, one for each rule."""
    p = [0.4, 0.3, 0.15, 0.1, 0.05]
    assert _narrow("sample_topp", p, top_p=0.6) == [10, 11]
    assert _narrow("sample_topp", p, top_p=0.01) == [10]
    assert _narrow("sample_topp", p, top_p=1.0) == [10, 11, 12, 13, 14]
    assert _narrow("sample_minp", p, min_p=0.3) == [10, 11, 12]
    assert _narrow("sample_minp", p, min_p=0.0) == [10, 11, 12, 13, 14]
    # Entropy is 1.39 nats; surprises are 0.92 1.20 1.90 2.30 3.00.
    assert _narrow("sample_typical", p, typical_p=0.25) == [11]
    assert _narrow("sample_typical", p, typical_p=0.65) == [10, 11]
    always = {"flags": XTC, "xtc_probability": 1.0}
    assert _narrow("sample_xtc", p, **always, xtc_threshold=0.12) == [12, 13, 14]
    assert _narrow("sample_xtc", p, **always, xtc_threshold=0.35) == [10, 11, 12, 13, 14]
    assert _narrow("sample_xtc", p, flags=XTC, xtc_threshold=0.12) == [10, 11, 12, 13, 14]
    assert _narrow("sample_xtc", p, xtc_probability=1.0, xtc_threshold=0.12) == [10, 11, 12, 13, 14]


def test_temperatures_divide() -> None:
    """A row is divided by its own temperature; 0 and 1 leave it."""
    logits = _logits(3)
    out = call("sample_temp", {"n_vocab": 50}, logits=logits, params=_params(3, temp=[0, 1, 0.5]))
    assert np.array_equal(out["logits"], np.stack([logits[0], logits[1], logits[2] * 2]))


def _dry(window: list[int], **fields: Any) -> list[int]:
    """Return the tokens that DRY lowers after a window, each by 1 in a vocabulary of 50."""
    params = _params(
        flags=DRY,
        dry_multiplier=1,
        dry_base=1,
        dry_penalty_last_n=-1,
        hist_len=len(window),
        **fields,
    )
    history = np.array(window, np.int32)
    logits = np.zeros((1, 50), np.float32)
    out = call("sample_dry", {"n_vocab": 50}, logits=logits, params=params, history=history)
    return [int(t) for t in np.flatnonzero(out["logits"][0] == -1)]


def test_dry_lowers_what_goes_on_with_a_repetition() -> None:
    """Worked by hand: the end '1 2' was followed by 3 and by 7 before; '2' alone also by 9."""
    window = [1, 2, 3, 1, 2, 7, 2, 9, 1, 2]
    assert _dry(window) == [3, 7]
    assert _dry(window, dry_allowed_length=1) == [3, 7, 9]
    assert _dry(window, dry_allowed_length=3) == []
    assert _dry(window, dry_rep_limit=1) == []
    assert _dry(window, dry_rep_limit=1, dry_allowed_length=1) == [3, 7, 9]


@pytest.mark.parametrize("op", ["sample_dry", "sample_penalties"])
def test_a_history_outside_the_plane_is_refused(op: str) -> None:
    """The text has the place and the extent."""
    params = _params(flags=DRY | PENALTY, penalty_last_n=-1, hist_off=3, hist_len=5)
    history = np.zeros(7, np.int32)
    with pytest.raises(KernelError, match=r"history: expected 3\+5 of 7 tokens"):
        call(op, {"n_vocab": 50}, logits=_logits(), params=params, history=history)


@pytest.mark.parametrize("op", ["sample_dry", "sample_penalties"])
def test_an_operand_that_must_be_there(op: str) -> None:
    """Only breakers may be absent."""
    with pytest.raises(KernelError, match="sampling: expected every operand, got an absent one"):
        call(op, {"n_vocab": 50}, logits=_logits(), params=_params(flags=DRY))


def test_log_probabilities_of_a_given_token() -> None:
    """A given token is told instead of the drawn one; infinite logits share everything."""
    kept = np.array([[0, np.inf, 1, np.inf]], np.float32)
    room = {
        "logprob": np.zeros((1, 1), np.float32), "rank": np.zeros((1, 1), np.int32),
        "top_idx": np.zeros((1, 3), np.int32), "top_val": np.zeros((1, 3), np.float32),
    }  # fmt: skip
    sizes = {"n_vocab": 4, "n_top": 3}
    ids = {"token": np.array([[2]], np.int32), "given": np.array([[3]], np.int32)}
    out = call("sample_logprobs", sizes, kept=kept, params=_params(flags=LOGPROBS), **ids, **room)
    assert out["logprob"][0, 0] == np.float32(-np.log(2))
    assert out["rank"][0, 0] == 1
    assert out["top_idx"][0].tolist() == [1, 3, 2]
    assert out["top_val"][0].tolist() == [np.float32(-np.log(2))] * 2 + [-np.inf]


def test_draw_is_all_stages_in_one() -> None:
    """sample_draw answers what the stages answer one after the other, and leaves greedy rows."""
    rng = np.random.default_rng()
    logits = _logits(40)
    logits[3, 17] = np.nan
    fields = {name: rng.choice([0, 0.1, 0.6], 40) for name in ("top_p", "min_p", "typical_p")}
    params = _params(
        40, **fields, seed=rng.integers(1 << 62), pos=np.arange(40), top_k=rng.integers(0, 60, 40),
        flags=rng.choice([0, GREEDY, XTC], 40), xtc_probability=0.5, xtc_threshold=0.05,
    )  # fmt: skip
    token = np.full((40, 1), -7, np.int32)
    drawn = call("sample_draw", {"n_vocab": 50}, logits=logits, params=params, token=token)
    found = _topk(logits, params, 50)
    for stage in ("topp", "minp", "typical", "xtc"):
        found = call(f"sample_{stage}", {"n_cand": 50}, **found, params=params)
    picked = call("sample_pick", {"n_cand": 50}, **found, params=params, token=token)
    assert drawn["token"].tolist() == picked["token"].tolist()
