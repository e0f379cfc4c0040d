"""A safetensors writer for tests: it writes what it is told, right or wrong."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


def raw_file(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """Return a file with any header bytes."""
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype: Any, shape: Any, first: Any, last: Any) -> dict[str, Any]:
    """Return a directory entry."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


def write(path: Path, arrays: dict[str, Any], metadata: dict[str, str] | None = None) -> Path:
    """Write arrays in order and return the path."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = entry(
            NAMES[str(array.dtype)], list(array.shape), len(data), len(data) + len(raw)
        )
        data += raw
    path.write_bytes(raw_file(json.dumps(header).encode(), data))
    return path


def write_folder(folder: Path, config: Any, parts: dict[str, dict[str, Any]]) -> Path:
    """Write a checkpoint folder: config.json, and one file or an index of several."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for part, arrays in parts.items():
        write(folder / part, arrays)
    if list(parts) != ["model.safetensors"]:
        weight_map = {name: part for part, arrays in parts.items() for name in arrays}
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
