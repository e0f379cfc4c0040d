"""A GGUF model, in one file or in the numbered files of a split one."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from radiance_core.model_files.checkpoint import Planes, TensorInfo, view_rows
from radiance_core.model_files.errors import ModelFileError
from radiance_core.model_files.gguf_blocks import split_blocks
from radiance_core.model_files.gguf_header import GgufHeader, GgufTensor, parse_header
from radiance_core.model_files.gguf_layout import Blocks, GgufBatch
from radiance_core.model_files.mapping import MappedFile
from radiance_core.model_files.rows import check_rows

_SPLIT_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_SPLIT_KEYS = ("split.no", "split.count", "split.tensors.count")
MAX_SPLITS = 4096


class GgufCheckpoint:
    """An open GGUF model; see ``Checkpoint`` for the contract.

    Args:
        path: the file, or the first file of a split model.

    Raises:
        ModelFileError: a malformed file, a tensor type that is not read, a part of a split model
            that is missing or does not belong.
    """

    format: Literal["gguf"] = "gguf"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, tuple[MappedFile, GgufTensor]] = {}
        first = MappedFile(path)
        header = parse_header(first.raw, path)
        self._files = [first]
        self._add(first, header)
        self._open_rest(header)
        self.metadata: Mapping[str, Any] = MappingProxyType(dict(header.metadata))
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {
                name: TensorInfo(
                    name, entry.shape, entry.kind.encoding, file.path, entry.offset, entry.nbytes
                )
                for name, (file, entry) in self._entries.items()
            }
        )
        self.total_bytes = sum(info.nbytes for info in self.tensors.values())

    def read(self, name: str, first_row: int = 0, last_row: int | None = None) -> Planes:
        """Return the planes of a range of rows; plain tensors are views of the mapping."""
        file, entry = self._find(name)
        info = self.tensors[name]
        first, last = check_rows(info, first_row, last_row)
        row_bytes = entry.kind.row_bytes(info.cols)
        raw = file.view(entry.offset + first * row_bytes, (last - first) * row_bytes)
        if info.encoding.is_plain:
            return {"codes": view_rows(raw, info, "codes", last - first)}
        return split_blocks(entry.kind, raw, last - first, info.cols)

    def batch(self) -> GgufBatch:
        """Return what lays weights out from their blocks, without any yet."""
        return GgufBatch(self._blocks)

    def _blocks(self, name: str) -> Blocks:
        file, entry = self._find(name)
        cols = self.tensors[name].cols
        return Blocks(entry.kind, cols, file.view(entry.offset, entry.nbytes))

    def release(self, name: str) -> None:
        """Drop the tensor's pages from resident memory."""
        file, entry = self._find(name)
        file.release(entry.offset, entry.nbytes)

    def side_file(self, name: str) -> bytes | None:  # noqa: ARG002 - the contract's argument
        """Return None: everything a GGUF model has is in its metadata."""
        return None

    def check_unchanged(self) -> None:
        """Require that no file has been written to since it was opened."""
        for file in self._files:
            file.check_unchanged()

    def close(self) -> None:
        """Let the files go."""
        for file in self._files:
            file.close()

    def _find(self, name: str) -> tuple[MappedFile, GgufTensor]:
        if name not in self._entries:
            raise ModelFileError(
                self.path, f"expected one of its {len(self._entries)} tensors, got no such", name
            )
        return self._entries[name]

    def _add(self, file: MappedFile, header: GgufHeader) -> None:
        for tensor in header.tensors:
            if tensor.name in self._entries:
                other = self._entries[tensor.name][0].path.name
                raise ModelFileError(
                    file.path, f"expected each name in one part, got it in {other} too", tensor.name
                )
            self._entries[tensor.name] = (file, tensor)

    def _open_rest(self, header: GgufHeader) -> None:
        """Open the other parts of a split model and check that all of it is there."""
        count = header.metadata.get("split.count", 1)
        if count == 1 or not any(key in header.metadata for key in _SPLIT_KEYS):
            return
        match = _SPLIT_NAME.fullmatch(self.path.name)
        if match is None or not 1 <= count <= MAX_SPLITS or int(match[3]) != count:
            raise ModelFileError(
                self.path,
                f"expected the name NAME-00001-of-{count:05d}.gguf for a model of {count} parts "
                f"(at most {MAX_SPLITS}), got {self.path.name!r}",
            )
        self._check_part(header, 0, count, self.path)
        for number in range(1, count):
            part = self.path.with_name(f"{match[1]}-{number + 1:05d}-of-{count:05d}.gguf")
            file = MappedFile(part)
            self._files.append(file)
            part_header = parse_header(file.raw, part)
            self._check_part(part_header, number, count, part)
            self._add(file, part_header)
        total = header.metadata.get("split.tensors.count", len(self._entries))
        if total != len(self._entries):
            raise ModelFileError(
                self.path,
                f"expected {total} tensors in {count} parts, got {len(self._entries)}",
            )

    def _check_part(self, header: GgufHeader, number: int, count: int, part: Path) -> None:
        got = header.metadata.get("split.no"), header.metadata.get("split.count")
        if got != (number, count):
            hint = "; open the first part" if part == self.path else ""
            raise ModelFileError(
                part, f"expected part {number} of {count}, got part {got[0]} of {got[1]}{hint}"
            )
