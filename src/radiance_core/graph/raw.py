"""A model's configuration, read strictly: each key is read, asserted or ignored by name."""

import fnmatch
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from radiance_core.graph.errors import ModelConfigError
from radiance_core.graph.weights import TensorFacts
from radiance_core.nearest import did_you_mean

LARGEST_FLOAT = sys.float_info.max
_NOT_MODEL = ("general.*", "tokenizer.*", "split.*", "quantize.imatrix.*", "GGUF.*")
"""GGUF keys that the core itself answers for."""
_NOT_MODEL_HF = (
    "_name_or_path",
    "architectures",
    "auto_map",
    "dtype",
    "model_type",
    "quantization_config",
    "torch_dtype",
    "transformers_version",
    "transformers.js_config",
)


class RawConfig:
    """Implements the contract's Raw over GGUF key/values or a config.json.

    Args:
        values: keys and values.
        format: "gguf" or "safetensors".
        where: the file, for error texts.
        tensors: the checkpoint's tensors.
        read: decodes a small tensor to f32.
        prefix: names the nested object in error texts.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        format: str,  # noqa: A002 - the contract's name
        where: str,
        tensors: Mapping[str, TensorFacts],
        read: Callable[[str], np.ndarray],
        prefix: str = "",
    ) -> None:
        self.format = format
        self._values = values
        self._where = where
        self._tensors = tensors
        self._read = read
        self._prefix = prefix
        self._seen: set[str] = set()
        self._ignored: list[str] = []
        self._subs: dict[str, RawConfig] = {}
        if not prefix:
            self.ignore(*(_NOT_MODEL if format == "gguf" else _NOT_MODEL_HF))

    def has(self, key: str) -> bool:
        """Return whether the key is present and not null."""
        return self._values.get(key) is not None

    def need(self, key: str, kind: type) -> Any:
        """Return the value of a key that must be there."""
        self._seen.add(key)
        if not self.has(key):
            raise ModelConfigError(
                f"{self._where}: key {self._prefix}{key}: expected {_kind_name(kind)}, got nothing"
                f"{did_you_mean(key, self._values)}"
            )
        return self._typed(key, kind)

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """Return the value, or the default when the key is absent or null."""
        self._seen.add(key)
        return self._typed(key, kind) if self.has(key) else default

    def _typed(self, key: str, kind: type) -> Any:
        value = self._values[key]
        is_bool = isinstance(value, bool)
        if kind is float and isinstance(value, int | float) and not is_bool:
            if not abs(value) <= LARGEST_FLOAT:
                raise ModelConfigError(
                    f"{self._where}: key {self._prefix}{key}: expected a finite number, got "
                    f"{_short(value)}"
                )
            return float(value)
        if (is_bool and kind in (int, float)) or not isinstance(value, kind):
            raise ModelConfigError(
                f"{self._where}: key {self._prefix}{key}: expected {_kind_name(kind)}, got "
                f"{_short(value)} ({_kind_name(type(value))})"
            )
        return value

    def expect(self, key: str, *allowed: object) -> None:
        """Require that the key is absent, null, or holds one of ``allowed``."""
        self._seen.add(key)
        value = self._values.get(key)
        # To Python true equals 1, to a configuration it does not.
        fits = any(value == a and isinstance(value, bool) == isinstance(a, bool) for a in allowed)
        if self.has(key) and not fits:
            raise ModelConfigError(
                f"{self._where}: key {self._prefix}{key}: only {' or '.join(map(repr, allowed))} "
                f"is served, got {_short(value)}"
            )

    def ignore(self, *keys: str) -> None:
        """Say that these keys do not matter."""
        self._ignored.extend(keys)

    def sub(self, key: str) -> "RawConfig | None":
        """Return a nested object to be read as strictly."""
        self._seen.add(key)
        if not self.has(key):
            return None
        if key not in self._subs:
            value = self._typed(key, dict)
            self._subs[key] = RawConfig(
                value, self.format, self._where, self._tensors, self._read, f"{self._prefix}{key}."
            )
        return self._subs[key]

    def tensor(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a checkpoint tensor, or None."""
        facts = self._tensors.get(name)
        return None if facts is None else facts.shape

    def read_tensor(self, name: str) -> np.ndarray:
        """Return a small tensor decoded to f32."""
        return self._read(name)

    def finish(self) -> None:
        """Require that every key was read, asserted or ignored.

        Raises:
            ModelConfigError: names the keys that nobody answered for.
        """
        left = [
            f"{self._prefix}{k}"
            for k in self._values
            if k not in self._seen and not any(fnmatch.fnmatchcase(k, p) for p in self._ignored)
        ]
        if left:
            raise ModelConfigError(
                f"{self._where}: {len(left)} configuration key(s) that the architecture does not "
                f"know: {', '.join(sorted(left)[:12])}. It may change what the model computes, so "
                "nothing is served; update the architecture plugin."
            )
        for nested in self._subs.values():
            nested.finish()


_KIND_NAMES: dict[type, str] = {dict: "an object", list: "a list", str: "a string"}


def _kind_name(kind: type) -> str:
    return _KIND_NAMES.get(kind, kind.__name__)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
