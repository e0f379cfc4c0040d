"""Declared weights against what the checkpoint holds: names, joins, encodings, extents."""

from collections.abc import Mapping
from typing import Protocol

from radiance_abi.architectures import Source
from radiance_abi.encoding import Encoding, rows_and_cols
from radiance_core.graph.errors import WeightError
from radiance_core.nearest import did_you_mean


class TensorFacts(Protocol):
    """What a checkpoint says of a tensor."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical extents, row-major."""

    @property
    def encoding(self) -> Encoding:
        """What its stored numbers are."""


class WeightCatalog:
    """Answers which declared weights a checkpoint supplies.

    Args:
        names: declared weight to its source, from the architecture.
        tensors: the checkpoint's tensors by name.
        where: the file or folder, for error texts.
    """

    def __init__(
        self, names: Mapping[str, Source], tensors: Mapping[str, TensorFacts], where: str
    ) -> None:
        self._names = names
        self._tensors = tensors
        self._where = where

    def parts(self, source: Source) -> tuple[str, ...] | None:
        """Return the tensors that make up ``source``, or None when one is missing."""
        if not source.join:
            first = next((n for n in source.names if n in self._tensors), None)
            return None if first is None else (first,)
        return source.names if all(n in self._tensors for n in source.names) else None

    def has(self, name: str) -> bool:
        """Return whether ``name`` can be supplied, a joined one as one encoding."""
        source = self._names.get(name)
        parts = None if source is None else self.parts(source)
        return parts is not None and self._join_fault(parts) is None

    def _join_fault(self, parts: tuple[str, ...]) -> str | None:
        """Return why the parts cannot be stacked, or None."""
        first = self._tensors[parts[0]]
        for name in parts[1:]:
            part = self._tensors[name]
            if part.encoding != first.encoding:
                return f"{parts[0]} is {first.encoding} and {name} is {part.encoding}"
            if part.shape[1:] != first.shape[1:]:
                return f"{parts[0]} is {list(first.shape)} and {name} is {list(part.shape)}"
        tall = first.encoding.block_rows
        if len(parts) > 1 and tall == 0:
            return f"{first.encoding} has a plane that covers all rows of {parts[0]}"
        for name in parts[:-1]:
            rows = rows_and_cols(self._tensors[name].shape)[0]
            if len(first.shape) > 1 and rows % tall:
                return f"{name} has {rows} rows, which blocks of {tall} rows do not divide"
        return None

    def find(self, name: str, shape: tuple[int, ...]) -> tuple[Source, Encoding]:
        """Return the tensors (as a join of one or more) and the encoding of a declared weight.

        Raises:
            WeightError: not mapped, missing, not joinable, or of other extents.
        """
        source = self._names.get(name)
        if source is None:
            raise WeightError(
                f"weight {name}: the architecture declares it but names() does not map it"
                f"{did_you_mean(name, self._names)}"
            )
        parts = self.parts(source)
        if parts is None:
            missing = [n for n in source.names if n not in self._tensors]
            between = " and " if source.join else " or "
            raise WeightError(
                f"weight {name}: expected tensor {between.join(missing)} in {self._where}, got "
                f"{len(self._tensors)} tensors and not this"
                f"{did_you_mean(missing[0], self._tensors)}"
            )
        fault = self._join_fault(parts)
        if fault is not None:
            raise WeightError(f"weight {name}: its parts cannot be stacked: {fault}")
        rows = sum(self._tensors[p].shape[0] for p in parts)
        have = (rows, *self._tensors[parts[0]].shape[1:])
        if have != shape:
            raise WeightError(
                f"weight {name}: expected {list(shape)}, got {list(have)} from "
                f"{' + '.join(parts)} in {self._where}"
            )
        return Source(parts, join=len(parts) > 1), self._tensors[parts[0]].encoding
