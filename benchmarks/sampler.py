"""What the sampling chain costs a step, stage by stage, when nobody wants a stage and when all do.

    python benchmarks/sampler.py [--rows 32] [--vocab 49152] [--level avx2] [--apart]

Microseconds of all rows on one thread, the best of many runs, since other programs share the
machine.
"""

import argparse
import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from radiance_abi.testing.sampling_inputs import settings_of

_spec = importlib.util.spec_from_file_location(
    "rows", Path(__file__).parents[1] / "plugins" / "libavx" / "tests" / "conftest.py"
)
assert _spec is not None
assert _spec.loader is not None
rows = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(rows)

RUNS = 9
HISTORY = 512
SCRATCH = 5
"""Which of what ``Row.bind`` keeps."""
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"flags": 1},
    "temperature": {"temp": 0.8},
    "temperature, flat": {"temp": 5},
    "top-p": {"temp": 0.8, "top_p": 0.95},
    "min-p": {"temp": 0.8, "min_p": 0.05},
    "top-k 40": {"temp": 0.8, "top_k": 40},
    "top-k 40, top-p": {"temp": 0.8, "top_k": 40, "top_p": 0.95},
    "typical": {"temp": 0.8, "typical_p": 0.95},
    "greedy, log probabilities": {"flags": 1 | 32},
    "every stage": {
        "temp": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.95,
        "flags": 2 | 4 | 8 | 16 | 32 | 64, "mask_row": 0, "rep_penalty": 1.1, "hist_len": HISTORY,
        "penalty_last_n": -1, "dry_penalty_last_n": -1, "dry_multiplier": 0.8, "dry_base": 1.75,
        "xtc_probability": 0.5, "xtc_threshold": 0.1,
    },
}  # fmt: skip


class Chain:
    """The operands of all stages, for a number of rows and tokens."""

    def __init__(self, num_rows: int, vocab: int, *, apart: bool) -> None:
        self.apart = apart
        self.rng = np.random.default_rng()
        self.num_rows, self.vocab = num_rows, vocab
        self.drawn = (self.rng.normal(size=(num_rows, vocab)) * 3).astype(np.float32)
        self.logits = self.drawn.copy()
        self.kept = np.zeros_like(self.drawn)
        self.ids = np.zeros((num_rows, vocab), np.int32)
        self.values = np.zeros_like(self.drawn)

    def stages(self, params: np.ndarray) -> Iterator[tuple[str, list[np.ndarray], dict[str, int]]]:
        """Yield each op of the chain with its operands and extents, in order."""
        m, v, n = self.num_rows, {"n_vocab": self.vocab}, {"n_cand": self.vocab}
        token, top = np.zeros((m, 1), np.int32), np.zeros((m, 20), np.int32)
        history = self.rng.integers(0, self.vocab, HISTORY).astype(np.int32)
        biased = np.full((m, 1024), -1, np.int32)
        biased[:, :20] = np.arange(20)
        logits, candidates = [self.logits, params], [self.ids, self.values]
        words = np.full((1, -(-self.vocab // 32)), -1, np.int32)
        yield "keep", [*logits, self.kept], v
        yield "argmax", [*logits, token], v
        yield "penalties", [*logits, history], v
        yield "dry", [*logits, history, np.zeros(HISTORY, np.uint8)], v
        yield "bias", [*logits, biased, np.ones((m, 1024), np.float32)], {**v, "n_bias": 1024}
        yield "temp", logits, v
        yield "mask", [*logits, words], v
        if self.apart:
            yield "topk", [*logits, *candidates], v | n
            for stage in ("topp", "minp", "typical", "xtc"):
                yield stage, [*candidates, params], n
            yield "pick", [*candidates, params, token], n
        else:
            yield "draw", [*logits, token], v
        told = [np.zeros((m, 1), np.float32), token.copy(), top, top.astype(np.float32)]
        given = np.full((m, 1), -1, np.int32)
        yield "logprobs", [self.kept, params, token, given, *told], {**v, "n_top": 20}

    def best_us(self, level: Any, params: np.ndarray) -> dict[str, float]:
        """Return the shortest time of every stage over runs of the whole chain."""
        best: dict[str, float] = {}
        for _ in range(RUNS):
            self.logits[:] = self.drawn
            for stage, operands, sizes in self.stages(params):
                row = level.row(f"sample_{stage}")
                call, kept = row.bind(operands, {"M": self.num_rows, **sizes})
                kept[SCRATCH].fill(0)  # a server's scratch has its pages long since
                start = time.perf_counter()
                pieces = row.c.tiles(call)
                status = row.c.run(call, 0, pieces, 0) if pieces else 0
                taken = (time.perf_counter() - start) * 1e6
                assert status == 0, f"{stage} answered {status}"
                best[stage] = min(taken, best.get(stage, taken))
        return best


def main() -> None:
    """Print a line for each way to sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--vocab", type=int, default=49152)
    parser.add_argument("--level", default="", help="one of libavx, such as avx512; the best here")
    parser.add_argument("--apart", action="store_true", help="by the ops that sample_draw fuses")
    options = parser.parse_args()
    level = next(v for v in rows.all_levels() if options.level in ("", v.name))
    chain = Chain(options.rows, options.vocab, apart=options.apart)
    for way, fields in WAYS.items():
        params = settings_of(*({"seed": i, **fields} for i in range(options.rows)))
        best = chain.best_us(level, params)
        shown = ", ".join(f"{stage} {us:.0f}" for stage, us in best.items() if us > 3)
        print(f"{way:26} {sum(best.values()):8.0f} us: {shown}")


if __name__ == "__main__":
    main()
