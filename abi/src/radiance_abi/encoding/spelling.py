"""The spelling of encodings that people, logs and recipes use; it reads back what it writes.

encoding := plain | simple | general, then optionally "/" transform
plain    := dtype                                          bf16
simple   := dtype ("*" dtype block)+ ["-" dtype block]     i4*bf16[1x128]/fwht128
general  := scheme ":" plane ("," plane)*                  affine:codes=u4[1x1],min=f16[1x32]
plane    := role "=" dtype (block | "{" rows "x" cols "}")
block    := "[" ext "x" ext "]", "*" for the whole extent
"""

import re

from radiance_abi.dtypes import ALIASES, DTYPES
from radiance_abi.encoding.model import Encoding, Plane
from radiance_abi.errors import EncodingError

NONE = "(none)"
_MAX_TEXT = 1024

_EXT = r"(\d{1,18}|\*)"
_BLOCK = rf"\[{_EXT}x{_EXT}\]"
_DTYPE = r"([a-z][a-z0-9_]*)"
_LEVEL = re.compile(rf"([*-]){_DTYPE}{_BLOCK}")
_PLANE = re.compile(
    rf"([A-Za-z_][A-Za-z0-9_.]*)={_DTYPE}(?:{_BLOCK}|\{{(\d{{1,18}})x(\d{{1,18}})\}})"
)
_HEAD = re.compile(_DTYPE)


def spell(encoding: Encoding) -> str:
    """Return the shortest spelling of an encoding."""
    if not encoding.planes:
        return NONE
    text = _spell_short(encoding)
    if text is None:
        planes = ",".join(f"{p.role}={p.dtype}{_extents(p)}" for p in encoding.planes)
        text = f"{encoding.scheme}:{planes}"
    return f"{text}/{encoding.transform}" if encoding.transform else text


def parse(text: str) -> Encoding:
    """Return the encoding of a spelling.

    Raises:
        EncodingError: the text breaks the grammar, or spells an encoding that is not valid.
    """
    if text == NONE:
        return Encoding("", ())
    if len(text) > _MAX_TEXT:
        raise EncodingError(
            f"encoding: expected a spelling of at most {_MAX_TEXT} characters, got {len(text)}"
        )
    body, slash, transform = text.partition("/")
    if slash and not transform:
        raise EncodingError(f"encoding {text!r}: expected a transform after '/', got nothing")
    scheme, colon, planes = body.partition(":")
    if colon:
        return Encoding(scheme, tuple(_parse_planes(planes, text)), transform)
    return _parse_short(body, transform, text)


def _spell_short(encoding: Encoding) -> str | None:
    """Spell plain and simple forms; None when only the general form says it all."""
    codes, *rest = encoding.planes
    if encoding.scheme not in ("plain", "affine") or codes.block != (1, 1):
        return None
    text = codes.dtype
    levels = encoding.chain("scale")
    text += "".join(f"*{plane.dtype}{_extents(plane)}" for plane in levels)
    zero = encoding.find("zero")
    expected = [*levels]
    if zero is not None and levels:
        expected.append(zero)
        text += f"-{zero.dtype}{_extents(zero)}"
    return text if rest == expected else None


def _extents(plane: Plane) -> str:
    if plane.extent is not None:
        return f"{{{plane.extent[0]}x{plane.extent[1]}}}"
    rows, cols = (str(ext) if ext else "*" for ext in plane.block)
    return f"[{rows}x{cols}]"


def _parse_short(body: str, transform: str, text: str) -> Encoding:
    head = _HEAD.match(body)
    if head is None or (head[1] not in DTYPES and head[1] not in ALIASES):
        got = repr(head[1]) if head else "no dtype"
        raise EncodingError(f"encoding {text!r}: expected a dtype or 'scheme:' first, got {got}")
    planes = [Plane("codes", head[1])]
    at, scales = head.end(), 0
    while at < len(body):
        level = _LEVEL.match(body, at)
        if level is None or planes[-1].role == "zero" or (level[1] == "-" and not scales):
            raise EncodingError(
                f"encoding {text!r}: expected '*dtype[RxC]' or a last '-dtype[RxC]', "
                f"got {body[at:]!r}"
            )
        role = "zero" if level[1] == "-" else f"scale.{scales}" if scales else "scale"
        scales += level[1] == "*"
        planes.append(Plane(role, level[2], _block(level[3], level[4])))
        at = level.end()
    scheme = "affine" if transform or len(planes) > 1 else "plain"
    return Encoding(scheme, tuple(planes), transform)


def _parse_planes(body: str, text: str) -> list[Plane]:
    planes = []
    for part in body.split(","):
        match = _PLANE.fullmatch(part)
        if match is None:
            raise EncodingError(
                f"encoding {text!r}: expected 'role=dtype[RxC]' or 'role=dtype{{RxC}}', "
                f"got {part!r}"
            )
        if match[5] is not None:
            planes.append(Plane(match[1], match[2], extent=(int(match[5]), int(match[6]))))
        else:
            planes.append(Plane(match[1], match[2], _block(match[3], match[4])))
    return planes


def _block(rows: str, cols: str) -> tuple[int, int]:
    return (0 if rows == "*" else int(rows), 0 if cols == "*" else int(cols))
