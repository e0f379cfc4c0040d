"""The llama family reads its relatives' configurations strictly and declares their graphs."""

import math

import pytest

from radiance_abi import ConfigurationError, Context
from radiance_arch_blocks.testing import KeysRaw, RecordingGraph
from radiance_arch_llama import Llama, radiance_architectures

LLAMA31 = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0",
    "use_cache": True,
    "vocab_size": 128256,
}
SMOLLM2 = {
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
    "vocab_size": 49152,
}
MISTRAL = {
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
MINICPM = {
    "hidden_act": "silu",
    "hidden_size": 2304,
    "intermediate_size": 5760,
    "max_position_embeddings": 4096,
    "model_type": "minicpm",
    "num_attention_heads": 36,
    "num_hidden_layers": 40,
    "num_key_value_heads": 36,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "scale_emb": 12,
    "dim_model_base": 256,
    "scale_depth": 1.4,
    "mup_denominator": 32,
    "vocab_size": 122753,
}
SMOLLM2_GGUF = {
    "general.architecture": "llama",
    "general.file_type": 3,
    "llama.block_count": 30,
    "llama.context_length": 8192,
    "llama.embedding_length": 576,
    "llama.feed_forward_length": 1536,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "llama.rope.freq_base": 100000.0,
    "llama.attention.layer_norm_rms_epsilon": 9.999999747378752e-06,
    "llama.vocab_size": 49152,
    "llama.rope.dimension_count": 64,
    "tokenizer.ggml.model": "gpt2",
}
TABLE = {"token_embd.weight": (49152, 576)}


def read(keys: dict, id_: str = "llama", **changed: object):
    raw = KeysRaw("safetensors", {**keys, **changed})
    return Llama(id_).read(raw), raw


def built(cfg, raw, id_: str = "llama", context: int = 64) -> RecordingGraph:
    arch = Llama(id_)
    g = RecordingGraph(present=arch.names(cfg, raw))
    arch.build(g, cfg, Context(raw.format, 8, 1, context))
    return g


@pytest.mark.parametrize(
    ("keys", "id_"),
    [(LLAMA31, "llama"), (SMOLLM2, "llama"), (MISTRAL, "mistral"), (MINICPM, "minicpm")],
)
def test_published_configurations_are_read_whole(keys: dict, id_: str):
    """Every key of the published files is answered for, and a new one is not."""
    cfg, raw = read(keys, id_)
    assert raw.unanswered() == []
    assert cfg.dims.n_layer == keys["num_hidden_layers"]
    _, raw = read(keys, id_, num_experts=8)
    assert raw.unanswered() == ["num_experts"]


def test_every_key_that_transformers_writes_is_answered_for():
    """What transformers itself saves, defaults and all, leaves no key unanswered."""
    transformers = pytest.importorskip("transformers")
    for config, id_ in (
        (transformers.LlamaConfig(), "llama"),
        (transformers.MistralConfig(), "mistral"),
    ):
        _, raw = read(config.to_dict(), id_)
        assert raw.unanswered() == []


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"hidden_act": "gelu"}, "hidden_act: expected 'silu', got 'gelu'"),
        ({"rope_interleaved": True}, "rope_interleaved: expected False, got True"),
        ({"attention_bias": "yes"}, "attention_bias: expected bool, got 'yes'"),
        ({"rms_norm_eps": None}, "rms_norm_eps: expected float, got nothing"),
        ({"sliding_window": 4096}, "sliding_window: expected None, got 4096"),
        ({"sparse_config": {"block": 64}}, "sparse_config: expected None, got"),
        ({"rope_scaling": {"type": "mrope"}}, "rope_type: expected one of .* got 'mrope'"),
    ],
)
def test_what_the_graph_does_not_do_is_refused(changed: dict, text: str):
    """A key that would change what the model computes is refused by name, not ignored."""
    with pytest.raises(ConfigurationError, match=text):
        read(LLAMA31, **changed)


def test_mistral_has_no_biases():
    """A mistral file that states biases is not the model that this graph is."""
    with pytest.raises(ConfigurationError, match="attention_bias: expected False, got True"):
        read(MISTRAL, "mistral", attention_bias=True)


def test_gguf_rotates_neighbours_and_safetensors_halves():
    """The same model rotates as its file orders the rows of q and k."""
    raw = KeysRaw("gguf", SMOLLM2_GGUF, TABLE)
    cfg = Llama("llama").read(raw)
    assert raw.unanswered() == []
    assert {i.params["mode"] for i in built(cfg, raw).named("rope")} == {"gptj"}
    cfg, raw = read(SMOLLM2)
    assert {i.params["mode"] for i in built(cfg, raw).named("rope")} == {"neox"}


