"""A configuration given as a dict."""

import fnmatch
from collections.abc import Mapping
from typing import Any

import numpy as np

from radiance_abi import ConfigurationError


class KeysRaw:
    """A configuration given as a dict, read as strictly as the core reads one.

    Args:
        format: "gguf" or "safetensors".
        values: keys and values.
        tensors: shapes or whole arrays of checkpoint tensors.
    """

    def __init__(
        self,
        format: str,  # noqa: A002 - the contract's name
        values: Mapping[str, Any],
        tensors: Mapping[str, tuple[int, ...] | np.ndarray] | None = None,
    ) -> None:
        self.format = format
        self.values = values
        self.tensors = tensors or {}
        self.answered: set[str] = set()
        self.ignored: list[str] = []
        self.subs: list[KeysRaw] = []

    def has(self, key: str) -> bool:
        """Return whether the key is present and not null."""
        return self.values.get(key) is not None

    def need(self, key: str, kind: type) -> Any:
        """Return the value of a key that must be there."""
        self.answered.add(key)
        if not self.has(key):
            raise ConfigurationError(f"key {key}: expected {kind.__name__}, got nothing")
        value = self.values[key]
        if kind is float and type(value) is int:
            return float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ConfigurationError(f"key {key}: expected {kind.__name__}, got {value!r}")
        return value

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """Return the value or the default."""
        self.answered.add(key)
        return self.need(key, kind) if self.has(key) else default

    def expect(self, key: str, *allowed: object) -> None:
        """Require that the key is absent or holds one of ``allowed``."""
        self.answered.add(key)
        if self.has(key) and self.values[key] not in allowed:
            words = " or ".join(map(repr, allowed))
            raise ConfigurationError(f"key {key}: expected {words}, got {self.values[key]!r}")

    def ignore(self, *keys: str) -> None:
        """Say that these keys do not matter."""
        self.ignored.extend(keys)

    def sub(self, key: str) -> "KeysRaw | None":
        """Return a nested object."""
        self.answered.add(key)
        if not self.has(key):
            return None
        self.subs.append(KeysRaw(self.format, self.need(key, dict), self.tensors))
        return self.subs[-1]

    def tensor(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a checkpoint tensor, or None."""
        found = self.tensors.get(name)
        return found.shape if isinstance(found, np.ndarray) else found

    def read_tensor(self, name: str) -> np.ndarray:
        """Return a tensor that was given as an array."""
        found = self.tensors[name]
        assert isinstance(found, np.ndarray), f"{name} was given as a shape"
        return found

    def unanswered(self) -> list[str]:
        """Return the keys that were neither read nor asserted nor ignored, nested ones too."""
        left = [
            key
            for key in self.values
            if key not in self.answered
            and not any(fnmatch.fnmatchcase(key, pattern) for pattern in self.ignored)
        ]
        return sorted(left + [key for nested in self.subs for key in nested.unanswered()])
