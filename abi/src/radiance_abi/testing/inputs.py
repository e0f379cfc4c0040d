"""Operands for a case: random numbers where the op computes, valid indices where it looks up."""

from collections.abc import Callable

import numpy as np

from radiance_abi.encoding import Encoding
from radiance_abi.kernels import Geometry, Kernel
from radiance_abi.ops import Operand, OpSchema, extent
from radiance_abi.testing import cache_inputs, sampling_inputs
from radiance_abi.testing.case import (
    Array,
    Case,
    Weight,
    codes_of,
    numpy_dtype,
    operand_dtype,
)
from radiance_abi.testing.numbers import numbers
from radiance_abi.testing.planes import VECTOR_ENCODINGS, fits, random_weight
from radiance_abi.testing.running import geometry_of

Operands = dict[str, Array | Weight | None]

_INDEX_ROWS = 23


def reads(
    kernel: Kernel, encoding: Encoding, geometry: Geometry, shape: tuple[int, ...], index: int
) -> bool:
    """Return whether a kernel reads an encoding for weight operand ``index`` of ``shape``."""
    if not fits(encoding, shape):
        return False
    if kernel.layout is None:
        return encoding.is_plain
    return kernel.layout(encoding, shape, geometry, index) is not None


def weight_shape(operand: Operand, params: Geometry) -> tuple[int, ...]:
    """Return the extents of a weight operand."""
    return tuple(extent(d, params) or 1 for d in operand.dims)


def make(
    kernel: Kernel,
    schema: OpSchema,
    params: Geometry,
    rng: np.random.Generator,
    encoding: Encoding | None = None,
    past: int = 0,
) -> Case | None:
    """Return a case with fresh operands, None when the kernel does not read what they would be.

    Args:
        kernel: the row that is to read them.
        schema: schema of its op.
        params: what they are made for.
        rng: where everything random comes from.
        encoding: of weights of two dimensions; vectors take any that the kernel reads.
        past: keys that attention has before one sequence, at least; 0 for a few.
    """
    operands: Operands = {}
    for index, operand in enumerate(schema.operands):
        if operand.role == "out":
            continue
        if operand.optional and rng.random() < 0.5:
            operands[operand.name] = None
        elif operand.role == "weight":
            weight = _weight(kernel, operand, params, index, rng, encoding)
            if weight is None:
                return None
            operands[operand.name] = weight
        else:
            operands[operand.name] = _plain_operand(operand, params, rng)
    special = _SPECIAL.get(schema.op)
    if past:
        cache_inputs.attention(operands, params, rng, past)
    elif special is not None:
        special(operands, params, rng)
    return Case(schema, params, operands)


def _weight(
    kernel: Kernel,
    operand: Operand,
    params: Geometry,
    index: int,
    rng: np.random.Generator,
    encoding: Encoding | None,
) -> Weight | None:
    shape = weight_shape(operand, params)
    options = list(VECTOR_ENCODINGS) if len(shape) == 1 else [encoding] if encoding else []
    geometry = geometry_of(kernel, params)
    options = [e for e in options if reads(kernel, e, geometry, shape, index)]
    if not options:
        return None
    # Wide enough that a wrong term shows, and products of size about 1.
    size = 1.0 if len(shape) == 1 else 2.0 / np.sqrt(shape[-1])
    return random_weight(options[int(rng.integers(len(options)))], shape, rng, size)


def _plain_operand(operand: Operand, params: Geometry, rng: np.random.Generator) -> Array:
    extents = [extent(d, params) for d in operand.dims]
    shape = tuple(_INDEX_ROWS if e is None else e for e in extents)
    kind = numpy_dtype(operand_dtype(operand, params))
    return numbers(shape, kind, rng)


def _group_scales(operands: Operands, params: Geometry, rng: np.random.Generator) -> None:
    """Make the operands of quantised activations agree with each other."""
    name = "a" if "a" in operands else "q"
    q = operands[name]
    assert isinstance(q, np.ndarray), "codes are a plain operand"
    codes = codes_of(q, int(params.get("planes", 1)))
    groups = codes.reshape(len(codes), -1, int(params["group"]))
    scale = rng.uniform(0.001, 0.05, groups.shape[:2]).astype(np.float32)
    operands["a_scale" if name == "a" else "scale"] = scale
    if name == "a":
        operands["a_sum"] = groups.sum(axis=2, dtype=np.int32)


def _quantized(operands: Operands, params: Geometry, rng: np.random.Generator) -> None:
    """Put a group of zeros into what is to be quantised."""
    x = operands.get("x")
    if isinstance(x, np.ndarray) and rng.random() < 0.5:
        x[int(rng.integers(len(x))), : int(params["group"])] = 0


def _mul(operands: Operands, _: Geometry, rng: np.random.Generator) -> None:
    a = operands["a"]
    assert isinstance(a, np.ndarray), "a is a plain operand"
    rows = 1 if rng.random() < 0.5 else len(a)
    operands["b"] = numbers((rows, a.shape[1]), a.dtype, rng)


def _gather(operands: Operands, params: Geometry, rng: np.random.Generator) -> None:
    operands["idx"] = rng.integers(-1, _INDEX_ROWS, int(params["M"])).astype(np.int32)


def _embed(operands: Operands, params: Geometry, rng: np.random.Generator) -> None:
    tokens = rng.integers(0, int(params["n_vocab"]), int(params["M"]))
    tokens[rng.random(len(tokens)) < 0.1] = -1
    operands["tokens"] = tokens.astype(np.int32)


def _rope(operands: Operands, params: Geometry, rng: np.random.Generator) -> None:
    rows, head_dim = int(params["M"]), int(params["head_dim"])
    heads = int(params["n_head"]) + int(params["n_head_kv"])
    values = int(rng.integers(0, 2)) * int(params["n_head_kv"])
    kind = numpy_dtype(str(params["dtype"]))
    operands["qkv"] = numbers((rows, (heads + values) * head_dim), kind, rng)
    operands["positions"] = rng.integers(0, 5000, rows).astype(np.int32)
    if operands["freqs"] is not None:
        half = int(params.get("rotary_dim", head_dim)) // 2
        operands["freqs"] = (10.0 ** rng.uniform(-5, 0, half)).astype(np.float32)


_SPECIAL: dict[str, Callable[[Operands, Geometry, np.random.Generator], None]] = {
    "mul": _mul,
    "gather_rows": _gather,
    "embed_lookup": _embed,
    "rope": _rope,
    "qk_norm_rope": _rope,
    "kv_store": cache_inputs.kv_store,
    "attn_paged": cache_inputs.attention,
    "dequant": _group_scales,
    "gemm_nt_q": _group_scales,
    "gemm_nt_q_add": _group_scales,
    "gemm_nt_q_bias": _group_scales,
    "logits_gemm_q": _group_scales,
    "quant_act_i8": _quantized,
    "rmsnorm_quant_i8": _quantized,
    **sampling_inputs.MAKERS,
}
