"""Key/value pairs of a GGUF file, read from the file's first bytes without its tensors."""

import struct
from pathlib import Path
from typing import Any

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def text(self) -> str:
        size = self.scalar("Q")
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def value(self, kind: int) -> Any:
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.scalar("I"), self.scalar("Q")
            if inner == 8:
                return [self.text() for _ in range(count)]
            form = f"<{count}{_SCALARS[inner]}"
            values = struct.unpack_from(form, self._data, self._at)
            self._at += struct.calcsize(form)
            return list(values)
        return self.scalar(_SCALARS[kind])


def read_head(path: Path) -> dict[str, Any]:
    """Return the pairs; ``path`` may be cut anywhere behind them."""
    with path.open("rb") as file:
        reader = _Reader(file.read(64 << 20))
    magic, version, _, count = (reader.scalar(code) for code in "IIQQ")
    assert (magic, version) == (0x46554747, 3), "these packages ship GGUF v3"
    return {reader.text(): reader.value(reader.scalar("I")) for _ in range(count)}
