"""Short ways to write the usual encodings."""

from collections.abc import Mapping, Sequence
from typing import Any

from radiance_abi.encoding.model import Encoding, Plane
from radiance_abi.errors import EncodingError

PlaneSpec = str | tuple[str, int, int]
"""A plane as an argument: a dtype name (block 1x1) or (dtype, block rows, block cols)."""


def plain(dtype_name: str) -> Encoding:
    """Return the encoding whose codes are the values."""
    return Encoding("plain", (Plane("codes", dtype_name),))


def affine(
    codes: PlaneSpec,
    scale: PlaneSpec | Sequence[PlaneSpec] = (),
    *,
    zero: PlaneSpec | None = None,
    min: PlaneSpec | Sequence[PlaneSpec] = (),  # noqa: A002 - the role's own name
    signs: bool = False,
    table: PlaneSpec | None = None,
    grid: PlaneSpec | None = None,
    transform: str = "",
    transform_tables: Mapping[str, tuple[str, int, int]] | None = None,
) -> Encoding:
    """Return an affine encoding with planes in the usual order.

    A plane is given as a dtype name (block 1x1) or as (dtype, block rows, block cols); ``scale``
    and ``min`` take a list of those for chains. ``table``, ``grid`` and the transform's tables are
    (dtype, rows, cols) with extents in elements. The order is codes, scale levels, zero, min
    levels, signs, table, grid, transform tables.

    Raises:
        EncodingError: the planes do not form a valid affine encoding.
    """
    planes = [_tiled("codes", codes), *_chain("scale", scale)]
    if zero is not None:
        planes.append(_tiled("zero", zero))
    planes.extend(_chain("min", min))
    if signs:
        planes.append(Plane("signs", "u1"))
    for role, spec in (("table", table), ("grid", grid), *(transform_tables or {}).items()):
        if spec is not None:
            planes.append(_own_extent(role, spec))
    return Encoding("affine", tuple(planes), transform)


def _tiled(role: str, spec: PlaneSpec) -> Plane:
    if isinstance(spec, str):
        return Plane(role, spec)
    name, block_rows, block_cols = spec
    return Plane(role, name, (block_rows, block_cols))


def _own_extent(role: str, spec: PlaneSpec) -> Plane:
    if isinstance(spec, str):
        raise EncodingError(f"plane {role}: expected (dtype, rows, cols), got {spec!r}")
    name, rows, cols = spec
    return Plane(role, name, extent=(rows, cols))


def _chain(role: str, specs: PlaneSpec | Sequence[PlaneSpec]) -> list[Plane]:
    levels: list[Any] = [specs] if _is_one(specs) else list(specs)
    return [_tiled(f"{role}.{level}" if level else role, spec) for level, spec in enumerate(levels)]


def _is_one(specs: PlaneSpec | Sequence[PlaneSpec]) -> bool:
    """Tell one plane from a chain: a name, or a tuple whose second item is a block size."""
    return isinstance(specs, str) or (len(specs) == 3 and isinstance(specs[1], int))
