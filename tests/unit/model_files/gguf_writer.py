"""A GGUF writer for tests: it writes what it is told, right or wrong."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CODES = {
    "u8": (0, "B"),
    "i8": (1, "b"),
    "u16": (2, "H"),
    "i16": (3, "h"),
    "u32": (4, "I"),
    "i32": (5, "i"),
    "f32": (6, "f"),
    "bool": (7, "?"),
    "str": (8, ""),
    "u64": (10, "Q"),
    "i64": (11, "q"),
    "f64": (12, "d"),
}


def text(value: str | bytes) -> bytes:
    """Return a counted string."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def typed(kind: str, value: Any) -> bytes:
    """Return a typed value; ``[kind]`` is an array."""
    if kind.startswith("["):
        inner = kind[1:-1]
        head = struct.pack("<IIQ", 9, CODES[inner][0], len(value))
        return head + b"".join(bare(inner, item) for item in value)
    return struct.pack("<I", CODES[kind][0]) + bare(kind, value)


def bare(kind: str, value: Any) -> bytes:
    """Return a value without its type."""
    return text(value) if kind == "str" else struct.pack(f"<{CODES[kind][1]}", value)


@dataclass
class Tensor:
    """A directory entry: dims in GGUF's order, type number, bytes, and what to override."""

    name: str | bytes
    dims: Sequence[int]
    kind: int
    data: bytes
    offset: int | None = None
    num_dims: int | None = None


@dataclass
class Gguf:
    """A file to write; the fields named ``num_...`` override the true counts."""

    keys: list[tuple[str | bytes, bytes]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    alignment: int = 32
    num_keys: int | None = None
    num_tensors: int | None = None

    def key(self, name: str, kind: str, value: Any) -> "Gguf":
        """Add a typed key."""
        self.keys.append((name, typed(kind, value)))
        return self

    def tensor(self, *args: Any, **overrides: Any) -> "Gguf":
        """Add a tensor."""
        self.tensors.append(Tensor(*args, **overrides))
        return self

    def build(self) -> bytes:
        """Return the bytes of the file."""
        num_tensors = len(self.tensors) if self.num_tensors is None else self.num_tensors
        num_keys = len(self.keys) if self.num_keys is None else self.num_keys
        head = self.magic + struct.pack("<IQQ", self.version, num_tensors, num_keys)
        head += b"".join(text(name) + value for name, value in self.keys)
        data = b""
        for entry in self.tensors:
            data += bytes(-len(data) % self.alignment)
            offset = len(data) if entry.offset is None else entry.offset
            num_dims = len(entry.dims) if entry.num_dims is None else entry.num_dims
            head += text(entry.name) + struct.pack("<I", num_dims)
            head += struct.pack(f"<{len(entry.dims)}Q", *entry.dims)
            head += struct.pack("<IQ", entry.kind, offset)
            data += entry.data
        return head + bytes(-len(head) % self.alignment) + data

    def write(self, path: Path) -> Path:
        """Write the file and return its path."""
        path.write_bytes(self.build())
        return path
