"""How fast attention runs: bytes of cache per second for one token, operations per second for many.

    python benchmarks/libavx_attention.py [kv_dtype ...] [--level avx2] [--threads 2]

The pool lies as the server's does, all layers of a page together on huge pages, and a step goes
through all layers, so that what is read comes from memory. Best of many runs, since other programs
share the machine, and by the thread's own time where there is one. ``--library`` takes another
build.
"""

import argparse
import mmap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from libavx_products import bandwidth, best_seconds, rows

from radiance_abi.dtypes import dtype
from radiance_abi.kv_cache import cache_dtype

BLOCK = 32
F32_PEAK = 116e9
"""Operations a second of one core of a Zen 4 server, measured by rad-kbench."""


class Pool:
    """Caches of some layers that hold random tokens, [pages, layers, heads, block, row]."""

    def __init__(self, args, level, kind, rng):
        form = cache_dtype(kind)
        self.args, self.level, self.kind = args, level, kind
        self.pages = -(-max(args.contexts) // BLOCK)
        shape = (self.pages, args.layers, args.kv_heads, BLOCK, form.row(args.head_dim))
        native = dtype(form.element).numpy
        nbytes = int(np.prod(shape)) * native.itemsize
        memory = mmap.mmap(-1, nbytes + 2**21, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_NOHUGEPAGE if args.small_pages else mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(memory, np.uint8)
        start = -raw.ctypes.data % 2**21
        self.array = raw[start : start + nbytes].view(native).reshape(shape)
        self.token_bytes = nbytes / self.pages / BLOCK
        self.fill(rng)

    def fill(self, rng):
        args, tokens = self.args, self.pages * BLOCK
        width = args.kv_heads * args.head_dim
        operands = [rng.normal(size=(tokens, width)).astype(np.float32) for _ in range(2)]
        slots = np.arange(tokens, dtype=np.int32)
        params = {
            "M": tokens, "head_dim": args.head_dim, "n_head_kv": args.kv_heads,
            "block_size": BLOCK, "kv_dtype": self.kind, "dtype": "f32",
        }  # fmt: skip
        row = self.row("kv_store", params)
        assert row([*operands, slots, self.array[:, 0]], params) == 0
        self.array[:, 1:] = self.array[:, :1]

    def row(self, op, params):
        names = {"fp8": "_fp8", "fp8_v4": "_integers", "k6_v4": "_integers",
                 "int8": "_words", "k8_v4": "_words"}  # fmt: skip
        return self.level.row(op, op + names.get(params["kv_dtype"], ""))

    def step(self, lengths, count, layers, rng):
        """Return a function that runs ``count`` rows of sequences so long on some layers."""
        args = self.args
        params = {
            "q_len": count, "head_dim": args.head_dim, "n_head": args.heads,
            "n_head_kv": args.kv_heads, "block_size": BLOCK, "causal": 1, "window": 0,
            "dtype": "f32", "kv_dtype": self.kind,
        }  # fmt: skip
        row = self.row("attn_paged", params)
        state = row.ffi.new("void **")
        assert not row.c.init or row.c.init(row.ffi.NULL, state) == 0
        seqs = len(lengths)
        table = np.tile(np.arange(self.pages, dtype=np.int32), (seqs, 1))
        cuts = np.arange(seqs + 1, dtype=np.int32) * count
        used = np.array(lengths, np.int32)
        q = rng.normal(size=(seqs * count, args.heads * args.head_dim)).astype(np.float32)
        calls, kept = [], []
        for layer in range(layers):
            operands = [q, self.array[:, layer], table, used, cuts, np.zeros_like(q)]
            call, keep = row.bind(operands, params, state[0], workers=args.threads)
            calls.append(call)
            kept.append((keep, state))
        threads, pool = args.threads, ThreadPoolExecutor(args.threads)

        def share(worker):
            for call in calls:
                pieces = row.c.tiles(call)
                first, last = (pieces * w // threads for w in (worker, worker + 1))
                assert row.c.run(call, first, last, worker) == 0

        def run():
            if threads == 1:
                share(0)
            else:
                list(pool.map(share, range(threads)))

        return run, (kept, row.c.tiles(calls[0]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=["f16"])
    parser.add_argument("--level", default=None)
    parser.add_argument("--library", type=Path, default=None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--heads", type=int, default=9)
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--contexts", type=int, nargs="*", default=[512, 8192])
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 8], help="that decode")
    parser.add_argument("--rows", type=int, default=512, help="of a prompt in a step; 0: none")
    parser.add_argument("--small-pages", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.5)
    args = parser.parse_args()
    if args.library is not None:
        rows.shared_object = lambda: args.library
    levels = {level.name: level for level in rows.all_levels() if level.rows}
    level = levels[args.level] if args.level else next(iter(levels.values()))
    rng = np.random.default_rng(1)
    print(f"read bandwidth, {args.threads} threads: {bandwidth(args.threads) / 1e9:.1f} GB/s")
    for kind in args.kinds:
        pool = Pool(args, level, kind, rng)
        for context in args.contexts:
            for streams in args.streams:
                decode(args, pool, context, streams, rng)
            if args.rows:
                prefill(args, pool, context, rng)


def seconds(args, step):
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    return best_seconds(step, args.seconds, clock)


def decode(args, pool, context, streams, rng):
    """Time one row of each stream on all layers."""
    step, (_kept, pieces) = pool.step([context] * streams, 1, args.layers, rng)
    took = seconds(args, step)
    nbytes = pool.token_bytes * context * streams
    print(
        f"{pool.level.name} {pool.kind:7} {context:5} keys  decode {streams:2} streams "
        f"{took * 1e3:7.3f} ms {nbytes / took / 1e9:6.1f} GB/s  pieces {pieces}"
    )


def prefill(args, pool, context, rng):
    """Time the last rows of a prompt on one layer."""
    count = min(args.rows, context)
    step, (_kept, pieces) = pool.step([context], count, 1, rng)
    took = seconds(args, step)
    pairs = sum(range(context - count + 1, context + 1)) * args.heads
    rate = 4 * pairs * args.head_dim / took
    print(
        f"{pool.level.name} {pool.kind:7} {context:5} keys  prompt {count:3} rows    "
        f"{took * 1e3:7.3f} ms {rate / 1e9:6.1f} Gop/s, {rate / F32_PEAK / args.threads:.0%} of f32"
        f"  pieces {pieces}"
    )


if __name__ == "__main__":
    main()
