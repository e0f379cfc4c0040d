"""Params that satisfy a kernel's constraints, fresh at every draw."""

import math
from collections.abc import Sequence

import numpy as np

from radiance_abi.errors import AbiError
from radiance_abi.kernels import Constraint, Kernel
from radiance_abi.ops import OpSchema, Param

Value = int | float | str

_INTS: dict[str, tuple[int, ...]] = {
    "M": (1, 2, 3, 5, 8, 13, 17, 33, 40),
    "q_len": (1, 2, 5, 16, 19, 37),
    "n": (32, 64, 96, 160, 256, 576, 640),
    "N": (8, 16, 24, 48, 72, 96, 128, 160, 200, 256, 7, 33),
    "K": (64, 96, 128, 160, 256, 512, 576, 768),
    "n_embd": (64, 96, 128, 160, 256, 512, 576, 768),
    "n_vocab": (64, 100, 257, 320, 515, 1000),
    "n_cand": (1, 8, 32, 40, 64),
    "n_bias": (1, 4, 16),
    "n_top": (1, 5, 20),
    "group": (32, 64, 128, 16),
    "planes": (1, 2),
    "head_dim": (64, 80, 96, 128, 8, 16, 40, 256),
    "n_head": (1, 2, 3, 4, 6, 7, 8, 14),
    "n_head_kv": (1, 2, 3),
    "block_size": (16, 32, 8, 64),
    "causal": (1, 1, 0),
    "window": (0, 0, 5, 24, 70),
}
_FLOATS: dict[str, tuple[float, ...]] = {
    "eps": (1e-5, 1e-6, 1e-12),
    "wadd": (0.0, 1.0),
    "factor": (0.125, 1.7, 24.0, -3.0),
    "cap": (30.0, 50.0, 2.5),
    "theta": (1e4, 1e6, 5e5),
    "scale": (1.0, 4.0, 0.11),
    "mscale": (1.0, 1.3),
    "softcap": (0.0, 20.0),
    "wscale": (1.0, 24.0),
}
_WORDS: dict[str, tuple[str, ...]] = {
    "dtype": ("f32",),
    "kv_dtype": ("f32",),
    "from": ("f32", "bf16", "f16"),
    "to": ("bf16", "f16", "f32"),
    "mode": ("neox", "gptj"),
    "act": ("silu", "gelu_tanh"),
}
# Where the same name means something else.
_OF_OP: dict[tuple[str, str], tuple[Value, ...]] = {
    ("gemm_nt_bias", "act"): ("none", "gelu", "gelu_tanh"),
    ("attn_paged", "scale"): (0.25, 0.11),
}
_MULTIPLES_OF_GROUP = ("n", "K", "n_embd")
_IN_TURN = ("planes",)
_COLUMNS = ("K", "n_embd")


def draw(
    kernel: Kernel, schema: OpSchema, rng: np.random.Generator, turn: int = 0, columns: int = 1
) -> dict[str, Value]:
    """Return params for one case: constraints hold and extents divide as the schema says.

    ``turn`` counts the cases of a row: words of a constraint and numbers of planes take turns, so
    that each is met.
    ``columns``: what the columns of a weight must be a multiple of, for the blocks of its encoding.

    Raises:
        AbiError: constraints contradict each other, or nothing satisfies them.
    """
    drawn: dict[str, Value] = {}
    for param in sorted(schema.params, key=lambda p: p.name != "group"):
        where = [c for c in kernel.where if c.key == param.name]
        if may_be_absent(param) and not where and rng.random() < 0.4:
            continue
        if param.name in _COLUMNS and columns > 1:
            where = [*where, Constraint(param.name, "div", columns)]
        value = _value(kernel, schema, param, where, drawn, rng, turn)
        if value is not None:
            drawn[param.name] = value
    # Heads share key heads evenly.
    if "n_head" in drawn and "n_head_kv" in drawn:
        _even_heads(kernel, drawn, rng)
    return {p.name: drawn[p.name] for p in schema.params if p.name in drawn}