def test_the_graph_of_a_layer():
    """Without any fusion a layer is the plain chain, and layers share one table of angles."""
    cfg, raw = read(SMOLLM2, num_hidden_layers=2)
    g = built(cfg, raw)
    layer = ["rmsnorm", "gemm_nt", "rope", "kv_store", "attn_paged", "gemm_nt", "add"]
    layer += ["rmsnorm", "gemm_nt", "silu_mul", "gemm_nt", "add"]
    assert g.ops() == ["embed_lookup", *layer, *layer, "rmsnorm", "logits_gemm"]
    assert len(g.constants) == 1
    assert g.weights["blk.1.attn_qkv.weight"].shape == (576 + 2 * 192, 576)
    attn = g.named("attn_paged")[0]
    assert (attn.params["causal"], attn.params["window"]) == (1, 0)
    assert [v.name.split("[")[1] for v in g.named("kv_store")[0].operands[:2]] == [
        "576:768]",
        "768:960]",
    ]


def test_a_tied_head_is_the_table():
    """tie_word_embeddings decides in safetensors; in GGUF the head's absence does."""
    arch = Llama("llama")
    for tied, source in ((True, "model.embed_tokens.weight"), (False, "lm_head.weight")):
        cfg, raw = read(SMOLLM2, tie_word_embeddings=tied)
        assert arch.names(cfg, raw)["output.weight"].names == (source,)
    raw = KeysRaw("gguf", SMOLLM2_GGUF, TABLE)
    names = arch.names(arch.read(raw), raw)
    assert names["output.weight"].names == ("output.weight", "token_embd.weight")


def test_windows_bound_the_pool_and_the_attention():
    """Mistral's window reaches both the cache and the op; null means none."""
    cfg, raw = read(MISTRAL, "mistral", num_hidden_layers=1)
    g = built(cfg, raw, "mistral")
    assert [(p.name, p.window, p.layers) for p in g.groups] == [("window", 4096, (0,))]
    assert g.named("attn_paged")[0].params["window"] == 4096
    cfg, raw = read(MISTRAL, "mistral", sliding_window=None, num_hidden_layers=1)
    assert built(cfg, raw, "mistral").groups[0].window == 0


def test_biases_are_declared_where_the_configuration_says():
    """attention_bias and mlp_bias bring biases for all their modules, and nothing else does."""
    cfg, raw = read(LLAMA31, attention_bias=True, num_hidden_layers=1)
    biases = {n for n in built(cfg, raw).weights if n.endswith("bias")}
    assert biases == {"blk.0.attn_qkv.bias", "blk.0.attn_output.bias"}
    cfg, raw = read(LLAMA31, mlp_bias=True, num_hidden_layers=1)
    biases = {n for n in built(cfg, raw).weights if n.endswith("bias")}
    assert biases == {"blk.0.ffn_gate_up.bias", "blk.0.ffn_down.bias"}


def test_minicpm_scales_what_it_says():
    """Embeddings, what blocks add and the head's input are scaled; old files have defaults."""
    cfg, raw = read(MINICPM, "minicpm", num_hidden_layers=4)
    g = built(cfg, raw, "minicpm")
    assert g.issued[0].params["wscale"] == 12
    factors = [i.params["factor"] for i in g.named("scale")]
    assert factors == [pytest.approx(0.7)] * 8 + [pytest.approx(256 / 2304)]
    keys = {k.replace("llama.", "minicpm."): v for k, v in SMOLLM2_GGUF.items()}
    old = Llama("minicpm").read(KeysRaw("gguf", keys, TABLE))
    assert old.embedding_factor == 12.0
    assert old.residual_factor == pytest.approx(1.4 / math.sqrt(30))
    assert old.head_factor == pytest.approx(256 / 576)


def test_a_dynamic_rope_limits_the_context():
    """The longest context that the core may serve is the one the scaling can serve."""
    arch = Llama("llama")
    scaling = {"type": "dynamic", "factor": 2.0}
    cfg, raw = read(SMOLLM2, rope_scaling=scaling)
    assert arch.limits(cfg).max_context == 8192
    with pytest.raises(ConfigurationError, match=r"dynamic: expected .* 8192 tokens.*got 8193"):
        built(cfg, raw, context=8193)


def test_the_plugin_offers_three_ids():
    """Files of the family go under these names."""
    assert [(a.id, a.quant) for a in radiance_architectures()] == [
        ("llama", ""),
        ("mistral", ""),
        ("minicpm", ""),
    ]
