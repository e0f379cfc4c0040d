"""What one conformance call is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from radiance_abi.dtypes import dtype
from radiance_abi.encoding import Encoding, decode
from radiance_abi.errors import AbiError
from radiance_abi.kernels import Geometry
from radiance_abi.kv_cache import cache_dtype
from radiance_abi.ops import Operand, OpSchema

Array = npt.NDArray[Any]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight as a model file holds it: the planes of an encoding, and its logical shape."""

    encoding: Encoding
    planes: Mapping[str, Array]
    shape: tuple[int, ...]

    @property
    def values(self) -> F64:
        """Decode in f64."""
        return np.asarray(decode(self.encoding, self.planes, self.shape, np.float64))


@dataclass(frozen=True, slots=True)
class Case:
    """Params and operands of one call; ``operands`` holds all but outputs, None where absent.

    ``params`` leaves absent optional ones out and holds the ranged one.
    """

    schema: OpSchema
    params: Geometry
    operands: Mapping[str, Array | Weight | None]
    _values: dict[str, F64] = field(default_factory=dict)

    def array(self, name: str) -> Array:
        """Return a plain operand as it is."""
        found = self.operands[name]
        if not isinstance(found, np.ndarray):
            raise AbiError(f"{self.schema.op}: expected an array for operand {name}, got {found}")
        return found

    def f64(self, name: str) -> F64:
        """Return an operand, or a decoded weight, as f64; decoded once."""
        if name not in self._values:
            found = self.operands[name]
            self._values[name] = (
                found.values if isinstance(found, Weight) else self.array(name).astype(np.float64)
            )
        return self._values[name]

    def has(self, name: str) -> bool:
        """Return whether an operand is present."""
        return self.operands.get(name) is not None

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a numeric param; an absent one has its schema's default, else ``default``."""
        value = self._param(name)
        return default if value is None else float(value)

    def integer(self, name: str, default: int = 0) -> int:
        """Return an int param, like ``number``."""
        value = self._param(name)
        return default if value is None else int(value)

    def word(self, name: str) -> str:
        """Return a string param."""
        return str(self._param(name))

    def _param(self, name: str) -> float | str | None:
        if name in self.params:
            return self.params[name]
        spelt = self.schema.param(name)
        return None if spelt is None else spelt.default

    def with_operands(self, **changed: Array | Weight | None) -> "Case":
        """Return this case with some operands replaced."""
        return replace(self, operands={**self.operands, **changed}, _values={})

    def with_params(self, **changed: float | str) -> "Case":
        """Return this case with some params replaced."""
        return replace(self, params={**self.params, **changed}, _values={})

    def __str__(self) -> str:
        shown = " ".join(
            f"{k}={v!r}" if isinstance(v, float) else f"{k}={v}" for k, v in self.params.items()
        )
        weights = " ".join(
            f"{name}:{w.encoding}" for name, w in self.operands.items() if isinstance(w, Weight)
        )
        keys = f"keys={self.array('seqused').max()}" if self.has("seqused") else ""
        return " ".join(part for part in (self.schema.op, shown, weights, keys) if part)


def operand_dtype(operand: Operand, params: Geometry) -> str:
    """Return the dtype name of an operand; "*" becomes f32."""
    if operand.dtype == "*":
        return "f32"
    named = params.get(operand.dtype)
    if operand.role == "state" and isinstance(named, str):
        return cache_dtype(named).element
    return dtype(named).name if isinstance(named, str) else operand.dtype


def numpy_dtype(name: str) -> "np.dtype[np.generic]":
    """Return the numpy dtype (bf16 and fp8 through ml_dtypes) of a whole-byte dtype."""
    found = dtype(name).numpy
    if found is None:
        raise AbiError(f"operand: expected a dtype of whole bytes, got {name}")
    return found


def codes_of(q: Array, planes: int) -> Array:
    """Return the codes i32 [M, n] that int8 planes [M, planes * n] hold."""
    codes = q.astype(np.int32)
    if planes == 1:
        return codes
    assert planes == 2, f"codes lie in one or two planes, got {planes}"
    high, low = np.split(codes, 2, axis=1)
    return np.asarray(128 * high + low)


MOST_CODE = {1: 127, 2: 16256}
"""Largest code by the number of int8 planes."""


def rounded(values: F64, name: str) -> F64:
    """Round to f32 and then to dtype ``name``, as a stored intermediate is; the result is f64."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32).astype(numpy_dtype(name))
    return narrow.astype(np.float64)


def smallest(name: str) -> float:
    """Return the smallest number above 0 of dtype ``name``: how far apart its least ones lie."""
    info: Any = ml_dtypes.finfo
    return float(info(numpy_dtype(name)).smallest_subnormal)


def unit(name: str) -> float:
    """Return the spacing of dtype ``name`` at 1: 2^-23 for f32, 2^-7 for bf16."""
    info: Any = ml_dtypes.finfo
    return float(info(numpy_dtype(name)).eps)
