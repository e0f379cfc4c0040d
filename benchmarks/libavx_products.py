"""How fast products run: bytes of weights per second for one token, operations per second for many.

    python benchmarks/libavx_products.py [encoding ...] [--level avx2] [--threads 2] [--planes 2]

Best of many runs, since other programs share the machine; the read bandwidth is measured beside it.
"""

import argparse
import importlib.util
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_spec = importlib.util.spec_from_file_location(
    "rows", Path(__file__).parents[1] / "plugins" / "libavx" / "tests" / "conftest.py"
)
assert _spec is not None
assert _spec.loader is not None
rows = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(rows)


def best_seconds(job, least=1.0, clock=time.perf_counter):
    """Return the shortest of as many runs as fit into ``least`` seconds.

    With ``time.thread_time`` as the clock, time in which another program had the core is left out.
    """
    best, end = 1e9, time.perf_counter() + least
    while time.perf_counter() < end:
        start = clock()
        job()
        best = min(best, clock() - start)
    return best


class Prepared:
    """A call that can be run again and again by several threads."""

    def __init__(self, row, operands, params, threads):
        self.row, self.threads = row, threads
        self.call, self.kept = row.bind(operands, params, workers=threads)
        self.pieces = row.c.tiles(self.call)
        self.pool = ThreadPoolExecutor(threads)

    def __call__(self):
        if self.threads == 1:
            self.row.c.run(self.call, 0, self.pieces, 0)
            return
        cut = [self.pieces * w // self.threads for w in range(self.threads + 1)]
        jobs = [
            self.pool.submit(self.row.c.run, self.call, cut[w], cut[w + 1], w)
            for w in range(self.threads)
        ]
        for job in jobs:
            job.result()


@dataclass(frozen=True, slots=True)
class Product:
    """What is measured: ``tokens`` rows by a weight of n × k; ``planes`` is 0 for f32."""

    name: str
    tokens: int
    n: int
    k: int
    planes: int

    @property
    def op(self):
        return "gemm_nt_q" if self.planes else "gemm_nt"

    @property
    def params(self):
        shape = {"M": self.tokens, "N": self.n, "K": self.k, "dtype": "f32"}
        return shape | ({"group": 32, "planes": self.planes} if self.planes else {})

    def activations(self, rng):
        """Draw what comes before the weight among the operands."""
        if not self.planes:
            return [rng.normal(size=(self.tokens, self.k)).astype(np.float32)]
        a = rng.integers(-127, 128, size=(self.tokens, self.planes * self.k)).astype(np.int8)
        scale = rng.uniform(0.001, 0.1, size=(self.tokens, self.k // 32)).astype(np.float32)
        sums = a.reshape(self.tokens, self.planes, -1, 32).sum(-1, dtype=np.int32)
        sums = sums[:, 0] if self.planes == 1 else 128 * sums[:, 0] + sums[:, 1]
        return [a, scale, sums]


def prepare(level, product, threads, rng):
    """Return the call, bytes of its weight as laid out, and bytes a second of laying it out."""
    n, k, row = product.n, product.k, level.row(product.op)
    weight = rows.draw_weight(product.name, n, k, rng)
    activations, y = product.activations(rng), np.zeros((product.tokens, n), np.float32)
    start = time.perf_counter()
    stored = row.store(weight.encoding, weight.planes, n, k, product.params, len(activations))
    laid_out = time.perf_counter() - start
    job = Prepared(row, [*activations, stored, y], product.params, threads)
    return job, stored.array.nbytes, weight.encoding.total_bytes(n, k) / laid_out


def bandwidth(threads):
    """Bytes per second that reading a big array reaches."""
    data = np.ones(1 << 25, np.int64)
    parts = np.array_split(data, threads)
    pool = ThreadPoolExecutor(threads)
    return data.nbytes / best_seconds(lambda: list(pool.map(np.sum, parts)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("encodings", nargs="*", default=["q4_1"])
    parser.add_argument("--level", default=None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--float", action="store_true", help="f32 activations")
    parser.add_argument("--rows", type=int, default=65536, help="of weights, for up to 8 tokens")
    parser.add_argument("--cols", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--planes", type=int, nargs="*", default=[1, 2], help="of int8 activations")
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 8, 512])
    args = parser.parse_args()
    levels = {level.name: level for level in rows.all_levels()}
    level = levels[args.level] if args.level else next(iter(levels.values()))
    rng = np.random.default_rng(1)
    print(f"read bandwidth, {args.threads} threads: {bandwidth(args.threads) / 1e9:.1f} GB/s")
    for name in args.encodings:
        quantised = not args.float and name in rows.INTEGERS
        for tokens in args.tokens:
            n = args.rows if tokens <= 8 else 1536
            for planes in args.planes if quantised else [0]:
                measure(args, level, Product(name, tokens, n, args.cols, planes), rng)


def measure(args, level, product, rng):
    """Time one product and print it."""
    job, nbytes, relayout = prepare(level, product, args.threads, rng)
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    took = best_seconds(job, args.seconds, clock)
    ops = 2 * product.tokens * product.n * product.k
    print(
        f"{level.name} {product.name:8} {product.tokens:4} tokens  planes {product.planes}  "
        f"{nbytes / took / 1e9:6.1f} GB/s  "
        f"{ops / took / 1e9:7.1f} Gop/s  pieces {job.pieces}  "
        f"relayout {relayout / 1e9:.2f} GB/s"
    )


if __name__ == "__main__":
    main()
