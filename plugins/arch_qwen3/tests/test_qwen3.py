"""Qwen3 reads its configuration strictly and declares its graph."""

import pytest

from radiance_abi import ConfigurationError, Context
from radiance_arch_blocks.testing import KeysRaw, RecordingGraph
from radiance_arch_qwen3 import Qwen3, radiance_architectures

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
GGUF = {
    "general.architecture": "qwen3",
    "qwen3.block_count": 28,
    "qwen3.context_length": 40960,
    "qwen3.embedding_length": 1024,
    "qwen3.feed_forward_length": 3072,
    "qwen3.attention.head_count": 16,
    "qwen3.attention.head_count_kv": 8,
    "qwen3.attention.key_length": 128,
    "qwen3.attention.value_length": 128,
    "qwen3.rope.freq_base": 1000000.0,
    "qwen3.attention.layer_norm_rms_epsilon": 1e-6,
}


def read(**changed: object):
    raw = KeysRaw("safetensors", {**QWEN3, **changed})
    return Qwen3().read(raw), raw


def built(cfg, raw) -> RecordingGraph:
    g = RecordingGraph(present=Qwen3().names(cfg, raw))
    Qwen3().build(g, cfg, Context(raw.format, 8, 1, 64))
    return g


def test_the_published_configuration_is_read_whole():
    """Every key of the published file is answered for, and a new one is not."""
    assert read()[1].unanswered() == []
    assert read(num_experts=8)[1].unanswered() == ["num_experts"]


def test_every_key_that_transformers_writes_is_answered_for():
    """What transformers itself saves, defaults and all, leaves no key unanswered."""
    transformers = pytest.importorskip("transformers")
    raw = KeysRaw("safetensors", transformers.Qwen3Config().to_dict())
    Qwen3().read(raw)
    assert raw.unanswered() == []


def test_a_gguf_file_is_read_whole():
    """The keys of a GGUF file are answered for, and give the same model."""
    raw = KeysRaw("gguf", GGUF, {"token_embd.weight": (151936, 1024)})
    cfg = Qwen3().read(raw)
    assert raw.unanswered() == []
    assert cfg == read()[0]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"hidden_act": "relu"}, "hidden_act: expected 'silu', got 'relu'"),
        ({"attention_bias": 1}, "attention_bias: expected bool, got 1"),
        ({"use_sliding_window": True}, "sliding_window: expected int, got nothing"),
    ],
)
def test_what_the_graph_does_not_do_is_refused(changed: dict, text: str):
    """A key that would change what the model computes is refused by name."""
    with pytest.raises(ConfigurationError, match=text):
        read(**changed)


def test_a_head_is_128_wide_unless_stated():
    """The head is not the width over the heads, which would be 64 here."""
    assert read(head_dim=None)[0].dims.head_dim == 128
    assert read(head_dim=96)[0].dims.head_dim == 96


def test_heads_are_normed_before_they_rotate():
    """Each layer norms and rotates q and k in one op, with its own gains."""
    cfg, raw = read(num_hidden_layers=2, attention_bias=True)
    g = built(cfg, raw)
    rotations = g.named("qk_norm_rope")
    assert [r.operands[2].name for r in rotations] == [
        "blk.0.attn_q_norm.weight",
        "blk.1.attn_q_norm.weight",
    ]
    assert (rotations[0].params["wadd"], rotations[0].params["eps"]) == (0.0, 1e-6)
    assert "rope" not in g.ops()
    biases = {n for n in g.weights if n.endswith("bias")}
    assert biases == {f"blk.{i}.attn_{m}.bias" for i in (0, 1) for m in ("qkv", "output")}


def test_the_plugin_offers_its_id():
    """Files of the family go under this name."""
    assert [(a.id, a.quant) for a in radiance_architectures()] == [("qwen3", "")]
