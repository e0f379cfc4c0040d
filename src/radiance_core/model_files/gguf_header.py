"""The head of a GGUF file: key/values and tensor directory, every count checked before use.

    "GGUF" | u32 version | u64 tensors | u64 key/values | key/values | tensor infos | pad | data

All sizes are Python integers, which do not wrap, and are compared with the bytes that are left
before anything is built from them.
"""

import itertools
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radiance_core.model_files.errors import ModelFileError
from radiance_core.model_files.gguf_keys import check_keys
from radiance_core.model_files.gguf_types import OTHER_TYPES, TYPES, GgufType, supported_names
from radiance_core.model_files.gguf_values import Cursor, read_value

MAX_NAME_BYTES = 255
MAX_KEY_BYTES = 65535
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 20


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One entry of the directory; ``offset`` counts from the start of the file."""

    name: str
    shape: tuple[int, ...]
    kind: GgufType
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What the head of one file says; ``types`` has each key's type, such as ``[str]``."""

    version: int
    metadata: Mapping[str, Any]
    types: Mapping[str, str]
    tensors: tuple[GgufTensor, ...]


def parse_header(data: mmap.mmap, file: Path) -> GgufHeader:
    """Read and check the head of a GGUF file.

    Raises:
        ModelFileError: any malformation, or a tensor type that is not read.
    """
    cursor = Cursor(data, file)
    version = _preamble(cursor)
    num_tensors = cursor.number("Q", "the tensor count")
    num_keys = cursor.number("Q", "the key count")
    left = cursor.end - cursor.at
    # A key takes at least 13 bytes (length, one letter, type), a tensor at least 33.
    for count, least, what in ((num_keys, 13, "keys"), (num_tensors, 33, "tensors")):
        if count * least > left:
            raise cursor.error(
                f"expected at most {left // least} {what} in the {left} bytes left, got {count}"
            )
    metadata: dict[str, Any] = {}
    types: dict[str, str] = {}
    for _ in range(num_keys):
        key = cursor.text(MAX_KEY_BYTES, "a key")
        if not key or key in metadata:
            raise cursor.error(f"expected each key once and none empty, got {key!r} again")
        types[key], metadata[key] = read_value(cursor, key)
    check_keys(metadata, types, file)
    alignment = metadata.get("general.alignment", 32)
    if not 8 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise cursor.error(
            f"expected general.alignment as a power of two from 8 to {MAX_ALIGNMENT}, "
            f"got {alignment}"
        )
    entries = [_entry(cursor) for _ in range(num_tensors)]
    start = -(-cursor.at // alignment) * alignment
    tensors = tuple(_place(cursor, entry, start, alignment) for entry in entries)
    _check_layout(cursor, tensors)
    return GgufHeader(version, metadata, types, tensors)


def _preamble(cursor: Cursor) -> int:
    cursor.need(24, "the head of a GGUF file")
    magic = cursor.data[:4]
    if magic != b"GGUF":
        raise cursor.error(f"expected a GGUF file that starts with b'GGUF', got {magic!r}")
    cursor.at = 4
    version: int = cursor.number("I", "the version")
    if version not in (2, 3):
        order = " (the file is big-endian)" if version and not version & 0xFFFF else ""
        raise cursor.error(f"expected GGUF version 2 or 3, got {version}{order}; convert it again")
    return version


@dataclass(frozen=True, slots=True)
class _Entry:
    """A directory entry as stored; ``offset`` counts from the start of the data."""

    name: str
    dims: tuple[int, ...]
    kind: GgufType
    offset: int


def _entry(cursor: Cursor) -> _Entry:
    name = cursor.text(MAX_NAME_BYTES, "a tensor name")
    num_dims = cursor.number("I", f"the dimensions of {name!r}")
    if not 1 <= num_dims <= MAX_DIMS:
        raise ModelFileError(
            cursor.file, f"expected 1 to {MAX_DIMS} dimensions, got {num_dims}", name
        )
    dims = tuple(cursor.number("Q", f"the extents of {name!r}") for _ in range(num_dims))
    kind_id = cursor.number("I", f"the type of {name!r}")
    offset = cursor.number("Q", f"the offset of {name!r}")
    kind = TYPES.get(kind_id)
    if kind is None:
        got = OTHER_TYPES.get(kind_id, "an unknown type")
        raise ModelFileError(
            cursor.file,
            f"expected one of the types {supported_names()}, got {got} ({kind_id}); "
            "use a file quantised with one of those",
            name,
        )
    return _Entry(name, dims, kind, offset)


def _place(cursor: Cursor, entry: _Entry, start: int, alignment: int) -> GgufTensor:
    """Check an entry's extents and offset against the file, and give it its place in it."""
    kind, dims = entry.kind, entry.dims

    def error(what: str) -> ModelFileError:
        return ModelFileError(cursor.file, what, entry.name)

    if min(dims) < 1:
        raise error(f"expected extents of at least 1, got {list(dims)}")
    if dims[0] % kind.block:
        raise error(f"expected rows of whole {kind.name} blocks of {kind.block}, got {dims[0]}")
    nbytes = kind.row_bytes(dims[0])
    for extent in dims[1:]:
        nbytes *= extent
    if entry.offset % alignment:
        raise error(f"expected an offset that is a multiple of {alignment}, got {entry.offset}")
    left = max(cursor.end - start, 0)
    if entry.offset + nbytes > left:
        raise error(
            f"expected its {nbytes} bytes at offset {entry.offset} to end by {left}, "
            f"got {entry.offset + nbytes}; the file is cut short or damaged"
        )
    return GgufTensor(entry.name, dims[::-1], kind, start + entry.offset, nbytes)


def _check_layout(cursor: Cursor, tensors: tuple[GgufTensor, ...]) -> None:
    """Refuse two tensors of one name, and tensors that share bytes."""
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise ModelFileError(cursor.file, "expected each name once, got it twice", tensor.name)
        seen.add(tensor.name)
    placed = sorted(tensors, key=lambda tensor: tensor.offset)
    for before, after in itertools.pairwise(placed):
        if after.offset < before.offset + before.nbytes:
            raise ModelFileError(
                cursor.file,
                f"expected it to start after {before.name!r} ends at "
                f"{before.offset + before.nbytes}, got {after.offset}",
                after.name,
            )
