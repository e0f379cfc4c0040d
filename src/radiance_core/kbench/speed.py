"""How fast a row is on a recorded case: bytes of its operands a second, and products a second."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from radiance_abi.errors import RadianceError
from radiance_abi.kernels import Call, Kernel
from radiance_abi.testing import NotReadError
from radiance_abi.testing.cache_inputs import LONG_PAST
from radiance_abi.testing.case import Case, Weight
from radiance_abi.testing.independence import holds
from radiance_abi.testing.running import prepared
from radiance_core.kbench.machine import best_seconds
from radiance_core.kbench.paging import block_size, paged, serves
from radiance_core.kbench.replay import Drawn

_MEASURE_S = 0.04
_PREFILL_ROWS = 256
_LONG_KEYS = 8192


@dataclass(frozen=True, slots=True)
class Speed:
    """Best time of one call.

    ``products`` counts multiplications and additions, 0 of other ops; ``numbers``: of which.
    """

    library: str
    kernel: Kernel
    case: str
    seconds: float
    nbytes: int
    products: int
    numbers: str

    @property
    def bytes_per_s(self) -> float:
        """Bytes of operands a second, each read or written once."""
        return self.nbytes / self.seconds

    @property
    def products_per_s(self) -> float:
        """Multiplications and additions a second."""
        return self.products / self.seconds


def speeds(library: str, kernel: Kernel, drawn: Drawn, threads: int) -> Iterator[Speed]:
    """Measure a row on each case that it serves; products also on many rows, attention on keys."""
    for _, _, case in drawn.of(kernel.op):
        if not serves(kernel, case):
            continue
        for sized in _sizes(paged(case, block_size(kernel))):
            if not holds(kernel, sized.params):
                continue
            try:
                call = prepared(kernel, sized)
            except NotReadError:
                continue
            with np.errstate(all="ignore"), ThreadPoolExecutor(threads) as pool:
                try:
                    took = best_seconds(_job(kernel, call, pool, threads), _MEASURE_S)
                except RadianceError:
                    # The replay has said so.
                    continue
                finally:
                    if kernel.fini is not None:
                        kernel.fini(call.state)
            yield Speed(
                library,
                kernel,
                str(sized),
                took,
                _bytes(call),
                _products(sized),
                _numbers(sized),
            )


def _sizes(case: Case) -> Iterator[Case]:
    """Yield a case; a product of one row also as that of a prompt, a long past as a longer one.

    Behind a window a longer past is not read.
    """
    yield case
    full = case.schema.op == "attn_paged" and not case.integer("window")
    if full and case.array("seqused").max() > LONG_PAST:
        yield _lengthened(case)
    if _products(case) and case.integer("M") == 1:
        repeated = {
            o.name: np.repeat(case.array(o.name), _PREFILL_ROWS, axis=0)
            for o in case.schema.inputs
            if o.role == "in" and o.dims[0] == "M" and case.has(o.name)
        }
        yield case.with_operands(**repeated).with_params(M=_PREFILL_ROWS)


def _lengthened(case: Case) -> Case:
    """Return attention of the longest sequence alone, over copies of its pages as its past."""
    used, cuts, block = case.array("seqused"), case.array("cu_seqlens"), case.integer("block_size")
    s = int(used.argmax())
    pages = np.resize(case.array("block_table")[s, : used[s] // block], _LONG_KEYS // block)
    rows = case.array("q")[cuts[s] : cuts[s + 1]]
    return case.with_operands(
        q=rows,
        kv_cache=case.array("kv_cache")[pages],
        block_table=np.arange(len(pages), dtype=np.int32)[None],
        seqused=np.array([len(pages) * block], np.int32),
        cu_seqlens=np.array([0, len(rows)], np.int32),
    )


def _products(case: Case) -> int:
    """Return multiplications and additions of a matrix product, 0 of another op."""
    weight = next((w for w in case.operands.values() if isinstance(w, Weight)), None)
    if "gemm" not in case.schema.op or weight is None:
        return 0
    return 2 * case.integer("M") * int(np.prod(weight.shape))


def _numbers(case: Case) -> str:
    """Return of which ``NUMBERS`` the products of a case are: as narrow as its activations."""
    if case.has("a_scale"):
        return "i8"
    return "bf16" if "_bf16" in case.schema.op else "f32"


def _bytes(call: Call) -> int:
    """Return the bytes of all operands: each is read or written once at least."""
    return sum(t.numpy().nbytes for t in call.tensors if t is not None)


def _job(kernel: Kernel, call: Call, pool: ThreadPoolExecutor, threads: int) -> Callable[[], None]:
    if kernel.tiles is None:
        return lambda: kernel.run(call)
    count = kernel.tiles(call)
    if threads == 1 or count == 1:
        return lambda: kernel.run(call, 0, count, 0)
    cuts = [count * worker // threads for worker in range(threads + 1)]

    def parts() -> None:
        jobs = [
            pool.submit(kernel.run, call, cuts[w], cuts[w + 1], w)
            for w in range(threads)
            if cuts[w] < cuts[w + 1]
        ]
        for job in jobs:
            job.result()

    return parts
