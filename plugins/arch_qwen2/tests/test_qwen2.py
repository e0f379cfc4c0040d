"""Qwen2 reads its configuration strictly and declares its graph."""

import pytest

from radiance_abi import ConfigurationError, Context
from radiance_arch_blocks.testing import KeysRaw, RecordingGraph
from radiance_arch_qwen2 import Qwen2, radiance_architectures

QWEN25 = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "hidden_size": 896,
    "initializer_range": 0.02,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 21,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
GGUF = {
    "general.architecture": "qwen2",
    "qwen2.block_count": 24,
    "qwen2.context_length": 32768,
    "qwen2.embedding_length": 896,
    "qwen2.feed_forward_length": 4864,
    "qwen2.attention.head_count": 14,
    "qwen2.attention.head_count_kv": 2,
    "qwen2.rope.freq_base": 1000000.0,
    "qwen2.attention.layer_norm_rms_epsilon": 1e-6,
}


def read(**changed: object):
    raw = KeysRaw("safetensors", {**QWEN25, **changed})
    return Qwen2().read(raw), raw


def built(cfg, raw) -> RecordingGraph:
    g = RecordingGraph(present=Qwen2().names(cfg, raw))
    Qwen2().build(g, cfg, Context(raw.format, 8, 1, 64))
    return g


def test_the_published_configuration_is_read_whole():
    """Every key of the published file is answered for, and a new one is not."""
    assert read()[1].unanswered() == []
    assert read(num_experts=8)[1].unanswered() == ["num_experts"]


def test_every_key_that_transformers_writes_is_answered_for():
    """What transformers itself saves, defaults and all, leaves no key unanswered."""
    transformers = pytest.importorskip("transformers")
    raw = KeysRaw("safetensors", transformers.Qwen2Config().to_dict())
    Qwen2().read(raw)
    assert raw.unanswered() == []


def test_a_gguf_file_is_read_whole():
    """The keys of a GGUF file are answered for, and give the same sizes."""
    raw = KeysRaw("gguf", GGUF, {"token_embd.weight": (151936, 896)})
    cfg = Qwen2().read(raw)
    assert raw.unanswered() == []
    assert cfg == read()[0]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"hidden_act": "relu"}, "hidden_act: expected 'silu', got 'relu'"),
        ({"use_mrope": True}, "use_mrope: expected False, got True"),
        (
            {"use_sliding_window": True, "sliding_window": None},
            "sliding_window: expected int, got nothing",
        ),
        (
            {"use_sliding_window": True, "max_window_layers": "all"},
            "max_window_layers: expected int, got 'all'",
        ),
        (
            {"layer_types": ["sliding_attention"] * 24},
            "sliding_window: expected a size above 0",
        ),
    ],
)
def test_what_the_graph_does_not_do_is_refused(changed: dict, text: str):
    """A key that would change what the model computes is refused by name."""
    with pytest.raises(ConfigurationError, match=text):
        read(**changed)


def test_windows_only_when_used_and_only_above():
    """use_sliding_window puts a window on layers from max_window_layers on; layer_types wins."""
    assert read()[0].windows == (0,) * 24
    cfg, raw = read(use_sliding_window=True, sliding_window=9)
    assert cfg.windows == (0,) * 21 + (9,) * 3
    assert raw.unanswered() == []
    types = ["sliding_attention"] + ["full_attention"] * 23
    cfg, raw = read(use_sliding_window=True, sliding_window=9, layer_types=types)
    assert cfg.windows == (9,) + (0,) * 23
    g = built(cfg, raw)
    assert [(p.name, p.window, len(p.layers)) for p in g.groups] == [
        ("full", 0, 23),
        ("window", 9, 1),
    ]
    assert [i.params["window"] for i in g.named("attn_paged")] == [9] + [0] * 23


def test_q_k_and_v_have_biases_and_nothing_else_has():
    """The joined projection carries one stacked bias."""
    cfg, raw = read(num_hidden_layers=1)
    g = built(cfg, raw)
    assert [n for n in g.weights if n.endswith("bias")] == ["blk.0.attn_qkv.bias"]
    assert g.weights["blk.0.attn_qkv.bias"].shape == (896 + 2 * 128,)
    assert g.named("rope")[0].params["mode"] == "neox"


def test_the_plugin_offers_its_id():
    """Files of the family go under this name."""
    assert [(a.id, a.quant) for a in radiance_architectures()] == [("qwen2", "")]
