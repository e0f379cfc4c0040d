"""A safetensors checkpoint: one file, or a folder with one file or an index of several."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from radiance_abi.encoding import Encoding, plain
from radiance_core.model_files import block_scales, quark
from radiance_core.model_files.checkpoint import Planes, TensorInfo, view_rows
from radiance_core.model_files.errors import ModelFileError
from radiance_core.model_files.folder import (
    INDEX,
    SINGLE,
    has_file,
    read_config,
    read_index,
    read_side_file,
)
from radiance_core.model_files.mapping import MappedFile
from radiance_core.model_files.rows import check_rows
from radiance_core.model_files.safetensors_header import StoredTensor, parse_header


@dataclass(frozen=True, slots=True)
class _Piece:
    """The stored entry of one plane and the file it is in."""

    file: MappedFile
    stored: StoredTensor


class SafetensorsCheckpoint:
    """An open safetensors checkpoint; see ``Checkpoint`` for the contract.

    Args:
        path: a .safetensors file, or a folder with config.json and model.safetensors or
            model.safetensors.index.json.

    Raises:
        ModelFileError: a malformed file, a missing part, a tensor in another part than the index
            says, scales that do not fit their codes, or weights that Quark stored in a way that is
            not read.
    """

    format: Literal["safetensors"] = "safetensors"

    def __init__(self, path: Path) -> None:
        self.path = path
        is_folder = path.is_dir()
        self._folder = path if is_folder else path.parent
        config = read_config(self._folder, required=is_folder)
        self.metadata: Mapping[str, Any] = MappingProxyType(config)
        self._files: list[MappedFile] = []
        entries = self._open_folder() if is_folder else self._open_file(path)
        if quark.is_quark(config, self._folder / "config.json"):
            self._pieces = _group_quark(entries)
        else:
            self._pieces = _group(entries, config)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {name: _describe(name, *weight) for name, weight in self._pieces.items()}
        )
        self.total_bytes = sum(info.nbytes for info in self.tensors.values())

    def read(self, name: str, first_row: int = 0, last_row: int | None = None) -> Planes:
        """Return the planes of a range of rows as views of the mapping."""
        encoding, pieces = self._find(name)
        info = self.tensors[name]
        first, last = check_rows(info, first_row, last_row)
        planes: Planes = {}
        for plane in encoding:
            piece = pieces[plane.role]
            block = plane.block[0]
            plane_first = first // block if block else 0
            num_rows, num_cols = plane.shape(last - first, info.cols)
            row_bytes = plane.element.row_bytes(num_cols)
            raw = piece.file.view(
                piece.stored.offset + plane_first * row_bytes, num_rows * row_bytes
            )
            planes[plane.role] = view_rows(raw, info, plane.role, last - first)
        return planes

    def batch(self) -> None:
        """Return None: C does not read the format."""

    def release(self, name: str) -> None:
        """Drop the tensor's pages from resident memory."""
        for piece in self._find(name)[1].values():
            piece.file.release(piece.stored.offset, piece.stored.nbytes)

    def side_file(self, name: str) -> bytes | None:
        """Return a file that lies beside the weights, or None."""
        return read_side_file(self._folder, name)

    def check_unchanged(self) -> None:
        """Require that no file has been written to since it was opened."""
        for file in self._files:
            file.check_unchanged()

    def close(self) -> None:
        """Let the files go."""
        for file in self._files:
            file.close()

    def _find(self, name: str) -> tuple[Encoding, dict[str, _Piece]]:
        if name not in self._pieces:
            raise ModelFileError(
                self.path, f"expected one of its {len(self._pieces)} tensors, got no such", name
            )
        return self._pieces[name]

    def _open_file(self, path: Path) -> dict[str, _Piece]:
        file = MappedFile(path)
        self._files.append(file)
        return {stored.name: _Piece(file, stored) for stored in parse_header(file).tensors}

    def _open_folder(self) -> dict[str, _Piece]:
        if has_file(self._folder, INDEX):
            return self._open_parts(read_index(self._folder))
        if not has_file(self._folder, SINGLE):
            raise ModelFileError(
                self._folder, f"expected {SINGLE} or {INDEX}, got neither; name the file itself"
            )
        return self._open_file(self._folder / SINGLE)

    def _open_parts(self, weight_map: dict[str, str]) -> dict[str, _Piece]:
        """Open every part the index names; tensors must be where it says, all of them."""
        entries: dict[str, _Piece] = {}
        for part in sorted(set(weight_map.values())):
            for name, piece in self._open_file(self._folder / part).items():
                stated = weight_map.get(name)
                if stated != part:
                    raise ModelFileError(
                        self._folder / part,
                        f"expected it in {stated or 'no file'} as {INDEX} says, got it here",
                        name,
                    )
                entries[name] = piece
        for name, part in weight_map.items():
            if name not in entries:
                raise ModelFileError(
                    self._folder / part, f"expected it here as {INDEX} says, got no such", name
                )
        return entries


_Weights = dict[str, tuple[Encoding, dict[str, _Piece]]]


def _group(entries: dict[str, _Piece], config: Mapping[str, Any]) -> _Weights:
    """Join fp8 codes with their scales; everything else is a weight of its own."""
    weights: _Weights = {}
    taken: set[str] = set()
    for name, codes in entries.items():
        scale = entries.get(name + block_scales.SUFFIX)
        encoding = scale and block_scales.scaled_encoding(
            codes.stored, scale.stored, config, codes.file.path
        )
        if scale and encoding:
            taken.add(scale.stored.name)
            weights[name] = (encoding, {"codes": codes, "scale": scale})
        else:
            weights[name] = (plain(codes.stored.dtype), {"codes": codes})
    return {name: weight for name, weight in weights.items() if name not in taken}


def _group_quark(entries: dict[str, _Piece]) -> _Weights:
    """Join MXFP4 codes with their scales; everything else is a weight of its own."""
    weights: _Weights = {}
    taken: set[str] = set()
    for name, codes in entries.items():
        scale = entries.get(name + quark.SUFFIX)
        if scale:
            weight = quark.scaled(codes.stored, scale.stored, codes.file.path)
            taken.add(scale.stored.name)
            pieces = {"codes": _Piece(codes.file, weight), "scale": scale}
            weights[name] = (quark.ENCODING, pieces)
        else:
            quark.check_alone(codes.stored, codes.file.path)
            weights[name] = (plain(codes.stored.dtype), {"codes": codes})
    return {name: weight for name, weight in weights.items() if name not in taken}


def _describe(name: str, encoding: Encoding, pieces: dict[str, _Piece]) -> TensorInfo:
    codes = pieces["codes"]
    nbytes = sum(piece.stored.nbytes for piece in pieces.values())
    return TensorInfo(
        name, codes.stored.shape, encoding, codes.file.path, codes.stored.offset, nbytes
    )
