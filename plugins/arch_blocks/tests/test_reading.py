"""Sizes and rope settings are read strictly, and what is wrong is named."""

import math

import numpy as np
import pytest

from radiance_abi import ConfigurationError
from radiance_arch_blocks import gguf_dimensions, gguf_rope, hf_dimensions, hf_rope, hf_windows
from radiance_arch_blocks.rope import Divided, Linear, LongRope, Rope
from radiance_arch_blocks.testing import KeysRaw

HF = {
    "num_hidden_layers": 2,
    "hidden_size": 96,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 100,
    "vocab_size": 51,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
}
GGUF = {
    "x.block_count": 2,
    "x.embedding_length": 96,
    "x.attention.head_count": 6,
    "x.attention.head_count_kv": 2,
    "x.feed_forward_length": 100,
    "x.context_length": 128,
    "x.attention.layer_norm_rms_epsilon": 1e-6,
}
TABLE = {"token_embd.weight": (51, 96)}


def hf(**keys: object) -> KeysRaw:
    return KeysRaw("safetensors", {**HF, **keys})


def gguf(tensors: dict | None = None, **keys: object) -> KeysRaw:
    named = {k.replace("__", "."): v for k, v in keys.items()}
    return KeysRaw("gguf", {**GGUF, **named}, {**TABLE, **(tensors or {})})


def rope_of(**settings: object):
    raw = hf(rope_parameters={"rope_theta": 500.0, **settings})
    hf_dimensions(raw)
    rope = hf_rope(raw, head_dim=16, max_context=128)
    assert raw.unanswered() == []
    return rope


def test_both_formats_give_the_same_sizes():
    """The same model read from either file has the same sizes."""
    raws = hf(), gguf()
    assert hf_dimensions(raws[0]) == gguf_dimensions(raws[1], "x")
    assert [raw.unanswered() for raw in raws] == [[], []]


def test_a_stated_head_wins_over_the_share_of_the_width():
    """head_dim is read; only without it is it the width over the heads."""
    assert hf_dimensions(hf(head_dim=40)).head_dim == 40
    assert hf_dimensions(hf(head_dim=None)).head_dim == 16
    raw = gguf(x__attention__key_length=40, x__attention__value_length=40)
    assert gguf_dimensions(raw, "x").head_dim == 40


def test_the_table_says_how_many_tokens_there_are():
    """A stated vocabulary gives way to the rows that the file has; one of both must be there."""
    assert gguf_dimensions(gguf(x__vocab_size=50), "x").n_vocab == 51
    raw = KeysRaw("gguf", {**GGUF, "x.vocab_size": 50})
    assert gguf_dimensions(raw, "x").n_vocab == 50
    with pytest.raises(ConfigurationError, match=r"x\.vocab_size or the tensor token_embd"):
        gguf_dimensions(KeysRaw("gguf", GGUF), "x")


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"hidden_size": None}, "hidden_size: expected int, got nothing"),
        ({"hidden_size": "96"}, "hidden_size: expected int, got '96'"),
        ({"vocab_size": True}, "vocab_size: expected int, got True"),
        ({"num_attention_heads": 5, "num_key_value_heads": 1}, "width 96 and 5 heads"),
        ({"num_attention_heads": 0}, "width 96 and 0 heads"),
        ({"num_key_value_heads": 4}, "multiple of the key and value heads, got 6 and 4"),
        ({"num_key_value_heads": 0}, "n_head_kv above 0, got 0"),
        ({"intermediate_size": -3}, "n_ff above 0, got -3"),
        ({"max_position_embeddings": 0}, "trained context above 0 tokens, got 0"),
        ({"num_hidden_layers": 10**9}, "n_layer of at most 4096, got 1000000000"),
    ],
)
def test_an_impossible_size_is_named(keys: dict, text: str):
    """A missing, mistyped or impossible size says which and what was found."""
    with pytest.raises(ConfigurationError, match=text):
        hf_dimensions(hf(**keys))


def test_experts_and_unequal_values_are_refused():
    """A GGUF file of a mixture, or with values narrower than keys, is not read as a dense one."""
    with pytest.raises(ConfigurationError, match=r"x\.expert_count: expected 0, got 8"):
        gguf_dimensions(gguf(x__expert_count=8), "x")
    with pytest.raises(ConfigurationError, match=r"value_length: expected 16, got 8"):
        gguf_dimensions(gguf(x__attention__value_length=8), "x")


def test_layer_types_become_windows():
    """Each layer sees its window or all; wrong counts, words and a missing size are named."""
    types = ["sliding_attention", "full_attention"]
    assert hf_windows(hf(layer_types=types), 2, 9) == (9, 0)
    assert hf_windows(hf(), 2, 9) is None
    with pytest.raises(ConfigurationError, match=r"expected 3 of .*, got 2: full_attention, slid"):
        hf_windows(hf(layer_types=types), 3, 9)
    with pytest.raises(ConfigurationError, match="got 2: chunked_attention"):
        hf_windows(hf(layer_types=["chunked_attention"] * 2), 2, 9)
    with pytest.raises(ConfigurationError, match="sliding_window: expected a size above 0"):
        hf_windows(hf(layer_types=types), 2, 0)


def test_old_and_new_keys_say_the_same_rope():
    """rope_scaling with rope_theta beside it equals rope_parameters that hold both."""
    new = hf(rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0})
    old = hf(rope_scaling={"type": "linear", "factor": 3.0}, rope_theta=500.0)
    ropes = [hf_rope(raw, head_dim=16, max_context=128) for raw in (new, old)]
    assert ropes[0] == ropes[1]
    assert ropes[0].scaling == Linear(3.0)


