"""Gemma 3 reads its configuration strictly and declares its graph."""

import math

import pytest

from radiance_abi import ConfigurationError, Context, plain
from radiance_arch_blocks.testing import KeysRaw, RecordingGraph
from radiance_arch_gemma3 import Gemma3, radiance_architectures

TEXT = {
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_logit_softcapping": None,
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "eos_token_id": [1, 106],
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "initializer_range": 0.02,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0.dev0",
    "use_cache": True,
    "vocab_size": 262144,
}
SEEING = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 255999,
    "eoi_token_index": 256000,
    "eos_token_id": [1, 106],
    "image_token_index": 262144,
    "initializer_range": 0.02,
    "mm_tokens_per_image": 256,
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16",
    "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
}
GGUF = {
    "general.architecture": "gemma3",
    "gemma3.context_length": 32768,
    "gemma3.embedding_length": 640,
    "gemma3.block_count": 18,
    "gemma3.feed_forward_length": 2048,
    "gemma3.attention.head_count": 4,
    "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
    "gemma3.attention.key_length": 256,
    "gemma3.attention.value_length": 256,
    "gemma3.rope.freq_base": 1000000.0,
    "gemma3.attention.sliding_window": 512,
    "gemma3.attention.head_count_kv": 1,
    "tokenizer.ggml.model": "llama",
}
TABLE = {"token_embd.weight": (262144, 640)}


def read(**changed: object):
    raw = KeysRaw("safetensors", {**TEXT, **changed})
    return Gemma3("gemma3text").read(raw), raw


def read_gguf(**changed: object):
    named = {k.replace("__", "."): v for k, v in changed.items()}
    raw = KeysRaw("gguf", {**GGUF, **named}, TABLE)
    return Gemma3("gemma3").read(raw), raw


def built(cfg, raw, **encodings) -> RecordingGraph:
    arch = Gemma3("gemma3")
    named = {k.replace("__", "."): v for k, v in encodings.items()}
    g = RecordingGraph(present=arch.names(cfg, raw), encodings=named)
    arch.build(g, cfg, Context(raw.format, 8, 1, 64))
    return g


def test_published_configurations_are_read_whole():
    """Every key of the published files is answered for, and new ones are not, nested or not."""
    assert read()[1].unanswered() == []
    assert read(num_experts=8)[1].unanswered() == ["num_experts"]
    raw = KeysRaw("safetensors", SEEING)
    cfg = Gemma3("gemma3").read(raw)
    assert raw.unanswered() == []
    assert (cfg.dims.n_head, cfg.dims.head_dim, cfg.dims.n_vocab) == (8, 256, 262208)
    text = {**SEEING["text_config"], "hidden_size_per_layer_input": 3}
    raw = KeysRaw("safetensors", {**SEEING, "text_config": text, "audio_config": {}})
    Gemma3("gemma3").read(raw)
    assert raw.unanswered() == ["audio_config", "hidden_size_per_layer_input"]


def test_every_key_that_transformers_writes_is_answered_for():
    """What transformers itself saves, defaults and all, leaves no key unanswered."""
    transformers = pytest.importorskip("transformers")
    text = transformers.Gemma3TextConfig(rope_scaling={"rope_type": "linear", "factor": 8.0})
    raw = KeysRaw("safetensors", text.to_dict())
    cfg = Gemma3("gemma3text").read(raw)
    assert raw.unanswered() == []
    assert cfg.rope.scaling.factor == 8.0
    assert cfg.local_rope.scaling is None


def test_a_gguf_file_is_read_whole():
    """The keys of the published GGUF are answered for; gains in it have their one added."""
    cfg, raw = read_gguf()
    assert raw.unanswered() == []
    assert cfg.wadd == 0.0
    assert read()[0].wadd == 1.0
    assert cfg.windows[:7] == (512, 512, 512, 512, 512, 0, 512)
    assert (cfg.rope.theta, cfg.local_rope.theta) == (1e6, 1e4)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"hidden_activation": "gelu"}, "hidden_activation: expected 'gelu_pytorch_tanh'"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention: expected False"),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar: expected a number above 0, got 0"),
        ({"sliding_window_pattern": -1}, "sliding_window_pattern: expected a count above 0"),
        ({"layer_types": ["full_attention"]}, "layer_types: expected 26 of .*, got 1"),
        ({"sliding_window": "x"}, "sliding_window: expected int, got 'x'"),
    ],
)
def test_what_the_graph_does_not_do_is_refused(changed: dict, text: str):
    """A key that would change what the model computes is refused by name."""
    with pytest.raises(ConfigurationError, match=text):
        read(**changed)


