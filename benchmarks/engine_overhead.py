"""What a step costs outside kernels: the engine over a model that does nothing.

Prints microseconds of processor time a step, of the engine's thread alone and of the whole process
with the event loop that takes the tokens out. The bounds are 60 us at one sequence and 150 at 32,
of the engine's thread: what it does between two steps, while no kernel runs.

    python benchmarks/engine_overhead.py
"""

import asyncio
import time
from typing import Any

import numpy as np

from radiance_core.engine.interface import Request
from radiance_core.engine.loop import EngineLoop
from radiance_core.engine.sampling import SamplingParams
from radiance_core.engine.serving import LocalEngine
from radiance_core.plan.budget import KvPlan
from radiance_core.runtime import StepShape

CONTEXT, SEQS, TOKENS, BLOCK = 4096, 32, 512, 16
STEPS = 3000


class NoKernels:
    """The surface of a step model, with every extent and no work."""

    def __init__(self) -> None:
        plan = KvPlan("full", SEQS * CONTEXT // BLOCK, BLOCK, "f32", 1, 1, 8, 0, 1)
        self.groups = {"full": plan}
        self.n_vocab = 256
        self.tokens = np.full(SEQS, 97, np.int32)
        self.inputs = {
            "tokens": np.zeros(TOKENS, np.int32),
            "positions": np.zeros(TOKENS, np.int32),
            "cu_seqlens": np.zeros(SEQS + 1, np.int32),
            "out_ids": np.zeros(SEQS, np.int32),
            "sampling": np.zeros((SEQS, 96), np.uint8),
            "history": np.zeros(SEQS * CONTEXT, np.int32),
            "dry_breakers": np.zeros(SEQS * CONTEXT, np.uint8),
            "bias_ids": np.zeros((SEQS, 1024), np.int32),
            "bias_values": np.zeros((SEQS, 1024), np.float32),
            "bitmask": np.zeros((SEQS, 8), np.int32),
            "logprob_ids": np.zeros((SEQS, 1), np.int32),
            "full.block_table": np.zeros((SEQS, CONTEXT // BLOCK), np.int32),
            "full.slot_mapping": np.zeros(TOKENS, np.int32),
            "full.seqused": np.zeros(SEQS, np.int32),
        }

    def copy_page(self, group: str, source: int, target: int) -> None:
        """Do nothing: pages hold nothing."""

    def clear_page(self, group: str, page: int) -> None:
        """Do nothing: pages hold nothing."""

    def run(self, shape: StepShape, _abort: np.ndarray | None = None) -> None:
        """Do what every step does before its kernels."""
        shape.symbols()


class Letters:
    """A tokenizer whose tokens are bytes."""

    eos_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()
    error_mode = "replace"

    def token_bytes(self, id_: int) -> bytes:
        """Return the byte."""
        return bytes([id_])

    def starts_with_added_space(self, _id: int) -> bool:
        """Return that none does."""
        return False


def made() -> LocalEngine:
    """Return an engine that has not started."""
    model: Any = NoKernels()
    tokenizer: Any = Letters()
    bounds = {"max_context": CONTEXT, "max_seqs": SEQS, "max_tokens": TOKENS, "max_queued": SEQS}
    return LocalEngine(model, tokenizer, **bounds)


def request(index: int) -> Request:
    """Return a drawn answer that is longer than the measurement."""
    return Request(str(index), (1, 2, 3), SamplingParams(max_tokens=STEPS, temperature=0.7))


def thread_us(num_seqs: int) -> float:
    """Return the engine's own microseconds a step, with nobody listening."""
    engine = made()
    loop: EngineLoop = engine._loop
    for i in range(num_seqs):
        loop.submit(engine._sequence(request(i), lambda _: True))
    loop._wait()
    start = time.thread_time()
    for _ in range(STEPS - 10):
        loop._wait()
        loop._step()
    return (time.thread_time() - start) / (STEPS - 10) * 1e6


async def process_us(num_seqs: int) -> float:
    """Return the process's microseconds a step, the event loop's share included."""
    engine = made()
    engine.start()

    async def take(index: int) -> None:
        async for _ in engine.generate(request(index)):
            pass

    start = time.process_time()
    await asyncio.gather(*(take(i) for i in range(num_seqs)))
    spent = time.process_time() - start
    steps = engine.stats()["steps"]
    await asyncio.to_thread(engine.stop)
    return spent / steps * 1e6


def main() -> None:
    """Print one line for each number of sequences."""
    print("sequences   engine us/step   with event loop us/step   us a token")
    for num_seqs in (1, 4, 16, 32):
        own, whole = thread_us(num_seqs), asyncio.run(process_us(num_seqs))
        print(f"{num_seqs:9d} {own:16.1f} {whole:25.1f} {whole / num_seqs:12.1f}")


if __name__ == "__main__":
    main()
