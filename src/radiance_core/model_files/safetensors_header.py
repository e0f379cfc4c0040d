"""The head of a safetensors file.

    u64 header bytes | JSON {name: {dtype, shape, data_offsets}, "__metadata__": {str: str}} | data

Offsets count from the start of the data; the entries must cover it in order without gap or
overlap, as the format's own specification demands.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from radiance_abi.dtypes import dtype
from radiance_core.model_files.errors import ModelFileError
from radiance_core.model_files.json_text import MAX_JSON_BYTES, parse_object
from radiance_core.model_files.mapping import MappedFile

MAX_DIMS = 8
MAX_NAME_BYTES = 1024

DTYPES: Final[Mapping[str, str]] = {
    "F64": "f64",
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "F8_E4M3": "fp8_e4m3",
    "F8_E5M2": "fp8_e5m2",
    "F8_E8M0": "e8m0",
    "I64": "i64",
    "I32": "i32",
    "I16": "i16",
    "I8": "i8",
    "U64": "u64",
    "U32": "u32",
    "U16": "u16",
    "U8": "u8",
    "BOOL": "bool",
}
"""The format's dtypes that are read, and ours."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One entry of a file; ``offset`` counts from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """What the head of one file says."""

    metadata: Mapping[str, str]
    tensors: tuple[StoredTensor, ...]


def parse_header(file: MappedFile) -> SafetensorsHeader:
    """Read and check the head of a safetensors file.

    Raises:
        ModelFileError: any malformation, or a dtype that is not read.
    """
    path = file.path
    if file.size < 10:
        raise ModelFileError(path, f"expected at least 10 bytes, got {file.size}")
    length: int = struct.unpack_from("<Q", file.raw)[0]
    limit = min(file.size - 8, MAX_JSON_BYTES)
    if length > limit:
        raise ModelFileError(
            path, f"expected a header of at most {limit} bytes, got {length}; is it safetensors?"
        )
    text = file.raw[8 : 8 + length]
    if text[:1] != b"{":
        raise ModelFileError(path, f"expected a header that starts with '{{', got {text[:1]!r}")
    header = parse_object(text, path, "the header")
    metadata = _metadata(header.pop("__metadata__", {}), path)
    start, end = 8 + length, file.size
    tensors = [_entry(name, entry, path, start, end) for name, entry in header.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.nbytes))
    _check_layout(tensors, path, start, end)
    return SafetensorsHeader(metadata, tuple(tensors))


def _metadata(value: Any, path: Path) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise ModelFileError(path, "expected __metadata__ as strings by name, got something else")
    return value


def _entry(name: str, entry: Any, path: Path, start: int, end: int) -> StoredTensor:
    def error(what: str) -> ModelFileError:
        return ModelFileError(path, what, name)

    _check_name(name, path)
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        got = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        raise error(f"expected the fields dtype, shape and data_offsets, got {got!s:.200}")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in DTYPES:
        raise error(f"expected a dtype of {', '.join(DTYPES)}, got {entry['dtype']!r:.100}")
    if not _are_sizes(shape) or len(shape) > MAX_DIMS:
        raise error(f"expected a shape of at most {MAX_DIMS} integers >= 0, got {shape!r:.200}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise error(f"expected two data_offsets >= 0, got {offsets!r:.200}")
    element = dtype(DTYPES[entry["dtype"]])
    nbytes = element.bits // 8
    for extent in shape:
        nbytes *= extent
    first, last = offsets
    if last - first != nbytes:
        raise error(f"expected {nbytes} bytes of {entry['dtype']} {shape}, got {last - first}")
    if last > end - start:
        raise error(f"expected data that ends by {end - start}, got {last}; the file is cut short")
    return StoredTensor(name, element.name, tuple(shape), start + first, nbytes)


def _check_name(name: str, path: Path) -> None:
    try:
        length = len(name.encode())
    except UnicodeEncodeError as err:
        raise ModelFileError(path, f"expected names in UTF-8, got {name!r:.200}") from err
    if not 1 <= length <= MAX_NAME_BYTES:
        raise ModelFileError(path, f"expected names of 1 to {MAX_NAME_BYTES} bytes, got {length}")


def _are_sizes(value: Any) -> bool:
    # bool is an int in Python; 2**63 and above cannot be a size on any machine.
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item < 1 << 63 for item in value
    )


def _check_layout(tensors: list[StoredTensor], path: Path, start: int, end: int) -> None:
    at = start
    for tensor in tensors:
        if tensor.offset != at:
            fault = "overlap" if tensor.offset < at else "gap"
            raise ModelFileError(
                path,
                f"expected its data to start at {at - start} where the one before ends, "
                f"got {tensor.offset - start} ({fault})",
                tensor.name,
            )
        at += tensor.nbytes
    if at != end:
        raise ModelFileError(
            path, f"expected tensors to cover {end - start} bytes of data, got {at - start}"
        )
