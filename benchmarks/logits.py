"""Logits of every architecture against transformers in double precision.

    python benchmarks/logits.py [--kernels libref,libavx+libref] [--only NAME] [--seed N]

Prints, for each checkpoint, library and way of feeding, the largest difference over the largest
logit: once with f32 activations and cache, as in the reference, and once as served, which may mean
int8 planes of activations for integer weights and an f16 cache.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from checkpoints.cases import CASES, Case
from checkpoints.comparing import bound_of, errors
from checkpoints.making import Made, make

from radiance_abi import RadianceError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", default="libref,libavx")
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--executor", default="c")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"seed {options.seed}")
    print(
        f"{'checkpoint':34}{'weights':8}{'kernels':15}{'as':>8}{'whole':>10}{'chunks':>10}{'tokens':>10}"
    )
    failed = 0
    for case in (c for c in CASES if options.only in c.name):
        with tempfile.TemporaryDirectory() as folder:
            made = make(case, Path(folder), options.seed)
            for kernels in options.kernels.split(","):
                for precise in (True, False):
                    failed += not line(case, made, kernels, options, precise=precise)
    print(f"{failed} failed" if failed else "all within their bounds")
    return 1 if failed else 0


def line(
    case: Case, made: Made, kernels: str, options: argparse.Namespace, *, precise: bool
) -> bool:
    """Print one line; return whether it is within its bound."""
    head = f"{case.name:34}{case.stored:8}{kernels:15}{'f32' if precise else 'served':>8}"
    rng = np.random.default_rng(options.seed)
    try:
        found = errors(case, made, kernels, rng, precise=precise, executor=options.executor)
    except RadianceError as error:
        print(f"{head}  {str(error).splitlines()[0]}")
        return False
    bound = bound_of(case, kernels, precise=precise)
    over = max(found.values()) > bound
    numbers = "".join(f"{found[way]:10.1e}" for way in ("whole", "chunks", "tokens"))
    print(f"{head}{numbers}{f'  above {bound:.0e}' if over else ''}", flush=True)
    return not over


if __name__ == "__main__":
    sys.exit(main())
