"""Call kernels on arrays of one's own, for an author's tests."""

from typing import Any, Protocol

import numpy as np

from radiance_abi.encoding import plain
from radiance_abi.errors import AbiError
from radiance_abi.kernels import KernelLibrary
from radiance_abi.testing.case import Array, Case, Weight
from radiance_abi.testing.declarations import schemas_of
from radiance_abi.testing.running import run


class Caller(Protocol):
    """Calls an op of one library."""

    def __call__(
        self, op: str, params: dict[str, Any], /, **operands: Array | Weight | None
    ) -> dict[str, Array]:
        """Return outputs and overwritten operands by name; absent operands are left out."""


def plain_weight(values: Array, dtype: str = "f32") -> Weight:
    """Return a weight that holds ``values`` as a plain encoding of a whole-byte dtype."""
    encoding = plain(dtype)
    rows = values.reshape(-1, values.shape[-1])
    return Weight(
        encoding, {"codes": rows.astype(encoding.codes.storage(*rows.shape)[0])}, values.shape
    )


def caller(library: KernelLibrary) -> Caller:
    """Return a function that runs the first row of a library for an op, inside fences.

    The ranged param is the rows of the first array unless given. It raises what ``run`` raises, and
    AbiError for an op that the library has no row for.
    """
    schemas = schemas_of(library)

    def call(
        op: str, params: dict[str, Any], /, **operands: Array | Weight | None
    ) -> dict[str, Array]:
        kernel = next((k for k in library.kernels if k.op == op), None)
        if kernel is None:
            raise AbiError(f"{library.name}: expected a row for the op, got none for {op}")
        schema = schemas[op]
        rows = next(len(a) for a in operands.values() if isinstance(a, np.ndarray))
        ranged = {schema.ranged: rows} if schema.ranged else {}
        given = {o.name: operands.get(o.name) for o in schema.inputs}
        return run(kernel, Case(schema, {**ranged, **params}, given))

    return call
