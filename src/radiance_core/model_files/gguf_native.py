"""The C part of reading model files: what passes over every byte of a GGUF file, and a guard."""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from radiance_abi import native
from radiance_abi.errors import ConfigurationError

LIBRARY = "libradiance_gguf.so"
FIELDS = ("codes", "scale", "min", "scale.1", "min.1")
"""Roles of the planes that blocks have, in the order of ``RadGgufPlanes``."""


def split(
    type_id: int, blocks: npt.NDArray[np.uint8], planes: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Write what blocks contribute to planes.

    Args:
        type_id: GGUF's number of a type whose blocks are read.
        blocks: uint8 [n, bytes of a block], contiguous.
        planes: by role, contiguous, with room for n blocks.
    """
    ffi, c = library()
    out = ffi.new("RadGgufPlanes *")
    for role in FIELDS:
        if role in planes:
            # As bytes, since not every dtype of numpy can be told through a buffer.
            raw = planes[role].view(np.uint8)
            setattr(out, role.replace(".", ""), ffi.from_buffer("uint8_t[]", raw))
    status = c.rad_gguf_split(type_id, ffi.from_buffer("uint8_t[]", blocks), len(blocks), out)
    assert status == 0, f"type {type_id} has blocks that are read"


def strings(data: Any, at: int, count: int) -> tuple[bytearray, int] | None:
    """Read counted strings; return them, each with a NUL behind it, and where the last one ends.

    None when one of them passes the end of ``data`` or holds a NUL itself.
    """
    ffi, c = library()
    held = ffi.from_buffer("uint8_t[]", data)
    end = c.rad_gguf_strings(held, at, len(data), count, ffi.NULL)
    if end < 0:
        return None
    # Each string's eight bytes of length become one NUL.
    joined = bytearray(end - at - 7 * count)
    c.rad_gguf_strings(held, at, end, count, ffi.from_buffer("uint8_t[]", joined))
    return joined, end


def guard(mapped: Any, words: str) -> Callable[[], None]:
    """Have the process end with some words when it reads past the end of a mapped file.

    Args:
        mapped: the mapping, while whose file was shortened.
        words: a whole line, with its end.

    Returns:
        What is to be called when the mapping goes away.
    """
    ffi, c = library()
    first = ffi.cast("uint8_t *", ffi.from_buffer("uint8_t[]", mapped))
    if c.rad_map_guard(first, len(mapped), words.encode("utf-8", "surrogateescape")):
        raise MemoryError("guarding a mapped file")
    return partial(c.rad_map_forget, first)


@lru_cache(maxsize=1)
def library() -> tuple[Any, Any]:
    """Return cffi's view of gguf_native.h, and the shared object.

    Raises:
        ConfigurationError: there is no such object.
    """
    from radiance_core.model_files import parsed_header

    header = Path(__file__).with_name("gguf_native.h")
    declared = native.declarations(header.read_text(encoding="utf-8"))
    ffi = native.parsed(declared, parsed_header, f"python -m radiance_abi parse {header}")
    path = header.with_name(LIBRARY)
    try:
        return ffi, ffi.dlopen(str(path))
    except OSError as error:
        raise ConfigurationError(
            f"GGUF: expected the shared object {path}, got: {error}; install radiance from a "
            "wheel, or build it in a checkout with: pip install --no-build-isolation -e ."
        ) from error
