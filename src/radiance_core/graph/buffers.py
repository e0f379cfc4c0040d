"""The buffers that a graph's values live in: who shares one, and what was overwritten when."""

from radiance_core.graph.errors import DeclareError
from radiance_core.graph.ir import Extent, GraphValue, Storage


class Buffers:
    """Grows with the graph; a value is a window of columns in one of its storages."""

    def __init__(self) -> None:
        self.storages: list[Storage] = []
        self.clock = 0
        # By outermost storage: (first column, last column, when) of every overwriting.
        self._writes: dict[int, list[tuple[int, int, int]]] = {}

    def new(self, name: str, shape: tuple[Extent, ...], dtype: str, kind: str) -> GraphValue:
        """Return a value in a storage of its own."""
        columns = 1
        for d in shape[1:]:
            assert isinstance(d, int), "only the first extent moves from step to step"
            columns *= d
        self.storages.append(Storage(shape[0], columns, dtype))
        return GraphValue(name, shape, dtype, kind, len(self.storages) - 1, 0, self.clock)

    def place(self, value: GraphValue) -> tuple[int, int, int]:
        """Return the outermost storage of a value, and its first and last column there."""
        storage, first = value.storage, value.column
        while (parent := self.storages[storage].parent) is not None:
            first += self.storages[storage].parent_column
            storage = parent
        width = 1
        for d in value.shape[1:]:
            assert isinstance(d, int), "only the first extent moves from step to step"
            width *= d
        return storage, first, first + width

    def overlap(self, a: GraphValue, b: GraphValue) -> bool:
        """Return whether two values share an element."""
        storage_a, first_a, last_a = self.place(a)
        storage_b, first_b, last_b = self.place(b)
        return storage_a == storage_b and first_a < last_b and first_b < last_a

    def overwrite(self, value: GraphValue) -> None:
        """Note that an op has just written over a value's columns."""
        storage, first, last = self.place(value)
        self._writes.setdefault(storage, []).append((first, last, self.clock))

    def check_fresh(self, value: GraphValue, reader: str) -> None:
        """Require that nothing was written over a value since it was made.

        Raises:
            DeclareError: names the reader and the value.
        """
        storage, first, last = self.place(value)
        for low, high, when in self._writes.get(storage, ()):
            if when > value.stamp and low < last and first < high:
                raise DeclareError(
                    f"{reader}: {value.name} was overwritten by a later op; use the value which "
                    "that op returned"
                )

    def columns(self, value: GraphValue, start: int, stop: int) -> GraphValue:
        """Return a view of columns [start, stop) of a matrix."""
        width = value.shape[-1]
        if len(value.shape) != 2 or not isinstance(width, int) or not 0 <= start < stop <= width:
            raise DeclareError(
                f"columns: expected 0 <= start < stop <= {width} of a matrix, got [{start},{stop}) "
                f"of {list(value.shape)}"
            )
        return GraphValue(
            f"{value.name}[{start}:{stop}]",
            (value.shape[0], stop - start),
            value.dtype,
            value.kind,
            value.storage,
            value.column + start,
            value.stamp,
        )

    def join(self, values: tuple[GraphValue, ...]) -> GraphValue:
        """Make values that fill their buffers neighbours in a new one."""
        if not values:
            raise DeclareError("join: expected one value or more, got none")
        first, column = values[0], 0
        for index, value in enumerate(values):
            self._check_joinable(value, first, values[:index])
            column += self.storages[value.storage].columns
        self.storages.append(Storage(first.shape[0], column, first.dtype))
        joined, column = len(self.storages) - 1, 0
        for value in values:
            old = self.storages[value.storage]
            self.storages[value.storage] = Storage(old.rows, old.columns, old.dtype, joined, column)
            self._writes.setdefault(joined, []).extend(
                (low + column, high + column, when)
                for low, high, when in self._writes.pop(value.storage, ())
            )
            column += old.columns
        name = "+".join(v.name for v in values)
        shape = (first.shape[0], column)
        return GraphValue(name, shape, first.dtype, "node", joined, 0, self.clock)

    def _check_joinable(
        self, value: GraphValue, first: GraphValue, before: tuple[GraphValue, ...]
    ) -> None:
        self.check_fresh(value, "join")
        storage = self.storages[value.storage]
        whole = (
            value.kind == "node"
            and value.column == 0
            and value.shape == (storage.rows, storage.columns)
        )
        again = any(value.storage == other.storage for other in before)
        if not whole or again or storage.parent is not None:
            raise DeclareError(
                f"join: {value.name}: expected the whole result of an op, not joined before"
            )
        if value.dtype != first.dtype or value.shape[0] != first.shape[0]:
            raise DeclareError(
                f"join: {value.name}: expected {first.dtype} with {first.shape[0]} rows, "
                f"got {value.dtype} with {value.shape[0]}"
            )
