"""Laying a GGUF file's blocks out for the kernels that read them: all weights in one call of C.

Python only says what there is to do. While C works it holds no lock of the interpreter, so threads
that call ``work`` lay out beside whatever else a start does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from radiance_abi.encoding import Encoding
from radiance_abi.native import RelayoutCall, arguments
from radiance_core.model_files import gguf_native
from radiance_core.model_files.gguf_blocks import CODEBOOK
from radiance_core.model_files.gguf_types import GgufType

STEP_BYTES = 64 * 2**10
"""What is split and laid out at a time: it stays in a core's own cache between the two."""
CLAIM_BYTES = 2**20
_PAD = 64


@dataclass(frozen=True, slots=True)
class Blocks:
    """A tensor as the file has it: its type, its columns and the bytes of all its rows."""

    kind: GgufType
    cols: int
    raw: npt.NDArray[np.uint8]


class GgufBatch:
    """Weights of a file that C lays out; see ``checkpoint.Batch`` for the contract.

    Args:
        blocks: finds a tensor by its name.
    """

    def __init__(self, blocks: Callable[[str], Blocks]) -> None:
        self._blocks = blocks
        self._ffi, self._library = gguf_native.library()
        self._weights: list[Any] = []
        self._kept: list[object] = []
        self._planes: dict[tuple[Encoding, int, int], Any] = {}
        self._scratch_bytes = 0
        self._batch: Any = None

    def add(
        self, names: Sequence[str], row_block: int, call: RelayoutCall, stored: npt.NDArray[Any]
    ) -> bool:
        """Have the weight laid out that is stacked from some tensors."""
        found = [self._blocks(name) for name in names]
        kind, cols = found[0].kind, found[0].cols
        if kind.encoding.is_plain or any(each.kind is not kind for each in found):
            return False
        self._weights.append(self._weight(kind, cols, [b.raw for b in found], row_block, call))
        self._weights[-1].stored = self._ffi.cast("void *", stored.ctypes.data)
        self._kept.append(stored)
        return True

    def _weight(
        self,
        kind: GgufType,
        cols: int,
        spans: Sequence[npt.NDArray[np.uint8]],
        row_block: int,
        call: RelayoutCall,
    ) -> Any:
        ffi = self._ffi
        row_bytes = kind.row_bytes(cols)
        step = max(1, STEP_BYTES // row_bytes // row_block) * row_block
        weight = ffi.new("RadGgufWeight *")
        weight.type, weight.operand = kind.id, call.operand
        parts = ffi.new("RadGgufSpan[]", len(spans))
        for part, span in zip(parts, spans, strict=True):
            part.blocks = ffi.cast("uint8_t *", span.ctypes.data)
            part.rows = len(span) // row_bytes
            weight.rows += part.rows
        weight.spans, weight.num_spans = parts, len(spans)
        planes = self._planes_of(kind.encoding, step, cols)
        weight.planes, weight.num_planes = planes, len(planes)
        weight.row_bytes, weight.row_blocks = row_bytes, cols // kind.block
        weight.step = step
        weight.claim = max(1, CLAIM_BYTES // row_bytes // step) * step
        weight.relayout = ffi.cast("void *", call.hook)
        weight.geometry = ffi.cast("void *", call.geometry)
        weight.encoding = ffi.cast("void *", call.encoding)
        weight.layout = ffi.cast("void *", call.layout)
        self._kept += [parts, *spans, call]
        return weight

    def start(self) -> None:
        """Take no more weights; ``work`` may be called from now on."""
        ffi = self._ffi
        weights = ffi.new("RadGgufWeight[]", [weight[0] for weight in self._weights])
        self._kept.append(weights)
        self._batch = ffi.new("RadGgufBatch *")
        self._batch.weights, self._batch.num_weights = weights, len(weights)
        self._batch.scratch_bytes = self._scratch_bytes

    def work(self) -> None:
        """Lay out until nothing is left that no thread has begun."""
        if self._library.rad_gguf_lay_out(self._batch):
            raise MemoryError("laying out a GGUF file")

    @property
    def failure(self) -> tuple[int, int, int, int] | None:
        """Return number, first and last row of a weight that failed, and the hook's status."""
        batch = self._batch
        if not batch.failed:
            return None
        return batch.failed - 1, batch.first_row, batch.last_row, batch.status

    def _planes_of(self, encoding: Encoding, step: int, cols: int) -> Any:
        """Return the planes of a step of rows; weights of one shape share them."""
        key = (encoding, step, cols)
        if key not in self._planes:
            self._planes[key] = self._make_planes(*key)
        return self._planes[key]

    def _make_planes(self, encoding: Encoding, step: int, cols: int) -> Any:
        made = self._ffi.new("RadGgufPlane[]", len(encoding.planes))
        room = 0
        for c, plane in zip(made, encoding.planes, strict=True):
            element, shape = plane.storage(step, cols)
            whole = CODEBOOK if plane.is_table else np.empty(shape, element)
            tensor, kept = arguments.tensors([whole])
            self._kept += [tensor, kept]
            c.tensor = self._ffi.cast("void *", arguments.address(tensor))
            c.row_bytes = whole.nbytes // len(whole)
            c.field = -1 if plane.is_table else gguf_native.FIELDS.index(plane.role)
            room += -(-whole.nbytes // _PAD) * _PAD
        self._scratch_bytes = max(self._scratch_bytes, room)
        return made
