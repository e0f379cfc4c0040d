"""Operands for a case: random numbers where the op computes, valid indices where it looks up."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from radiance_abi.encoding import Encoding
from radiance_abi.kernels import Geometry, Kernel
from radiance_abi.kv_cache import cache_dtype
from radiance_abi.ops import Operand, OpSchema, extent
from radiance_abi.testing import sampling_inputs
from radiance_abi.testing.case import (
    Array,
    Case,
    Weight,
    codes_of,
    numpy_dtype,
    operand_dtype,
)
from radiance_abi.testing.formulas import kv_rows
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
) -> Case | None:
    """Return a case with fresh operands, None when the kernel does not read what they would be.

    ``encoding`` is that of weights of two dimensions; vectors take any that the kernel reads.
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
    if special is not None:
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


def numbers(shape: Sequence[int], kind: "np.dtype[np.generic]", rng: np.random.Generator) -> Array:
    """Return numbers of one element type: floats of size about 1 with some large rows."""
    if kind.kind in "iu":
        limits: Any = np.iinfo(kind)
        return rng.integers(max(limits.min, -127), min(limits.max, 127) + 1, shape).astype(kind)
    size = np.exp(rng.normal(size=(*shape[:-1], 1)))
    return (rng.normal(size=shape) * size).astype(np.float32).astype(kind)


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


def _kv_store(operands: Operands, params: Geometry, rng: np.random.Generator) -> None:
    rows, block = int(params["M"]), int(params["block_size"])
    pages = -(-rows // block) + 2
    operands["kv_cache"] = _cache(pages, params, rng)
    slots = rng.permutation(pages * block)[:rows].astype(np.int32)
    slots[rng.random(rows) < 0.15] = -1
    operands["slot_mapping"] = slots


def _cache(pages: int, params: Geometry, rng: np.random.Generator) -> Array:
    name, head_dim = str(params["kv_dtype"]), int(params["head_dim"])
    block, heads, form = int(params["block_size"]), int(params["n_head_kv"]), cache_dtype(name)
    shape = (pages, heads, block, form.row(head_dim))
    if not form.packed:
        return rng.normal(size=shape).astype(np.float32).astype(numpy_dtype(name))
    cache = np.zeros(shape, np.uint8)
    for part in kv_rows.parts(cache, name, head_dim):
        for page, offset in np.ndindex(pages, block):
            kv_rows.write(part, page, offset, numbers((heads, head_dim), np.dtype("f4"), rng))
    return cache


def _spoil(cache: Array, page: int, first: int, params: Geometry) -> None:
    """Put what is no number into the slots of a page from ``first`` on."""
    name = str(params["kv_dtype"])
    if not cache_dtype(name).packed:
        cache[page, :, first:] = np.nan
        return
    for part in kv_rows.parts(cache, name, int(params["head_dim"])):
        for offset in range(first, cache.shape[2]):
            part.put(page, offset, np.full((cache.shape[1], part.place.shape[1]), part.mask))
        part.scales[page, :, first:] = np.nan if part.half.grouped else 0xFF


def _attention(operands: Operands, params: Geometry, rng: np.random.Generator) -> None:
    """Make a ragged batch: decode rows first, then one sequence of q_len rows, then others."""
    most, block = int(params["q_len"]), int(params["block_size"])
    lengths = [int(v) for v in rng.integers(1, most + 1, int(rng.integers(1, 5)))]
    lengths[int(rng.integers(len(lengths)))] = most
    before = [int(v) for v in rng.choice([0, 1, 15, 16, 47, 64, 90, 130], len(lengths))]
    used = [a + b for a, b in zip(before, lengths, strict=True)]
    width = max(-(-u // block) for u in used) + 1
    pages = sum(-(-u // block) for u in used) + 2
    table = np.full((len(used), width), -1, np.int32)
    free = list(rng.permutation(pages))
    for s, u in enumerate(used):
        for p in range(-(-u // block)):
            table[s, p] = free.pop()
    heads = int(params["n_head"]) * int(params["head_dim"])
    kind = numpy_dtype(str(params["dtype"]))
    cache = _cache(pages, params, rng)
    # Memory that no sequence owns may hold anything.
    for page in free:
        _spoil(cache, page, 0, params)
    for s, u in enumerate(used):
        if u % block:
            _spoil(cache, table[s, u // block], u % block, params)
    operands["q"] = numbers((sum(lengths), heads), kind, rng)
    operands["kv_cache"] = cache
    operands["block_table"] = table
    operands["seqused"] = np.array(used, np.int32)
    operands["cu_seqlens"] = np.cumsum([0, *lengths]).astype(np.int32)


_SPECIAL: dict[str, Callable[[Operands, Geometry, np.random.Generator], None]] = {
    "mul": _mul,
    "gather_rows": _gather,
    "embed_lookup": _embed,
    "rope": _rope,
    "qk_norm_rope": _rope,
    "kv_store": _kv_store,
    "attn_paged": _attention,
    "dequant": _group_scales,
    "gemm_nt_q": _group_scales,
    "gemm_nt_q_add": _group_scales,
    "gemm_nt_q_bias": _group_scales,
    "logits_gemm_q": _group_scales,
    "quant_act_i8": _quantized,
    "rmsnorm_quant_i8": _quantized,
    **sampling_inputs.MAKERS,
}
