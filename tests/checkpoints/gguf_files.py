"""Write a transformers model as GGUF with the gguf package, and read back what was stored."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from checkpoints.cases import Case

# Where the f16 scales of a block lie, and the factors that centre its numbers around zero; all
# other bytes of a block may be anything.
_SCALES = {
    "Q2_K": {80: 1.0, 82: 1.5},
    "Q3_K": {108: 1.0},
    "Q4_K": {0: 1.0, 2: 7.5},
    "Q5_K": {0: 1.0, 2: 15.5},
    "Q6_K": {208: 1.0},
}


def write(case: Case, config: Any, model: Any, path: Path, seed: int) -> None:
    """Write the model; its parameters then hold the numbers that were stored."""
    arch = gguf.MODEL_ARCH[case.family.upper()]
    writer = gguf.GGUFWriter(path, case.family)
    _write_keys(writer, case, config)
    _write_rope(writer, config)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    rng = np.random.default_rng(seed)
    for name, p in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        ours = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert ours is not None, f"{name} has a GGUF name"
        order = _pair_order(case, config, name, p.shape[0])
        data = p.detach().float().numpy()[order]
        if case.family == "gemma3" and "norm" in name:
            data = data + 1.0
        kind = _kind(case, ours, data)
        raw, values = _store(data, kind, rng)
        writer.add_tensor(ours, raw, raw_dtype=kind)
        back = values - 1.0 if case.family == "gemma3" and "norm" in name else values
        p.copy_(torch.from_numpy(back[np.argsort(order)]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_keys(writer: gguf.GGUFWriter, case: Case, config: Any) -> None:
    from checkpoints.making import factors

    writer.add_name(case.name)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = getattr(config, "head_dim", None)
    if head_dim is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if case.family in ("llama", "minicpm"):
        writer.add_vocab_size(config.vocab_size)
        share = config.hidden_size // config.num_attention_heads
        writer.add_rope_dimension_count(head_dim or share)
    if case.family == "gemma3":
        writer.add_sliding_window(config.sliding_window)
    if case.family == "minicpm":
        on_embedding, on_blocks, on_head = factors(case)
        writer.add_embedding_scale(on_embedding)
        writer.add_residual_scale(on_blocks)
        writer.add_logit_scale(1.0 / on_head)


def _write_rope(writer: gguf.GGUFWriter, config: Any) -> None:
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    kind = rope["rope_type"]
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    elif kind == "llama3":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        scaled = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0].double().numpy()
        plain = rope["rope_theta"] ** -(np.arange(len(scaled)) / len(scaled))
        writer.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))
    elif kind == "longrope":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_attn_factors(ROPE_INIT_FUNCTIONS["longrope"](config, "cpu")[1])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for which in ("long", "short"):
            data = np.array(rope[f"{which}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{which}.weight", data)


def _pair_order(case: Case, config: Any, name: str, rows: int) -> np.ndarray:
    """Return a projection's rows in file order: llama files hold rotated pairs as neighbours."""
    order = np.arange(rows)
    if case.family not in ("llama", "minicpm"):
        return order
    if "q_proj" in name:
        heads = config.num_attention_heads
    elif "k_proj" in name:
        heads = config.num_key_value_heads
    else:
        return order
    return order.reshape(heads, 2, rows // heads // 2).swapaxes(1, 2).reshape(-1)


def _kind(case: Case, name: str, data: np.ndarray) -> gguf.GGMLQuantizationType:
    """Return the type of a tensor: vectors stay F32, and as real files do, some stay finer."""
    if data.ndim == 1:
        return gguf.GGMLQuantizationType.F32
    stored = case.stored
    if stored == "Q4_K" and ("attn_v" in name or "ffn_down" in name):
        stored = "Q6_K"
    if name == "token_embd.weight" and not case.is_lossless:
        stored = "Q8_0"
    return gguf.GGMLQuantizationType[stored]


def _store(
    data: np.ndarray, kind: gguf.GGMLQuantizationType, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return a tensor's bytes in the file, and the f32 numbers that they mean."""
    data = np.ascontiguousarray(data, np.float32)
    raw = _random_blocks(data, kind, rng) if kind.name in _SCALES else gguf.quantize(data, kind)
    return raw, gguf.dequantize(raw, kind).reshape(data.shape).astype(np.float32)


def _random_blocks(
    data: np.ndarray, kind: gguf.GGMLQuantizationType, rng: np.random.Generator
) -> np.ndarray:
    """Return random blocks whose numbers spread as those of ``data`` do."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (data.size // values, size), np.uint8)
    factor = np.float32(1.0)
    for _ in range(2):  # once to see the spread, once to have it
        for at, centre in _SCALES[kind.name].items():
            scales = (rng.uniform(0.9, 1.1, len(blocks)) * factor * centre).astype(np.float16)
            blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
        spread = gguf.dequantize(blocks.reshape(-1), kind).std()
        factor = np.float32(factor * data.std() / spread)
    return blocks.reshape(data.shape[0], -1)
