"""Compare a model's logits between lists of kernel libraries, as JSON.

    python logits.py MODEL KERNELS KERNELS

Prints the largest difference over the largest logit, over every position of a prompt that is run
whole and then token by token.
"""

import json
import sys
from pathlib import Path

import numpy as np

from radiance_core.build import BuildSettings, load_model, plan_model
from radiance_core.runtime import sequence_logits
from radiance_core.text import load_tokenizer

PROMPT = "The sky is blue because light of short waves is scattered most."


def logits(model: Path, kernels: str) -> np.ndarray:
    """Return the logits of the prompt's positions, both ways, f32 [2 T, V]."""
    settings = BuildSettings(model, kernels=tuple(kernels.split(",")), max_context=64)
    plan = plan_model(settings)
    tokens = load_tokenizer(plan.metadata.checkpoint).encode(PROMPT, add_special_tokens=True)
    loaded = load_model(plan)
    try:
        whole = sequence_logits(loaded, tokens, [len(tokens)])
        single = sequence_logits(loaded, tokens, [1] * len(tokens))
        return np.concatenate([whole, single])
    finally:
        loaded.close()


if __name__ == "__main__":
    left, right = (logits(Path(sys.argv[1]), kernels) for kernels in sys.argv[2:4])
    gap = float(np.abs(left - right).max() / np.abs(right).max())
    half = len(left) // 2
    same = bool(np.array_equal(left[:half], left[half:]))
    sys.stdout.write(json.dumps({"gap": gap, "same_both_ways": same}))
