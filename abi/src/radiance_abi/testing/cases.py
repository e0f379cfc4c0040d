"""Generate the cases that a kernel row is run on."""

from collections.abc import Iterator, Sequence

import numpy as np

from radiance_abi.encoding import Encoding
from radiance_abi.kernels import Kernel
from radiance_abi.ops import OpSchema
from radiance_abi.testing import geometry, inputs
from radiance_abi.testing.cache_inputs import LONG_PAST
from radiance_abi.testing.case import Case
from radiance_abi.testing.planes import ENCODINGS, whole_columns
from radiance_abi.testing.running import geometry_of

_TRIES = 24


def cases(
    kernel: Kernel,
    schema: OpSchema,
    rng: np.random.Generator,
    count: int = 6,
    encodings: Sequence[Encoding] = ENCODINGS,
) -> Iterator[Case]:
    """Yield at least ``count`` cases that satisfy a kernel's constraints, with fresh operands.

    A row that reads matrices gets one case for each of the encodings that it reads, if those are
    more. A row that reads none of them yields nothing. Attention gets a long past in one case.

    Raises:
        AbiError: no params satisfy the constraints.
    """
    matrix = next(
        (i for i, o in enumerate(schema.operands) if o.role == "weight" and len(o.dims) > 1), None
    )
    # Turns begin anywhere, so that no word always goes with the same encoding.
    first = int(rng.integers(1 << 10))
    if matrix is None:
        for turn in range(first, first + count):
            params = geometry.draw(kernel, schema, rng, turn)
            long = schema.op == "attn_paged" and turn == first
            made = inputs.make(kernel, schema, params, rng, past=LONG_PAST if long else 0)
            if made is not None:
                yield made
        return
    done, turn = 0, 0
    while turn < len(encodings) or 0 < done < count:
        encoding = encodings[turn % len(encodings)]
        for _ in range(_TRIES):
            params = geometry.draw(kernel, schema, rng, first + turn, whole_columns(encoding))
            shape = inputs.weight_shape(schema.operands[matrix], params)
            hooks = geometry_of(kernel, params)
            if not inputs.reads(kernel, encoding, hooks, shape, matrix):
                continue
            made = inputs.make(kernel, schema, params, rng, encoding)
            if made is not None:
                done += 1
                yield made
                break
        turn += 1
