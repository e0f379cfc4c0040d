"""What each --kv-cache-dtype costs and changes, on a real model and real text.

    python benchmarks/kv_cache.py [--model NAME] [--tokens 512] [--rounds 3] [--contexts 128,4096]
                                  [--kernels libavx] [--threads N] [--types f32,f16,fp8]
                                  [--busy]

Prints for each type the bytes that a token takes, KL from the model with an f32 cache in nats
(teacher forced over the text, which is this repository's guide), how often the likeliest token is
the same, and decode speed with so many tokens before it: medians of rounds in which the types take
turns, and their ratio to f16. Where other programs keep the processors busy, ``--busy`` counts the
time that this one had.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from real_models import MODELS, log_softmax

from radiance_abi.kv_cache import CACHE_DTYPES
from radiance_core.build import BuildSettings, load_model, plan_model
from radiance_core.model_files.opening import open_checkpoint
from radiance_core.runtime import StepModel, StepShape, sequence_logits
from radiance_core.text import load_tokenizer

GUIDE = Path(__file__).resolve().parent.parent / "docs/guide"
STEPS, TURN = 12, 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--kernels", default="libavx")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contexts", default="128,4096")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--types", default=",".join(CACHE_DTYPES), help="f32 and f16 belong to it")
    parser.add_argument("--busy", action="store_true", help="time the processor, on one thread")
    options = parser.parse_args()
    options.threads = 1 if options.busy else options.threads
    with tempfile.TemporaryDirectory() as folder:
        path = MODELS[options.model](Path(folder))
        if options.tokens:
            compare(path, options)
        for context in map(int, filter(None, options.contexts.split(","))):
            speeds(path, context, options)
    return 0


def opened(
    path: Path, kv_dtype: str, context: int, rows: int, options: argparse.Namespace
) -> StepModel:
    settings = BuildSettings(
        path,
        kernels=tuple(options.kernels.split("+")),
        max_seqs=1,
        max_tokens=rows,
        max_context=context,
        max_out_rows=rows,
        threads=options.threads,
        accept_reference=True,
        kv_dtype=kv_dtype,
    )
    return load_model(plan_model(settings))


def compare(path: Path, options: argparse.Namespace) -> None:
    """Print bytes, KL and agreement of each type."""
    text = "".join(p.read_text() for p in sorted(GUIDE.glob("*.md")))
    tokens = load_tokenizer(open_checkpoint(path)).encode(text, add_special_tokens=True)[
        : options.tokens
    ]
    print(f"{options.model}, {len(tokens)} tokens: {'bytes a token':>22} {'mean KL':>10}"
          f" {'99 %':>10} {'largest':>10} {'same top':>9}")  # fmt: skip
    want = None
    for name in options.types.split(","):
        model = opened(path, name, len(tokens), len(tokens), options)
        got = log_softmax(sequence_logits(model, tokens, [len(tokens)]))
        cost = sum(sum(g.key_value_bytes) for g in model.groups.values())
        model.close()
        want = got if want is None else want
        kl = (np.exp(want) * (want - got)).sum(-1)
        same = (want.argmax(-1) == got.argmax(-1)).mean()
        print(f"  {name:28} {cost:12,} {kl.mean():10.2e} {np.quantile(kl, 0.99):10.2e}"
              f" {kl.max():10.2e} {same:9.1%}", flush=True)  # fmt: skip


def speeds(path: Path, context: int, options: argparse.Namespace) -> None:
    """Print decode speed of each type with ``context`` tokens before, the types in turn."""
    seconds: dict[str, list[float]] = {}
    with ExitStack() as stack:
        models = {}
        for name in options.types.split(","):
            models[name] = opened(path, name, context + STEPS, 1, options)
            stack.callback(models[name].close)
            fill(models[name])
        for _ in range(options.rounds):
            for first in range(0, STEPS, TURN):
                for name, model in models.items():
                    taken = decode(model, context + first, busy=options.busy)
                    seconds.setdefault(name, []).extend(taken)
    middle = {name: statistics.median(s) for name, s in seconds.items()}
    print(f"decode after {context} tokens:")
    for name, s in middle.items():
        print(f"  {name:28} {1 / s:8.1f} tok/s, {middle['f16'] / s:.2f} of f16", flush=True)


def fill(model: StepModel) -> None:
    """Make all pages memory of their own; what they hold does not matter to speed."""
    for name, plan in model.groups.items():
        for page in range(plan.pages):
            model.clear_page(name, page)


def decode(model: StepModel, first: int, *, busy: bool) -> Iterator[float]:
    """Yield the seconds of the single-token steps of one turn, but its first."""
    clock = time.process_time if busy else time.perf_counter
    for position in range(first, first + TURN):
        start = clock()
        step(model, np.array([200 + position % 50]), position)
        if position > first:
            yield clock() - start


def step(model: StepModel, ids: np.ndarray, first: int) -> None:
    """Run one step of one sequence in the first pages of every pool; only its last row is read."""
    inputs, count = model.inputs, len(ids)
    positions = np.arange(first, first + count, dtype=np.int32)
    inputs["tokens"][:count], inputs["positions"][:count] = ids, positions
    inputs["cu_seqlens"][:2], inputs["out_ids"][0] = (0, count), count - 1
    inputs["sampling"][:1] = 0
    inputs["sampling"].view(np.int32)[:1, 22] = 1
    for name in model.groups:
        table = inputs[f"{name}.block_table"]
        table[0] = np.arange(table.shape[1])
        inputs[f"{name}.slot_mapping"][:count] = positions
        inputs[f"{name}.seqused"][0] = first + count
    decodes = int(count == 1)
    model.run(StepShape(count, 1, 1, count, decodes, decodes))


if __name__ == "__main__":
    sys.exit(main())
