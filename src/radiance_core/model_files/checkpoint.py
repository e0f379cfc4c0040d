"""What every model file looks like to the rest of the core, whatever its format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from radiance_abi.encoding import Encoding, rows_and_cols
from radiance_abi.native import RelayoutCall

Planes = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One logical weight of a checkpoint.

    Args:
        name: its name in the file.
        shape: logical shape, row-major as in numpy (GGUF's dimensions reversed).
        encoding: what is stored for it.
        file: the file that holds it (its codes, where scales are a separate entry).
        offset: where it starts in that file, in bytes.
        nbytes: all stored bytes, scales of a separate entry included.
    """

    name: str
    shape: tuple[int, ...]
    encoding: Encoding
    file: Path
    offset: int
    nbytes: int

    @property
    def rows(self) -> int:
        """Return the rows of the two-dimensional view: the product of all but the last extent."""
        return rows_and_cols(self.shape)[0]

    @property
    def cols(self) -> int:
        """Return the columns of the two-dimensional view: the last extent."""
        return rows_and_cols(self.shape)[1]


class Batch(Protocol):
    """Weights that C takes from the file to what kernels store, on as many threads as call it.

    First ``add`` all, then ``start``; then call ``work`` from each thread that is to work, and look
    at ``failure`` when all of them are back.
    """

    def add(
        self, names: Sequence[str], row_block: int, call: RelayoutCall, stored: npt.NDArray[Any]
    ) -> bool:
        """Have a weight laid out.

        Args:
            names: the tensors that it is stacked from, in order.
            row_block: ranges of rows begin at multiples of it.
            call: what lays a range out.
            stored: where to; the whole laid-out weight.

        Returns:
            False where C cannot read these tensors; nothing is then added.
        """

    def start(self) -> None:
        """Take no more weights."""

    def work(self) -> None:
        """Lay out until nothing is left that no thread has begun; the GIL is free meanwhile.

        Pages of the file are let go as they have been read.

        Raises:
            MemoryError: there is none for some planes of some rows.
        """

    @property
    def failure(self) -> tuple[int, int, int, int] | None:
        """Return number, first and last row of a weight that failed, and the hook's status."""


class Checkpoint(Protocol):
    """An open model: its metadata, and its tensors by name.

    Reading is safe from several threads at once; ``close`` is not safe beside a read.
    """

    @property
    def format(self) -> Literal["gguf", "safetensors"]:
        """Return the format of the files."""

    @property
    def path(self) -> Path:
        """Return the file or folder that was opened."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return GGUF's key/values, or the parsed config.json of a safetensors checkpoint."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Return the logical weights by name, in file order."""

    @property
    def total_bytes(self) -> int:
        """Return the stored bytes of all tensors."""

    def read(self, name: str, first_row: int = 0, last_row: int | None = None) -> Planes:
        """Return the planes of rows ``first_row .. last_row`` of a tensor, by role.

        Planes have the shapes ``Encoding.planes[..].storage(rows, cols)`` demands. Where the
        stored bytes are the plane already, the array is a read-only view of the mapped file that
        keeps the mapping alive; otherwise it is new and owned by the caller.

        Args:
            name: a key of ``tensors``.
            first_row: first row of the two-dimensional view.
            last_row: one past the last row; None is the end.

        Raises:
            ModelFileError: no such tensor, rows outside it or across a block, or closed.
        """

    def batch(self) -> Batch | None:
        """Return a new batch of weights for C to lay out; None where C does not read the format."""

    def release(self, name: str) -> None:
        """Drop the tensor's pages from resident memory; a later read brings them back."""

    def side_file(self, name: str) -> bytes | None:
        """Return a small file of the checkpoint's folder such as tokenizer.json, or None.

        A single file (GGUF) has no folder of its own, so the answer is always None there.
        """

    def check_unchanged(self) -> None:
        """Require that what was read is what the files held when they were opened.

        Raises:
            ModelFileError: a file has been written to since.
        """

    def close(self) -> None:
        """Let the files go; views handed out earlier stay valid until they are dropped."""


def view_rows(
    raw: npt.NDArray[np.uint8], info: TensorInfo, role: str, rows: int
) -> npt.NDArray[Any]:
    """Shape stored bytes as a plane for ``rows`` rows; copy only when items are misaligned."""
    dtype, shape = info.encoding.plane(role).storage(rows, info.cols)
    if raw.ctypes.data % dtype.alignment:
        raw = raw.copy()
    return raw.view(dtype).reshape(shape)
