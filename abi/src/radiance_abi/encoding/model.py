"""Plane and Encoding: frozen descriptions that are valid from the moment they exist."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from radiance_abi.dtypes import DType, dtype
from radiance_abi.encoding import validity
from radiance_abi.errors import EncodingError


@dataclass(frozen=True, slots=True)
class Plane:
    """One dense row-major array of an encoding.

    Args:
        role: what decoding does with it: codes, scale, scale.1, zero, min, signs, table, ...
        dtype: name of a core dtype; aliases are replaced by the name.
        block: for a tiled plane, how many (rows, cols) of the weight one element covers;
            0 means the whole extent. Tables keep the default.
        extent: None for a tiled plane; (rows, cols) in elements for a table, which has its own
            size and which every slice of the weight carries whole.

    Raises:
        EncodingError: unknown dtype, empty or overlong role, negative block, empty table.
    """

    role: str
    dtype: str
    block: tuple[int, int] = (1, 1)
    extent: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype(self.dtype).name)
        object.__setattr__(self, "block", tuple(self.block))
        if self.extent is not None:
            object.__setattr__(self, "extent", tuple(self.extent))
        validity.check_plane(self)

    @property
    def is_table(self) -> bool:
        """Say whether the plane has its own extents instead of tiling the weight."""
        return self.extent is not None

    @property
    def element(self) -> DType:
        """Return the plane's dtype."""
        return dtype(self.dtype)

    def shape(self, rows: int, cols: int) -> tuple[int, int]:
        """Return the plane's (rows, cols) in elements for a weight of rows x cols."""
        if self.extent is not None:
            return self.extent
        block_rows, block_cols = self.block
        return (
            -(-rows // block_rows) if block_rows else min(rows, 1),
            -(-cols // block_cols) if block_cols else min(cols, 1),
        )

    def storage(self, rows: int, cols: int) -> tuple["np.dtype[Any]", tuple[int, int]]:
        """Return dtype and shape of the array that holds the plane.

        Bit-stream dtypes are held as uint8 ``[plane rows, row bytes]``, others as typed items.
        """
        plane_rows, plane_cols = self.shape(rows, cols)
        element = self.element
        if element.numpy is None:
            return np.dtype(np.uint8), (plane_rows, element.row_bytes(plane_cols))
        return element.numpy, (plane_rows, plane_cols)


@dataclass(frozen=True, slots=True)
class Encoding:
    """What the stored numbers of a weight are; a property of the model, not of a kernel.

    Two encodings are equal when every field is, the order of planes included. The encoding
    without scheme and planes means "nothing is stored" and prints ``(none)``.

    Args:
        scheme: ``plain`` (the code is the value), ``affine`` (decoded by ``decode``), or the name
            of a quantiser's own scheme.
        planes: 1 to 8 planes, codes first.
        transform: "" or what was applied to each row before it was stored.

    Raises:
        EncodingError: the planes break a rule of the scheme.
    """

    scheme: str
    planes: tuple[Plane, ...]
    transform: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "planes", tuple(self.planes))
        validity.check_encoding(self)

    def __str__(self) -> str:
        from radiance_abi.encoding.spelling import spell

        return spell(self)

    def __iter__(self) -> Iterator[Plane]:
        return iter(self.planes)

    @classmethod
    def parse(cls, text: str) -> "Encoding":
        """Read the spelling that ``str`` writes.

        Raises:
            EncodingError: the text does not follow the grammar or the result is not valid.
        """
        from radiance_abi.encoding.spelling import parse

        return parse(text)

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles in plane order."""
        return tuple(plane.role for plane in self.planes)

    @property
    def is_plain(self) -> bool:
        """Say whether the stored codes are the values themselves."""
        return self.scheme == "plain"

    @property
    def codes(self) -> Plane:
        """Return the codes plane."""
        return self.plane("codes")

    def find(self, role: str) -> Plane | None:
        """Return the plane of a role, or None."""
        return next((plane for plane in self.planes if plane.role == role), None)

    def plane(self, role: str) -> Plane:
        """Return the plane of a role.

        Raises:
            EncodingError: the encoding has no such plane.
        """
        found = self.find(role)
        if found is None:
            raise EncodingError(
                f"encoding {self}: expected one of the planes {', '.join(self.roles)}, got {role!r}"
            )
        return found

    def chain(self, role: str) -> tuple[Plane, ...]:
        """Return the levels ``role``, ``role.1``, ``role.2`` ... in order, maybe none."""
        levels: list[Plane] = []
        level = self.find(role)
        while level is not None:
            levels.append(level)
            level = self.find(f"{role}.{len(levels)}")
        return tuple(levels)

    def plane_shape(self, role: str, rows: int, cols: int) -> tuple[int, int]:
        """Return (rows, cols) in elements of a plane for a weight of rows x cols."""
        return self.plane(role).shape(rows, cols)

    def plane_bytes(self, role: str, rows: int, cols: int) -> int:
        """Return the bytes of a plane for a weight of rows x cols."""
        plane = self.plane(role)
        plane_rows, plane_cols = plane.shape(rows, cols)
        return plane_rows * plane.element.row_bytes(plane_cols)

    def total_bytes(self, rows: int, cols: int) -> int:
        """Return the bytes of all planes for a weight of rows x cols."""
        return sum(self.plane_bytes(role, rows, cols) for role in self.roles)

    @property
    def block_rows(self) -> int:
        """Return the rows at whose multiples all tiled planes can be cut; 0 when they cannot."""
        blocks = [plane.block[0] for plane in self.planes if not plane.is_table]
        return math.lcm(*blocks) if all(blocks) else 0

    @property
    def block_cols(self) -> int:
        """Return the columns at whose multiples all tiled planes can be cut; 0 when they cannot."""
        blocks = [plane.block[1] for plane in self.planes if not plane.is_table]
        return math.lcm(*blocks) if all(blocks) else 0


def rows_and_cols(shape: Sequence[int]) -> tuple[int, int]:
    """Return how a weight is viewed: product of all but the last extent, and the last."""
    return (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)
