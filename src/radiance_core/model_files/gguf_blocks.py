"""GGUF blocks to encoding planes, losslessly; ``gguf_blocks.c`` has the layouts.

A plane row is the concatenation of what its blocks contribute, because every block contributes
whole bytes to every plane. So blocks are converted as one flat run, whatever the rows are.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from radiance_core.model_files import gguf_native
from radiance_core.model_files.gguf_types import GgufType

CODEBOOK = np.array(
    [[-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]], np.int8
)
"""The sixteen values of the non-linear four-bit types."""


def split_blocks(
    kind: GgufType, raw: npt.NDArray[np.uint8], rows: int, cols: int
) -> dict[str, npt.NDArray[Any]]:
    """Return the planes of rows stored as blocks.

    Args:
        kind: a block type (not a plain one).
        raw: the stored bytes of ``rows`` whole rows, contiguous.
        rows: how many rows.
        cols: columns, a multiple of the block.

    Returns:
        New arrays by role, shaped as the encoding's planes are stored.
    """
    planes: dict[str, npt.NDArray[Any]] = {}
    for plane in kind.encoding:
        if plane.is_table:
            planes[plane.role] = CODEBOOK
        else:
            dtype, shape = plane.storage(rows, cols)
            planes[plane.role] = np.empty(shape, dtype)
    gguf_native.split(kind.id, raw.reshape(-1, kind.block_bytes), planes)
    return planes
