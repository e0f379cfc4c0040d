"""Draw the operands of a planned call, the same ones each time."""

import hashlib
import zlib
from collections.abc import Mapping

import numpy as np

from radiance_abi.encoding import Encoding
from radiance_abi.errors import RadianceError
from radiance_abi.kernels import Geometry, Kernel, Layout
from radiance_abi.ops import OpSchema
from radiance_abi.testing import inputs
from radiance_abi.testing.case import Case, Weight
from radiance_abi.testing.planes import random_weight
from radiance_core.kbench.fixture import FixtureError, Value


def draw(
    schema: OpSchema,
    params: Mapping[str, Value],
    weights: Mapping[str, str],
    seed: int,
    past: int = 0,
) -> Case:
    """Draw a case; every random number comes from the seed, the op and its params.

    ``past``: keys that attention has before one sequence, at least; 0 for a few.

    Raises:
        FixtureError: operands of such params cannot be made.
    """
    spelt = " ".join(f"{k}={params[k]}" for k in sorted(params)) + " ".join(weights.values())
    rng = np.random.default_rng([seed, zlib.crc32(f"{schema.op} {spelt}".encode())])
    encodings = [Encoding.parse(text) for text in weights.values()]
    try:
        first = encodings[0] if encodings else None
        made = inputs.make(_reads_all(schema.op), schema, dict(params), rng, first, past)
    except (RadianceError, KeyError, ValueError) as error:
        raise FixtureError(f"{schema.op} {spelt}: operands cannot be drawn: {error}") from error
    if made is None:
        raise FixtureError(f"{schema.op} {spelt}: its weights do not fit their encodings")
    # Gains and biases are f32, which every library reads.
    vectors = {
        o.name: random_weight(Encoding.parse("f32"), inputs.weight_shape(o, params), rng)
        for o in schema.operands
        if o.role == "weight" and len(o.dims) == 1 and made.has(o.name)
    }
    return made.with_operands(**vectors)


def digest(case: Case) -> str:
    """Return a digest of all operands of a case."""
    found = hashlib.sha256()
    for operand in case.schema.inputs:
        given = case.operands.get(operand.name)
        arrays = given.planes if isinstance(given, Weight) else {"": given}
        for role, array in sorted(arrays.items()):
            found.update(f"{operand.name} {role} ".encode())
            if array is not None:
                found.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return found.hexdigest()[:32]


def _reads_all(op: str) -> Kernel:
    """Return a row that reads every encoding, for drawing what no kernel in particular is given."""

    def layout(
        encoding: Encoding, shape: tuple[int, ...], geometry: Geometry, operand: int
    ) -> Layout:
        del encoding, geometry, operand
        return Layout("any", "u8", shape)

    return Kernel(op=op, name="any", run=lambda _: None, layout=layout)