def may_be_absent(param: Param) -> bool:
    """Return whether a call may lack a param; an int with a default sizes operands."""
    return param.optional and not param.derived and (param.kind != "i" or param.default is None)


def _value(
    kernel: Kernel,
    schema: OpSchema,
    param: Param,
    where: Sequence[Constraint],
    drawn: dict[str, Value],
    rng: np.random.Generator,
    turn: int,
) -> Value | None:
    known = _OF_OP.get((schema.op, param.name))
    if param.kind == "s":
        words = next((c.words for c in where if c.op == "in"), None)
        options: Sequence[Value] = words or known or _WORDS.get(param.name, ())
        if not options:
            raise AbiError(f"{schema.op}: no word is known for param {param.name}; constrain it")
        return options[(turn + _offset(param.name)) % len(options)]
    if param.kind == "f":
        floats = known or _FLOATS.get(param.name, (1.0,))
        return float(floats[int(rng.integers(len(floats)))])
    if param.name == "rotary_dim":
        head_dim = int(drawn.get("head_dim", 64))
        return _integer(schema.op, where, [head_dim, max(2, head_dim // 4 * 2)], rng)
    options_int = [int(v) for v in known or _INTS.get(param.name, (1, 2, 4, 8, 16, 32, 64))]
    group = drawn.get("group")
    if isinstance(group, int) and param.name in _MULTIPLES_OF_GROUP:
        where = [*where, Constraint(param.name, "div", group)]
        options_int = [group * k for k in (1, 2, 3, 5, 8, 16, 24)]
    place = turn + _offset(param.name) if param.name in _IN_TURN else None
    return _integer(f"{schema.op} {kernel.name}", where, options_int, rng, place)


def _offset(name: str) -> int:
    """Shift turns of different params against each other."""
    return sum(name.encode()) % 7


def _integer(
    subject: str,
    where: Sequence[Constraint],
    options: Sequence[int],
    rng: np.random.Generator,
    turn: int | None = None,
) -> int:
    """Return one of the options that satisfies constraints, by ``turn`` or at random."""
    good = [v for v in options if all(c.holds(v) for c in where)]
    if not good:
        good = _solutions(where)
    if not good:
        raise AbiError(
            f"{subject}: expected constraints that some int satisfies, got "
            f"{', '.join(map(str, where))}"
        )
    return int(good[int(rng.integers(len(good))) if turn is None else turn % len(good)])


def _solutions(where: Sequence[Constraint]) -> list[int]:
    """Return some ints that satisfy constraints which no usual value does."""
    step = math.lcm(*(c.value for c in where if c.op == "div" and c.value > 0))
    low = max([c.value for c in where if c.op in ("ge", "eq")], default=1)
    first = -(-low // step) * step
    tries = [first + step * k for k in range(4)]
    tries += [c.value for c in where if c.op in ("le", "eq")]
    return [v for v in tries if v > 0 and all(c.holds(v) for c in where)]


def _even_heads(kernel: Kernel, drawn: dict[str, Value], rng: np.random.Generator) -> None:
    where = [c for c in kernel.where if c.key in ("n_head", "n_head_kv")]
    pairs = [(h * g, h) for h in (1, 2, 3, 4, 8) for g in (1, 2, 3, 4, 7, 8)]
    pairs.append((int(drawn["n_head"]), int(drawn["n_head_kv"])))
    good = [
        p
        for p in pairs
        if p[0] % p[1] == 0 and all(c.holds(p[0] if c.key == "n_head" else p[1]) for c in where)
    ]
    if not good:
        raise AbiError(f"{kernel.op} {kernel.name}: no n_head is a multiple of n_head_kv here")
    drawn["n_head"], drawn["n_head_kv"] = good[int(rng.integers(min(len(good), 22)))]
