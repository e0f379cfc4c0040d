"""The shapes that contract tests draw: params that satisfy a row's constraints, then operands."""

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from radiance_abi import Constraint, Kernel, OpSchema
from radiance_abi.ops import Param
from radiance_abi.testing import ENCODINGS, Case, inputs
from radiance_abi.testing.geometry import may_be_absent
from radiance_abi.testing.running import geometry_of

Value = int | float | str

# Least and most of an int param, in units of what it must be a multiple of.
_RANGES: dict[str, tuple[int, int, int]] = {
    "M": (1, 1, 40),
    "q_len": (1, 1, 40),
    "n": (8, 1, 80),
    "N": (1, 1, 150),
    "K": (32, 1, 24),
    "n_embd": (32, 1, 24),
    "n_vocab": (1, 40, 600),
    "n_cand": (1, 1, 64),
    "head_dim": (8, 1, 20),
    "n_head_kv": (1, 1, 4),
    "causal": (1, 0, 1),
    "window": (1, 0, 90),
}
_CHOICES: dict[str, tuple[Value, ...]] = {
    "group": (32, 64, 16, 128),
    "planes": (1, 2),
    "block_size": (16, 8, 32),
    "dtype": ("f32", "bf16", "f16"),
    "kv_dtype": ("f32", "bf16", "f16"),
    "from": ("f32", "bf16", "f16"),
    "to": ("f32", "bf16", "f16"),
    "mode": ("neox", "gptj"),
    "act": ("silu", "gelu_tanh"),
}
_FLOATS: dict[str, tuple[float, float]] = {
    "eps": (1e-6, 1e-4),
    "wadd": (0.0, 1.0),
    "factor": (-3.0, 30.0),
    "cap": (1.0, 60.0),
    "theta": (1e3, 1e6),
    "scale": (0.05, 4.0),
    "mscale": (0.5, 1.5),
    "softcap": (1.0, 60.0),
    "wscale": (0.5, 30.0),
}


@st.composite
def params(draw: st.DrawFn, kernel: Kernel, schema: OpSchema) -> dict[str, Value]:
    """Draw params of a kernel's op for which its constraints hold."""
    drawn: dict[str, Value] = {}
    ordered = sorted(schema.params, key=lambda p: (p.name != "group", p.name == "n_head"))
    for param in ordered:
        where = [c for c in kernel.where if c.key == param.name]
        if may_be_absent(param) and not where and not draw(st.booleans()):
            continue
        drawn[param.name] = draw(_param(schema.op, param, where, drawn))
    assume(all(c.holds(drawn.get(c.key)) for c in kernel.where))
    return {p.name: drawn[p.name] for p in schema.params if p.name in drawn}


def _param(
    op: str, param: Param, where: Sequence[Constraint], drawn: dict[str, Value]
) -> st.SearchStrategy[Value]:
    if param.kind == "s":
        words = next((c.words for c in where), None)
        if op == "gemm_nt_bias" and param.name == "act":
            words = words or ("none", "gelu", "gelu_tanh")
        return st.sampled_from(words or _CHOICES[param.name])
    if param.kind == "f":
        low, high = (
            (0.05, 0.5) if op == "attn_paged" and param.name == "scale" else _FLOATS[param.name]
        )
        positive = st.floats(low, high, allow_subnormal=False)
        # A cap of 0 is none; one next to 0 would be none only where it is narrowed to f32.
        return st.one_of(st.just(0.0), positive) if param.name == "softcap" else positive
    if param.name == "n_head":
        heads = int(drawn["n_head_kv"])
        return st.sampled_from([heads * g for g in (1, 2, 3, 4, 7, 8)])
    if param.name == "rotary_dim":
        return st.integers(1, int(drawn["head_dim"]) // 2).map(lambda half: 2 * half)
    if param.name in _CHOICES:
        fit = [v for v in _CHOICES[param.name] if all(c.holds(v) for c in where)]
        return st.sampled_from(fit or [c.value for c in where])
    return _int(param, where, drawn)


def _int(
    param: Param, where: Sequence[Constraint], drawn: dict[str, Value]
) -> st.SearchStrategy[Value]:
    fixed = next((c.value for c in where if c.op == "eq"), None)
    if fixed is not None:
        return st.just(fixed)
    unit, low, high = _RANGES.get(param.name, (1, 1, 64))
    # Sizes that groups or scales cut are whole numbers of them; all other limits are the row's own.
    group = int(drawn.get("group", 1)) if param.name in ("n", "K", "n_embd") else 1
    step = math.lcm(group, unit, *(c.value for c in where if c.op == "div"))
    least = max([low * unit, *(c.value for c in where if c.op == "ge")])
    most = min([max(high * unit, least + 2 * step), *(c.value for c in where if c.op == "le")])
    first, last = -(-least // step), most // step
    any_size = st.integers(first, max(first, last))
    # Encodings of nested blocks need whole blocks of 256 columns.
    whole = [k for k in range(first, last + 1) if k * step % 256 == 0]
    if param.name in ("K", "n_embd") and whole:
        any_size = st.one_of(any_size, st.sampled_from(whole))
    return any_size.map(lambda k: k * step)


@st.composite
def cases(draw: st.DrawFn, kernel: Kernel, schema: OpSchema) -> Case:
    """Draw a case for a row: params, an encoding that it reads, and a seed for the operands."""
    chosen = draw(params(kernel, schema))
    encoding = None
    for index, operand in enumerate(schema.operands):
        if operand.role == "weight" and len(operand.dims) > 1:
            shape = inputs.weight_shape(operand, chosen)
            geometry = geometry_of(kernel, chosen)
            fit = [e for e in ENCODINGS if inputs.reads(kernel, e, geometry, shape, index)]
            assume(fit)
            encoding = draw(st.sampled_from(fit))
    seed = draw(st.integers(0, 2**32 - 1))
    made = inputs.make(kernel, schema, chosen, np.random.default_rng(seed), encoding)
    assume(made is not None)
    assert made is not None, "assumed above"
    return made
