"""Answers in many circumstances against the same answers alone: how many differ in any bit.

    python benchmarks/invariance.py [--trials 1000] [--model llama-gguf-q8_0,gemma3] [--seed N]
                                   [--kv-cache-dtype fp8] [--only "31 others"]

A trial is one random request, answered once alone, with its whole prompt in one step and nothing
cached, and once in another circumstance: among others, with 31 of them in the same steps, after a
hit in the prefix cache, over pools for few conversations whose requests keep giving way, in chunks
of any size, with guesses ahead that are right or wrong. Tokens, texts, log probabilities and finish
reasons are compared. The models are small, random and made on the spot.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from checkpoints.cases import CASES
from checkpoints.circumstances import ALONE, CROWDS, Circumstance, answers, hint, requests, serving
from checkpoints.making import make

AT_ONCE = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--model", default="llama-gguf-q8_0,gemma3")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kv-cache-dtype", default=None)
    parser.add_argument("--only", default="", help="circumstances whose name has this")
    options = parser.parse_args()
    crowds = [how for how in CROWDS if options.only in how.name]
    if not crowds:
        parser.error(f"--only: expected a part of {', '.join(c.name for c in CROWDS)}")
    torch.set_num_threads(1)
    print(f"seed {options.seed}")
    rng = random.Random(options.seed)
    build = {"threads": options.threads, "kv_dtype": options.kv_cache_dtype}
    names = options.model.split(",")
    each = -(-options.trials // (len(names) * len(crowds)))
    print(
        f"{'model':20}{'circumstance':34}{'trials':>8}{'differ':>8}{'gave way':>10}{'found':>8}"
        f"{'guessed':>9}{'right':>7}{'at once':>9}"
    )
    trials = differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            case = next(case for case in CASES if case.name == name)
            path = make(case, Path(folder), options.seed).path
            for how in crowds:
                for count, wrong in _compare(path, name, how, each, build, rng):
                    trials += count
                    differ += wrong
    print(f"{differ} differences in {trials} trials")
    return 1 if differ else 0


def _compare(
    path: Path,
    name: str,
    how: Circumstance,
    count: int,
    build: dict[str, Any],
    rng: random.Random,
) -> Iterator[tuple[int, int]]:
    """Yield numbers of trials and of differences, in pieces."""
    done = wrong = 0
    with (
        serving(path, ALONE, **build) as single,
        serving(path, how, **build) as engine,
    ):
        while done < count:
            asked = requests(rng, min(AT_ONCE, count - done), single._n_vocab)
            expected = answers(single, asked, ALONE, rng)
            hint(engine, asked, expected)
            got = answers(engine, asked, how, rng)
            bad = sum(one != other for one, other in zip(expected, got, strict=True))
            done += len(asked)
            wrong += bad
            yield len(asked), bad
        stats = engine.stats()
    print(
        f"{name:20}{how.name:34}{done:8d}{wrong:8d}{stats['preemptions']:10.0f}"
        f"{stats['prefix_cache_hits']:8.0f}{stats['draft_tokens']:9.0f}"
        f"{stats['accepted_tokens']:7.0f}{engine.most_seats:9d}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
