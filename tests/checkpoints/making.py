"""Make the checkpoint of a case, and the reference's logits for it in double precision."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

from checkpoints.cases import BASE, Case
from checkpoints.quark import quark_config, to_mxfp4

# MiniCPM's own code is no part of transformers; its factors fold into a llama's weights.
_MODELS = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "minicpm": ("LlamaConfig", "LlamaForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM"),
}
_MINICPM = ("scale_emb", "scale_depth", "dim_model_base")
_TORCH = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "fp8": torch.bfloat16,
    "mxfp4": torch.bfloat16,
}
FP8_BLOCK = 128


@dataclass(frozen=True, slots=True)
class Made:
    """A checkpoint on disk and the reference model that holds the same numbers as f64."""

    path: Path
    model: Any

    def logits(self, tokens: list[int]) -> np.ndarray:
        """Return f64 [len(tokens), V]."""
        with torch.no_grad():
            found: np.ndarray = self.model(torch.tensor([tokens])).logits[0].double().numpy()
        return found


def make(case: Case, folder: Path, seed: int) -> Made:
    """Write the checkpoint of ``case`` below ``folder``, with weights drawn from ``seed``."""
    torch.manual_seed(seed)
    config = configuration(case)
    model = getattr(transformers, _MODELS[case.family][1])(config)
    model.eval()
    draw(model, norms_around_zero=case.family == "gemma3")
    if case.is_gguf:
        from checkpoints.gguf_files import write

        path = folder / f"{case.name}.gguf"
        write(case, config, model, path, seed)
    else:
        path = folder / case.name
        path.mkdir()
        _write_folder(case, config, model, path)
    return Made(path, _as_reference(case, model))


def configuration(case: Case) -> Any:
    """Return the transformers configuration of a case."""
    settings = {k: v for k, v in {**BASE[case.family], **case.config}.items() if k not in _MINICPM}
    settings = json.loads(json.dumps(settings))  # transformers writes into nested objects
    config = getattr(transformers, _MODELS[case.family][0])(**settings)
    config._attn_implementation = "eager"
    return config


def factors(case: Case) -> tuple[float, float, float]:
    """Return MiniCPM's factors on embeddings, on what blocks add and on the head's input."""
    settings = {**BASE[case.family], **case.config}
    if case.family != "minicpm":
        return 1.0, 1.0, 1.0
    return (
        settings["scale_emb"],
        settings["scale_depth"] / math.sqrt(settings["num_hidden_layers"]),
        settings["dim_model_base"] / settings["hidden_size"],
    )


def draw(model: torch.nn.Module, *, norms_around_zero: bool) -> None:
    """Draw every weight so wide that a wrong term moves the logits visibly."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.uniform_(0.4, 1.8)
                if norms_around_zero:
                    p.sub_(1.0)
            elif name.endswith("bias"):
                p.normal_(0.0, 0.7)
            elif "embed_tokens" in name:
                # Narrow beside what blocks add, or a tied head sees little but the token itself.
                p.normal_(0.0, 0.3 / math.sqrt(p.shape[1]) if norms_around_zero else 0.3)
            else:
                # Queries and keys this wide make attention pick few keys, so that masks show.
                gain = 1.6 if "q_proj" in name or "k_proj" in name else 1.0
                p.normal_(0.0, gain / math.sqrt(p.shape[1]))


def _write_folder(case: Case, config: Any, model: torch.nn.Module, path: Path) -> None:
    stored = {}
    for name, p in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        value = p.to(_TORCH[case.stored]).contiguous()
        stored[name] = value
        if case.stored == "fp8" and name.startswith("model.layers") and p.dim() == 2:
            stored[name], stored[f"{name}_scale_inv"] = _to_fp8(p)
            value = _from_fp8(stored[name], stored[f"{name}_scale_inv"])
        if case.stored == "mxfp4" and name.startswith("model.layers") and p.dim() == 2:
            parts = map(torch.from_numpy, to_mxfp4(p.numpy()))
            stored[name], stored[f"{name}_scale"], value = parts
        p.copy_(value.to(p.dtype))
    save_file(stored, path / "model.safetensors", metadata={"format": "pt"})
    keys = config.to_dict()
    keys["architectures"] = [type(model).__name__]
    if case.family == "minicpm":
        keys["model_type"] = "minicpm"
        keys |= {k: BASE["minicpm"][k] for k in _MINICPM} | {
            k: v for k, v in case.config.items() if k in _MINICPM
        }
    if case.stored == "fp8":
        keys["quantization_config"] = {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [FP8_BLOCK, FP8_BLOCK],
        }
    if case.stored == "mxfp4":
        keys["quantization_config"] = quark_config()
    (path / "config.json").write_text(json.dumps(keys), encoding="utf-8")


def _as_reference(case: Case, model: Any) -> Any:
    """Widen to f64, with what transformers would not do at that width or does not know."""
    rounded = model.model.embed_tokens.embed_scale if case.family == "gemma3" else None
    model = model.double()
    on_embedding, on_blocks, on_head = factors(case)
    with torch.no_grad():
        if rounded is not None and not case.is_gguf:
            # At its own width the model rounds this factor to the dtype of its weights.
            model.model.embed_tokens.embed_scale.copy_(rounded.to(_TORCH[case.stored]))
        if case.family == "minicpm":
            model.model.embed_tokens.weight.mul_(on_embedding)
            model.lm_head.weight.mul_(on_head)
            for layer in model.model.layers:
                layer.self_attn.o_proj.weight.mul_(on_blocks)
                layer.mlp.down_proj.weight.mul_(on_blocks)
    return model


def _blocks(scale: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    wide = scale.repeat_interleave(FP8_BLOCK, 0).repeat_interleave(FP8_BLOCK, 1)
    return wide[: shape[0], : shape[1]]


def _to_fp8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows, cols = (-(-n // FP8_BLOCK) for n in weight.shape)
    scale = torch.empty(rows, cols)
    for r in range(rows):
        for c in range(cols):
            tile = weight[r * FP8_BLOCK : (r + 1) * FP8_BLOCK, c * FP8_BLOCK : (c + 1) * FP8_BLOCK]
            scale[r, c] = tile.abs().max() / 448.0
    return (weight / _blocks(scale, weight.shape)).to(torch.float8_e4m3fn), scale


def _from_fp8(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return codes.float() * _blocks(scale, codes.shape)
