"""Turn the checkpoint of the page on architectures into a llama, in the folder that holds it."""

import json
import shutil
from pathlib import Path

from safetensors.numpy import load_file, save_file

NAMES = {
    "norm_before_look": "input_layernorm",
    "norm_before_think": "post_attention_layernorm",
    "look.q": "self_attn.q_proj",
    "look.k": "self_attn.k_proj",
    "look.v": "self_attn.v_proj",
    "look.out": "self_attn.o_proj",
    "think.gate": "mlp.gate_proj",
    "think.up": "mlp.up_proj",
    "think.down": "mlp.down_proj",
}


def llama_name(name: str) -> str:
    """Return what transformers calls a tensor of the pocket family."""
    if name == "cover.weight":
        return "lm_head.weight"
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    return name.replace("pocket.", "model.")


if __name__ == "__main__":
    pocket, llama = Path("pocket-tiny"), Path("llama-tiny")
    shutil.copytree(pocket, llama)
    config = json.loads((pocket / "config.json").read_text())
    config = {
        k: v
        for k, v in config.items()
        if k not in ("pocket_version", "color_of_the_cover", "pocket_size")
    }
    (llama / "config.json").write_text(json.dumps({**config, "model_type": "llama"}))
    weights = {llama_name(k): v for k, v in load_file(pocket / "model.safetensors").items()}
    save_file(weights, llama / "model.safetensors")