def test_a_wrong_count_of_flags_is_refused():
    """A GGUF's pattern has one flag a layer."""
    key = "gemma3__attention__sliding_window_pattern"
    assert read_gguf(**{key: [True, False] * 9})[0].windows[:2] == (512, 0)
    with pytest.raises(ConfigurationError, match=r"sliding_window_pattern: expected 18 .* got 2"):
        read_gguf(**{key: [True, False]})


def test_local_and_global_layers_differ():
    """Local layers have a window, their own pool and their own angles."""
    cfg, raw = read()
    g = built(cfg, raw)
    assert [(p.name, p.window, len(p.layers)) for p in g.groups] == [
        ("full", 0, 4),
        ("window", 512, 22),
    ]
    rotations = g.named("qk_norm_rope")
    assert [r.params["theta"] for r in rotations[4:7]] == [1e4, 1e6, 1e4]
    assert rotations[4].operands[4] == rotations[6].operands[4] != rotations[5].operands[4]
    assert [i.params["window"] for i in g.named("attn_paged")[4:7]] == [512, 0, 512]


def test_the_graph_of_a_layer():
    """Blocks have a norm on each side, and what they add is normed first."""
    cfg, raw = read(num_hidden_layers=1, final_logit_softcapping=30.0, attn_logit_softcapping=50.0)
    g = built(cfg, raw)
    layer = ["rmsnorm", "gemm_nt", "qk_norm_rope", "kv_store", "attn_paged", "gemm_nt", "rmsnorm"]
    layer += ["add", "rmsnorm", "gemm_nt", "gelu_tanh_mul", "gemm_nt", "rmsnorm", "add"]
    assert g.ops() == ["embed_lookup", *layer, "rmsnorm", "logits_gemm", "softcap"]
    norms = [i for i in g.issued if i.op in ("rmsnorm", "qk_norm_rope")]
    assert {i.params["wadd"] for i in norms} == {1.0}
    assert [i.operands[-1].name for i in g.named("rmsnorm")] == [
        "blk.0.attn_norm.weight",
        "blk.0.post_attention_norm.weight",
        "blk.0.ffn_norm.weight",
        "blk.0.post_ffw_norm.weight",
        "output_norm.weight",
    ]
    attn = g.named("attn_paged")[0].params
    assert (attn["scale"], attn["softcap"]) == (1 / 16, 50.0)
    assert g.named("softcap")[0].params["cap"] == 30.0


def test_the_embedding_factor_has_the_dtype_of_its_table():
    """bf16 tables multiply by the bf16 square root; f32 ones and GGUF files by the exact one."""
    cfg, raw = read(num_hidden_layers=1, hidden_size=3072)
    factor = built(cfg, raw, token_embd__weight=plain("bf16")).issued[0].params["wscale"]
    assert factor == 55.5
    assert built(cfg, raw).issued[0].params["wscale"] == math.sqrt(3072)
    half = built(cfg, raw, token_embd__weight=plain("f16")).issued[0].params["wscale"]
    assert half == pytest.approx(math.sqrt(3072), abs=2**-6)
    assert half * 32 == int(half * 32)
    cfg, raw = read_gguf(gemma3__block_count=1)
    exact = built(cfg, raw, token_embd__weight=plain("bf16")).issued[0].params["wscale"]
    assert exact == math.sqrt(640)


def test_the_largest_gguf_scales_queries_by_its_width():
    """Unless the file says it, only the size with 62 layers divides its width by its heads."""
    large = {"gemma3__block_count": 62, "gemma3__embedding_length": 5376}
    heads = {"gemma3__attention__head_count": 32, "gemma3__attention__head_count_kv": 16}
    assert read_gguf(**large, **heads)[0].scale == pytest.approx(168**-0.5)
    assert read_gguf()[0].scale == pytest.approx(1 / 16)
    assert read_gguf(gemma3__attention__scale=0.25)[0].scale == 0.25


def test_a_text_part_is_found_under_its_prefix():
    """Models that also see keep their text under one of two prefixes."""
    for prefix, head in (
        ("model.", "lm_head.weight"),
        ("model.language_model.", "lm_head.weight"),
        ("language_model.model.", "language_model.lm_head.weight"),
    ):
        tensors = {f"{prefix}embed_tokens.weight": (9, 9)}
        raw = KeysRaw("safetensors", {**TEXT, "tie_word_embeddings": False}, tensors)
        arch = Gemma3("gemma3")
        names = arch.names(arch.read(raw), raw)
        assert names["token_embd.weight"].names == (f"{prefix}embed_tokens.weight",)
        assert names["output.weight"].names == (head,)
        assert names["blk.3.post_ffw_norm.weight"].names == (
            f"{prefix}layers.3.post_feedforward_layernorm.weight",
        )


def test_the_plugin_offers_two_ids():
    """Text models and the text part of models that see."""
    assert [a.id for a in radiance_architectures()] == ["gemma3", "gemma3text"]
