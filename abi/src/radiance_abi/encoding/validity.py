"""The rules that make planes an encoding; every breach is named with both sides."""

import re
from typing import TYPE_CHECKING

from radiance_abi.errors import EncodingError

if TYPE_CHECKING:
    from radiance_abi.encoding.model import Encoding, Plane

MAX_NAME_BYTES = 23
MAX_PLANES = 8
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

_CHAIN = re.compile(r"(scale|min)(?:\.([1-9][0-9]?))?")
_TILED_ROLES = frozenset({"codes", "zero", "signs"})
_TABLE_ROLES = frozenset({"grid", "table", "t.perm", "t.scale", "t.pairs", "t.angle"})
_FWHT = re.compile(r"fwht([1-9][0-9]{0,9})")

# What each transform's tables must be: dtype, and extent rows where it is fixed.
_TRANSFORM_TABLES: dict[str, dict[str, tuple[str, int | None]]] = {
    "perm": {"t.perm": ("i32", 1)},
    "givens": {"t.pairs": ("i32", None), "t.angle": ("f32", None)},
}


def check_plane(plane: "Plane") -> None:
    """Refuse a plane that no scheme may have."""
    _check_name("plane role", plane.role)
    if plane.extent is not None:
        if len(plane.extent) != 2 or min(plane.extent) < 1:
            raise EncodingError(
                f"plane {plane.role}: expected a table of at least 1x1, got {plane.extent}"
            )
        if plane.block != (1, 1):
            raise EncodingError(
                f"plane {plane.role}: expected no block beside a table's extent, got {plane.block}"
            )
    if len(plane.block) != 2 or min(plane.block) < 0:
        raise EncodingError(
            f"plane {plane.role}: expected a block of two numbers >= 0, got {plane.block}"
        )


def check_encoding(encoding: "Encoding") -> None:
    """Refuse an encoding whose planes break the rules of every scheme or of its own."""
    scheme, planes = encoding.scheme, encoding.planes
    if not scheme and not planes and not encoding.transform:
        return
    _check_name("encoding scheme", scheme)
    if len(encoding.transform.encode()) > MAX_NAME_BYTES:
        raise EncodingError(
            f"encoding {scheme}: expected a transform of at most {MAX_NAME_BYTES} bytes, "
            f"got {encoding.transform!r}"
        )
    if not 1 <= len(planes) <= MAX_PLANES:
        raise EncodingError(
            f"encoding {scheme}: expected 1 to {MAX_PLANES} planes, got {len(planes)}"
        )
    roles = [plane.role for plane in planes]
    if roles[0] != "codes" or planes[0].is_table or planes[0].block[0] != 1:
        raise EncodingError(
            f"encoding {scheme}: expected tiled codes with one block row as the first plane, "
            f"got {roles[0]} {planes[0].extent or planes[0].block}"
        )
    twice = sorted({role for role in roles if roles.count(role) > 1})
    if twice:
        raise EncodingError(f"encoding {scheme}: expected each role once, got {twice[0]} twice")
    if scheme == "plain":
        _check_plain(encoding)
    elif scheme == "affine":
        _check_affine(encoding)


def fwht_group(transform: str) -> int | None:
    """Return N of ``fwhtN``, or None when the transform is another one."""
    match = _FWHT.fullmatch(transform)
    return int(match[1]) if match else None


def _check_plain(encoding: "Encoding") -> None:
    if len(encoding.planes) != 1 or encoding.planes[0].block != (1, 1) or encoding.transform:
        raise EncodingError(
            "encoding plain: expected only codes with block 1x1 and no transform, got planes "
            f"{[plane.role for plane in encoding.planes]} transform {encoding.transform!r}; "
            "use the scheme affine"
        )


def _check_affine(encoding: "Encoding") -> None:
    planes = {plane.role: plane for plane in encoding.planes}
    for plane in encoding.planes:
        _check_affine_role(plane, planes)
    codes, grid = planes["codes"], planes.get("grid")
    if len(planes) == 1 and not encoding.transform:
        raise EncodingError("encoding affine: expected more than codes, got none; spell it plain")
    width = grid.extent[1] if grid is not None and grid.extent is not None else 1
    if codes.block[1] != width:
        raise EncodingError(
            f"encoding affine: expected codes of block 1x{width} "
            f"({'the width of the grid' if grid else 'there is no grid'}), "
            f"got 1x{codes.block[1]}"
        )
    if grid is not None and "table" in planes:
        raise EncodingError("encoding affine: expected a grid or a table, got both")
    signs = planes.get("signs")
    if signs is not None and (signs.dtype != "u1" or signs.block != (1, 1)):
        raise EncodingError(
            f"encoding affine: expected signs u1[1x1], got {signs.dtype}{list(signs.block)}"
        )
    if (grid is not None or "table" in planes) and codes.element.dlpack_code != 1:
        raise EncodingError(
            f"encoding affine: expected unsigned codes to index a table, got {codes.dtype}"
        )
    _check_transform(encoding.transform, planes)


def _check_affine_role(plane: "Plane", planes: "dict[str, Plane]") -> None:
    chain = _CHAIN.fullmatch(plane.role)
    if plane.role not in (_TABLE_ROLES if plane.is_table else _TILED_ROLES) and not (
        chain and not plane.is_table
    ):
        kind = "table" if plane.is_table else "tiled"
        raise EncodingError(f"encoding affine: expected a known role, got {kind} {plane.role!r}")
    if chain and chain[2]:
        below = int(chain[2]) - 1
        needed = f"{chain[1]}.{below}" if below else chain[1]
        if needed not in planes:
            raise EncodingError(
                f"encoding affine: expected {needed} below {plane.role}, got no such plane"
            )


def _check_transform(transform: str, planes: "dict[str, Plane]") -> None:
    if not transform:
        return
    group = fwht_group(transform)
    if group is not None:
        if group < 2 or group & (group - 1):
            raise EncodingError(
                f"encoding affine: expected fwhtN with N a power of two >= 2, got {transform!r}"
            )
        return
    if transform not in _TRANSFORM_TABLES:
        raise EncodingError(
            f"encoding affine: expected a transform fwhtN, perm or givens, got {transform!r}"
        )
    for role, (dtype, rows) in _TRANSFORM_TABLES[transform].items():
        table = planes.get(role)
        if table is None or table.extent is None:
            raise EncodingError(f"encoding affine: expected a table {role} for {transform}")
        if table.dtype != dtype or (rows is not None and table.extent[0] != rows):
            raise EncodingError(
                f"encoding affine: expected {role} of {dtype}"
                f"{'' if rows is None else f' with {rows} row'}, "
                f"got {table.dtype} {table.extent}"
            )


def _check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name) or len(name) > MAX_NAME_BYTES:
        raise EncodingError(
            f"{what}: expected a name of 1 to {MAX_NAME_BYTES} letters, digits, '_' and '.', "
            f"got {name!r}"
        )
