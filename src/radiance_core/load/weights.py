"""Fill weight sites from a checkpoint."""

import math
import mmap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from radiance_abi.dtypes import dtype
from radiance_abi.encoding import Encoding
from radiance_abi.kernels import Layout
from radiance_core.graph.errors import WeightError
from radiance_core.graph.weights import TensorFacts
from radiance_core.model_files import Batch
from radiance_core.plan.sites import Site

CHUNK_BYTES = 2 * 2**20


class Checkpoint(Protocol):
    """What loading needs of an open model file."""

    @property
    def tensors(self) -> Mapping[str, TensorFacts]:
        """Facts by tensor name."""

    def read(
        self, name: str, first_row: int = 0, last_row: int | None = None
    ) -> dict[str, np.ndarray]:
        """Return the planes of a row range."""

    def batch(self) -> Batch | None:
        """Return what lays weights out in C, None where nothing does."""

    def release(self, name: str) -> None:
        """Drop the tensor's pages from this process."""


def zeros(shape: tuple[int, ...], native: "np.dtype[Any]") -> np.ndarray:
    """Return zeros on pages of their own, which the system gives out as they are written.

    Not from numpy, which asks for huge pages: of what is mostly never written, such as a cache or
    the logits of rows that few steps have, those make 2 MiB resident for every few bytes.
    """
    nbytes = math.prod(shape) * native.itemsize
    pages = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, np.uint8)[:nbytes].view(native).reshape(shape)


def rows_of(shape: tuple[int, ...]) -> int:
    """Return the rows of a weight: the product of all extents but the last; a vector is one row."""
    return math.prod(shape[:-1])


class RowReader:
    """Reads row ranges of a weight that is stacked from one or more tensors."""

    def __init__(self, checkpoint: Checkpoint, names: Sequence[str], encoding: Encoding) -> None:
        self._checkpoint = checkpoint
        self._encoding = encoding
        self._spans: list[tuple[int, int, str]] = []
        row = 0
        for name in names:
            count = rows_of(checkpoint.tensors[name].shape)
            self._spans.append((row, row + count, name))
            row += count

    def read(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Return the planes of rows [first, last), copied only when they span tensors."""
        parts = [
            self._checkpoint.read(name, max(first, low) - low, min(last, high) - low)
            for low, high, name in self._spans
            if low < last and first < high
        ]
        if len(parts) == 1:
            return parts[0]
        joined: dict[str, np.ndarray] = {}
        for plane in self._encoding.planes:
            pieces = [p[plane.role] for p in parts]
            joined[plane.role] = pieces[0] if plane.is_table else np.concatenate(pieces)
        return joined

    def check_tables(self) -> None:
        """Require that stacked tensors share their tables, since one layout holds one.

        Raises:
            WeightError: two tables differ; names the tensors.
        """
        tables = [plane.role for plane in self._encoding.planes if plane.is_table]
        if not tables or len(self._spans) < 2:
            return
        step = self._encoding.block_rows
        first = self._checkpoint.read(self._spans[0][2], 0, step)
        for _, _, name in self._spans[1:]:
            other = self._checkpoint.read(name, 0, step)
            for role in tables:
                if not np.array_equal(first[role], other[role]):
                    raise WeightError(
                        f"weight: {self._spans[0][2]} and {name}: expected equal planes {role} to "
                        "stack them, got two that differ; the architecture must declare them apart"
                    )


def load_site(
    site: Site,
    checkpoint: Checkpoint,
    stored: np.ndarray,
    submit: Callable[[Callable[[], None]], None],
) -> None:
    """Hand the pieces of work that fill the site's storage to ``submit``."""
    weight, layout = site.weight, site.layout
    if len(weight.shape) == 1:  # too little to be handed to anyone
        _load_vector(site, checkpoint, stored)
        return
    reader = RowReader(checkpoint, weight.source.names, weight.encoding)
    reader.check_tables()
    rows = rows_of(weight.shape)
    block = _row_block(site)
    row_bytes = max(1, site.nbytes // max(rows, 1))
    step = max(block, CHUNK_BYTES // row_bytes // block * block)
    shaped = _shaped(stored, layout)
    for first in range(0, rows, step):
        last = min(rows, first + step)
        submit(partial(_load_rows, site, reader, shaped, first, last))


def _shaped(stored: np.ndarray, layout: Layout | None) -> np.ndarray:
    """Return the storage as the layout describes it; packed types stay a row of bytes."""
    if layout is None:
        return stored
    native = dtype(layout.dtype).numpy
    return stored if native is None else stored.view(native).reshape(layout.shape)


def _row_block(site: Site) -> int:
    tall = site.weight.encoding.block_rows or rows_of(site.weight.shape)
    mine = site.layout.row_block if site.layout else 1
    return int(np.lcm(max(mine, 1), max(tall, 1)))


def _load_rows(site: Site, reader: RowReader, stored: np.ndarray, first: int, last: int) -> None:
    planes = reader.read(first, last)
    if site.layout is None:
        codes = np.ascontiguousarray(planes["codes"]).view(np.uint8).reshape(-1)
        row_bytes = site.nbytes // rows_of(site.weight.shape)
        stored[first * row_bytes : last * row_bytes] = codes
        return
    _relayout(site, planes, stored, first, last)


def _relayout(
    site: Site, planes: Mapping[str, np.ndarray], stored: np.ndarray, first: int, last: int
) -> None:
    assert site.layout is not None, "only laid-out sites have a relayout"
    relayout = site.kernel.relayout
    if relayout is None:
        raise WeightError(
            f"weight {site.weight.name}: kernel {site.kernel.name} asks for layout "
            f"{site.layout.name} and has no relayout to make it; the library is broken"
        )
    try:
        relayout(
            site.weight.encoding,
            site.layout,
            planes,
            stored,
            first,
            last,
            site.geometry,
            site.operand,
        )
    except Exception as error:
        raise not_laid_out(site, first, last, error) from error


def not_laid_out(site: Site, first: int, last: int, error: Exception) -> WeightError:
    """Return the error for rows that a kernel could not lay out."""
    assert site.layout is not None, "only laid-out sites have a relayout"
    return WeightError(
        f"weight {site.weight.name}: expected kernel {site.library}.{site.kernel.name} to make "
        f"layout {site.layout.name} of rows {first}..{last}, got {type(error).__name__}: "
        f"{error}; report it to the author of the library"
    )


def _load_vector(site: Site, checkpoint: Checkpoint, stored: np.ndarray) -> None:
    """A vector is one row; stacked vectors lengthen it."""
    names = site.weight.source.names
    planes = [checkpoint.read(name) for name in names]
    if len(names) > 1:
        if not site.weight.encoding.is_plain:
            raise WeightError(
                f"weight {site.weight.name}: expected plain vectors to stack, got "
                f"{site.weight.encoding}"
            )
        planes = [{"codes": np.concatenate([p["codes"].reshape(1, -1) for p in planes], axis=1)}]
    if site.layout is None:
        stored[:] = np.ascontiguousarray(planes[0]["codes"]).view(np.uint8).reshape(-1)
        return
    _relayout(site, planes[0], _shaped(stored, site.layout), 0, 1)