def test_partial_rotation_leaves_an_even_count():
    """partial_rotary_factor picks how much of a head rotates; odd and empty shares are refused."""
    assert hf_rope(hf(partial_rotary_factor=0.5), head_dim=16, max_context=9).rotary_dim == 8
    for factor in (0.0, 0.2, 1.5):
        with pytest.raises(ConfigurationError, match=f"head's 16 elements, got {factor}"):
            hf_rope(hf(partial_rotary_factor=factor), head_dim=16, max_context=9)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"rope_type": "mrope"}, "rope_type: expected one of default, .*longrope, got 'mrope'"),
        ({"rope_type": "linear"}, "factor: expected float, got nothing"),
        ({"rope_type": "linear", "factor": 0.0}, "rope factor: expected a number above 0, got 0"),
        ({"rope_type": "linear", "factor": -1}, "rope factor: expected a number above 0, got -1"),
        (
            {"rope_type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 1},
            "expected 0 < low < high, got 4.0 and 1.0",
        ),
        (
            {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 0},
            "original_max_position_embeddings: expected a count above 0, got 0",
        ),
        ({"rope_type": "longrope", "short_factor": [1.0]}, "long_factor: expected list"),
        ({"rope_type": "longrope", "short_factor": ["a"]}, "short_factor: expected a list of num"),
        ({"rope_type": "longrope", "short_factor": [0.0]}, "expected numbers above 0, got 0.0"),
    ],
)
def test_a_bad_rope_setting_is_named(settings: dict, text: str):
    """Unknown kinds and missing or impossible numbers say which and what was found."""
    with pytest.raises(ConfigurationError, match=text):
        rope_of(**settings)


@pytest.mark.parametrize("theta", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_base_is_named(theta: float):
    """A base that gives no angles is refused when it is read, not found in the logits."""
    with pytest.raises(ConfigurationError, match="rope theta: expected a finite number above 0"):
        Rope(theta, 16)


def test_dynamic_scaling_is_served_up_to_its_context_only():
    """Angles that move with the length are refused beyond the trained context, by name."""
    rope = rope_of(rope_type="dynamic", factor=2.0)
    assert rope.limit(4096) == 128
    plain = rope_of(rope_type="default")
    assert np.array_equal(rope.rates(128)[0], plain.rates(128)[0])
    with pytest.raises(
        ConfigurationError, match=r"dynamic: expected .* 128 tokens.*got 129.*128 or"
    ):
        rope.rates(129)


def test_gguf_divisors_come_from_tensors():
    """rope_freqs divides each rate; a pair of factor tensors is longrope, both of them needed."""
    divisors = np.linspace(1, 3, 8, dtype=np.float32)
    raw = gguf({"rope_freqs.weight": divisors})
    rope = gguf_rope(raw, "x", head_dim=16, max_context=128, mode="gptj")
    assert rope.scaling == Divided(tuple(divisors.tolist()))
    plain = gguf_rope(gguf(), "x", head_dim=16, max_context=128, mode="gptj")
    assert np.allclose(rope.rates(1)[0], plain.rates(1)[0] / divisors)
    both = {"rope_factors_long.weight": divisors, "rope_factors_short.weight": divisors / 3 + 1}
    rope = gguf_rope(gguf(both), "x", head_dim=16, max_context=128, mode="gptj")
    assert isinstance(rope.scaling, LongRope)
    assert not np.allclose(rope.rates(128)[0], rope.rates(129)[0])
    del both["rope_factors_short.weight"]
    with pytest.raises(ConfigurationError, match=r"rope_factors_short\.weight: expected this"):
        gguf_rope(gguf(both), "x", head_dim=16, max_context=128, mode="gptj")


@pytest.mark.parametrize(
    ("keys", "tensors", "text"),
    [
        ({"x__rope__dimension_count": 7}, {}, "even count up to the head's 16, got 7"),
        ({"x__rope__dimension_count": 18}, {}, "even count up to the head's 16, got 18"),
        ({"x__rope__scaling__type": "other"}, {}, "scaling.type: expected 'none' or 'linear'"),
        (
            {"x__rope__scaling__factor": -2.0},
            {},
            r"x\.rope\.scaling\.factor: expected a number above 0, got -2",
        ),
        (
            {"x__rope__scaling__attn_factor": 1.5},
            {},
            "attn_factor: expected 1.0, got 1.5",
        ),
        ({}, {"rope_freqs.weight": np.zeros(8, np.float32)}, "divisors above 0, got 0.0"),
    ],
)
def test_a_bad_gguf_rope_is_named(keys: dict, tensors: dict, text: str):
    """Unknown kinds and impossible numbers in GGUF keys and tensors are named."""
    with pytest.raises(ConfigurationError, match=text):
        gguf_rope(gguf(tensors, **keys), "x", head_dim=16, max_context=128, mode="gptj")


def test_a_wrong_count_of_divisors_is_named():
    """Divisors must be one for each rotated pair."""
    raw = gguf({"rope_freqs.weight": np.ones(7, np.float32)})
    rope = gguf_rope(raw, "x", head_dim=16, max_context=128, mode="gptj")
    with pytest.raises(ConfigurationError, match=r"rope_freqs\.weight: expected 8 numbers.*got 7"):
        rope.rates(1)


def test_gguf_yarn_carries_its_attention_factor():
    """The factor on cosines is the recommended one times the stated one."""
    raw = gguf(
        x__rope__scaling__type="yarn",
        x__rope__scaling__factor=4.0,
        x__rope__scaling__original_context_length=32,
        x__rope__scaling__attn_factor=0.5,
    )
    rope = gguf_rope(raw, "x", head_dim=16, max_context=128, mode="neox")
    assert rope.rates(128)[1] == pytest.approx(0.5 * (1 + 0.1 * math.log(4)))
