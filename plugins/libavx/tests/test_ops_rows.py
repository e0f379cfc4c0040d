"""What every op over rows promises: the same bits at all levels, alone or in a batch, strided.

Operands are made from the op's schema, so a case is an op and its params.
"""

import itertools
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from radiance_abi.ops import Operand, extent
from radiance_abi.vocabulary import STANDARD

Arrays = list[np.ndarray | None]
Rng = np.random.Generator

KINDS: dict[str, Any] = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i8": np.int8, "i32": np.int32,
}  # fmt: skip
WIDTHS = (1, 15, 16, 77, 576, 20000)


def wide(rng: Rng, *shape: int) -> np.ndarray:
    """Values over many magnitudes, with zeros of both signs."""
    x = rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 1.2, (*shape[:-1], 1))
    x[rng.random(shape) < 0.02] = 0.0
    return np.asarray(x * rng.choice([1.0, -1.0], shape), np.float32)


def junk(rng: Rng, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    """An output's old contents."""
    return rng.integers(-99, 99, shape).astype(dtype)


@dataclass(frozen=True)
class Case:
    """One op with its params.

    ``name``: the row's, where an op has several. ``free``: extents that the schema leaves open.
    ``absent``: optional operands that are left out. ``gain``: element type of weights.
    """

    op: str
    params: dict[str, Any]
    name: str | None = None
    free: dict[str, int] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    gain: str = "f32"

    def __str__(self) -> str:
        return "-".join([self.op, *(str(v) for v in self.params.values()), *self.absent])

    @property
    def operands(self) -> tuple[Operand, ...]:
        return STANDARD[self.op].operands

    def shared(self, index: int) -> bool:
        """Say whether an operand is not cut by rows."""
        return self.operands[index].dims[0] != "M" and self.op != "mul"

    def make(self, rng: Rng, rows: int) -> Arrays:
        return [self._make(operand, rng, rows) for operand in self.operands]

    def _make(self, operand: Operand, rng: Rng, rows: int) -> np.ndarray | None:
        if operand.name in self.absent:
            return None
        known = {**self.params, "M": rows}
        extents = [extent(dim, known) for dim in operand.dims]
        if self.op == "mul" and operand.name == "b":
            extents[0] = rows
        shape = [self.free[operand.name] if n is None else n for n in extents]
        if operand.name in ("idx", "positions"):
            top = self.free["x"] if operand.name == "idx" else 9000
            return rng.integers(-2 if operand.name == "idx" else 0, top, shape).astype(np.int32)
        if operand.name == "freqs":
            return np.asarray(10000.0 ** -rng.random(shape), np.float32)
        kind = KINDS.get(operand.dtype) or KINDS[str(self.params.get(operand.dtype, self.gain))]
        if operand.role == "out" or kind in (np.int8, np.int32):
            return junk(rng, *shape, dtype=kind)
        return wide(rng, *shape).astype(kind)

    def run(self, level: Any, operands: Arrays, grouping: int = 0) -> int:
        rows = next(len(o) for o in operands if o is not None)
        params = {"M": rows, **self.params}
        return int(level.row(self.op, self.name)(operands, params, grouping))


def _elementwise() -> list[Case]:
    plain = "silu gelu gelu_tanh sigmoid softmax add mul silu_mul gelu_tanh_mul"
    cases = [Case(op, {"n": n, "dtype": "f32"}) for op in plain.split() for n in WIDTHS]
    for n in WIDTHS:
        cases.append(Case("scale", {"n": n, "factor": 0.7, "dtype": "f32"}))
        cases.append(Case("softcap", {"n": n, "cap": 0.7, "dtype": "f32"}))
    for a in ("f32", "f16", "bf16"):
        cases += [Case("cast", {"n": 83, "from": a, "to": b}) for b in ("f32", "f16", "bf16")]
        cases.append(Case("gather_rows", {"n": 45, "dtype": a}, free={"x": 9}))
    return cases


def _norms() -> list[Case]:
    cases = []
    for n, gain in ((48, "f32"), (576, "f16"), (2049, "bf16"), (7, "f32")):
        tail = {"n": n, "eps": 1e-5, "dtype": "f32"}
        cases += [
            Case("rmsnorm", {**tail, "wadd": 1.0}, gain=gain),
            Case("rmsnorm_add", tail, gain=gain),
            Case("layernorm", tail, gain=gain),
            Case("layernorm", tail, gain=gain, absent=("b",)),
        ]
    sizes = ((96, 32), (640, 64), (288, 288), (60, 20), (9216, 32))
    for (n, group), planes in itertools.product(sizes, (1, 2)):
        tail = {"n": n, "group": group, "dtype": "f32", "planes": planes}
        cases += [
            Case("quant_act_i8", tail),
            Case("dequant", tail),
            Case("rmsnorm_quant_i8", {**tail, "eps": 1e-6}),
            Case("rmsnorm_add_quant_i8", {**tail, "eps": 1e-6}),
        ]
        for act in ("silu", "gelu_tanh"):
            cases.append(Case("gated_quant_i8", {**tail, "act": act}, f"gated_quant_i8_{act}"))
    return cases


def _rotations() -> list[Case]:
    cases = []
    shapes: list[tuple[int, int, int, dict[str, Any]]] = [
        (64, 9, 3, {}), (64, 2, 1, {"mode": "gptj"}), (80, 3, 3, {"rotary_dim": 20}),
        (8, 1, 1, {"mode": "gptj", "rotary_dim": 6}), (256, 4, 1, {"mscale": 1.3, "scale": 4.0}),
        (128, 200, 8, {}),
    ]  # fmt: skip
    for hd, heads, kv, extra in shapes:
        params = {"head_dim": hd, "n_head": heads, "n_head_kv": kv, "theta": 1e4, "dtype": "f32"}
        params |= extra
        free = {"qkv": (heads + 2 * kv) * hd, "freqs": extra.get("rotary_dim", hd) // 2}
        for absent in ((), ("freqs",)):
            cases.append(Case("rope", params, free=free, absent=absent))
            normed = {**params, "eps": 1e-6}
            cases.append(Case("qk_norm_rope", normed, free=free, absent=absent, gain="f16"))
    return cases


CASES = [*_elementwise(), *_norms(), *_rotations()]


def copies(operands: Arrays) -> Arrays:
    return [None if o is None else o.copy() for o in operands]


def same(a: Arrays, b: Arrays) -> bool:
    return all(
        x is y is None or (x is not None and y is not None and x.tobytes() == y.tobytes())
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_are_independent(levels: Any, case: Case) -> None:
    """A batch, each of its rows alone, any grouping, and every level give the same bytes."""
    rng = np.random.default_rng()
    start = case.make(rng, 5)
    whole = copies(start)
    assert case.run(levels[0], whole) == 0
    assert not same(start, whole), "the op wrote something"
    for level in levels:
        for grouping in (0, 1, 2):
            again = copies(start)
            assert case.run(level, again, grouping) == 0
            assert same(again, whole)
        for i in range(5):
            cut = [
                o if o is None or case.shared(k) else o[i : i + 1].copy()
                for k, o in enumerate(start)
            ]
            assert case.run(level, cut) == 0
            for k, (got, want) in enumerate(zip(cut, whole, strict=True)):
                if got is not None and want is not None and not case.shared(k):
                    assert got.tobytes() == want[i : i + 1].tobytes()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_strided_rows(levels: Any, case: Case) -> None:
    """Rows inside wider, oddly aligned buffers give the same bytes; what is around them stays."""
    rng = np.random.default_rng()
    start = case.make(rng, 4)
    whole = copies(start)
    assert case.run(levels[0], whole) == 0
    for level in levels:
        around, inside = [], []
        for o in start:
            if o is None or o.ndim != 2:
                inside.append(o)
                continue
            big = np.full((2 * len(o), o.shape[1] + 5), 42, o.dtype)
            view = big[1::2, 3 : 3 + o.shape[1]]
            view[...] = o
            around.append(big)
            inside.append(view)
        assert case.run(level, inside) == 0
        assert same([None if o is None else np.ascontiguousarray(o) for o in inside], whole)
        for big in around:
            assert (big[::2] == 42).all()
            assert (big[:, :3] == 42).all()
            assert (big[:, -2:] == 42).all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_rows(levels: Any, case: Case) -> None:
    """A call without rows succeeds."""
    for level in levels:
        assert case.run(level, case.make(np.random.default_rng(), 0)) == 0


FIRST = list({case.op: case for case in CASES}.values())


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_refuses_wrong_operands(levels: Any, case: Case) -> None:
    """Each operand in turn with wrong rank, extent, type or stride: a negative status."""
    rng = np.random.default_rng()
    schema = STANDARD[case.op]
    start = case.make(rng, 3)
    for level in levels:
        for k, operand in enumerate(start):
            if operand is None:
                continue
            broken = [operand[None], operand.astype(np.float64)]
            # A rotated row may be wider than its heads.
            if not (case.op in ("rope", "qk_norm_rope") and k == 0):
                broken.append(np.zeros((*operand.shape[:-1], operand.shape[-1] + 1), operand.dtype))
            if schema.operands[k].dims[0] == "M" and k > 0:
                broken.append(np.zeros((4, *operand.shape[1:]), operand.dtype))
            if operand.ndim == 2 and operand.shape[1] > 1:
                broken.append(np.asfortranarray(operand))
            if operand.itemsize > 1:
                raw = np.zeros(operand.nbytes + 1, np.uint8)
                broken.append(raw[1:].view(operand.dtype).reshape(operand.shape))
            for bad in broken:
                operands = copies(start)
                operands[k] = bad
                assert case.run(level, operands) < 0, f"operand {k} as {bad.dtype}{bad.shape}"
            operands = copies(start)
            if not schema.operands[k].optional:
                operands[k] = None
                if k > 0:
                    assert case.run(level, operands) < 0, f"operand {k} absent"


CHAINS = {
    "silu_mul": "silu+mul",
    "gelu_tanh_mul": "gelu_tanh+mul",
    "rmsnorm_add": "add+rmsnorm",
    "rmsnorm_quant_i8": "rmsnorm+quant_act_i8",
    "rmsnorm_add_quant_i8": "rmsnorm_add+quant_act_i8",
    "gated_quant_i8_silu": "silu_mul+quant_act_i8",
    "gated_quant_i8_gelu_tanh": "gelu_tanh_mul+quant_act_i8",
    "gemm_nt_add": "gemm_nt+add",
    "gemm_nt_q_add": "gemm_nt_q+add",
    "gemm_nt_bf16_add": "gemm_nt_bf16+add",
    "sample_draw": ("sample_topk+sample_topp+sample_minp+sample_typical+sample_xtc+sample_pick"),
}


def test_every_fusion_claims_its_chain(levels: Any) -> None:
    """The rows that claim to replace a chain are those whose bytes are compared.

    Below, that of sample_draw in test_ops_sampling_draw, those of products in test_gemm and its
    kin. Rows of products are named after what they read, so here after their op.
    """
    for level in levels:
        fused = [r for r in level.rows if r.c.replaces]
        names = [r.name if r.op in r.name else r.op for r in fused]
        claims = {n: r.ffi.string(r.c.replaces).decode() for n, r in zip(names, fused, strict=True)}
        assert claims == CHAINS


def _codes(rng: Rng, m: int, n: int, group: int, planes: int) -> Arrays:
    parts = n // group
    scale, sums = junk(rng, m, parts), junk(rng, m, parts, dtype=np.int32)
    return [junk(rng, m, planes * n, dtype=np.int8), scale, sums]


def _call(level: Any, op: str, operands: Arrays, **params: Any) -> None:
    assert level.row(op)(operands, {"M": 9, "dtype": "f32", **params}) == 0


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("op", ["silu_mul", "gelu_tanh_mul"])
def test_gates_equal_their_chains(levels: Any, op: str, planes: int) -> None:
    """act(gate) * up in one op has the bytes of the two ops, also when codes follow."""
    rng = np.random.default_rng()
    n, group = 9216 + 64, 32
    act_name = op.removesuffix("_mul")
    coded = {"n": n, "group": group, "planes": planes}
    pair = wide(rng, 5, 2 * n)
    for level in levels:
        act, fused, chained = junk(rng, 5, n), junk(rng, 5, n), junk(rng, 5, n)
        _call(level, op, [pair, fused], n=n)
        _call(level, act_name, [pair[:, :n], act], n=n)
        _call(level, "mul", [act, pair[:, n:], chained], n=n)
        assert fused.tobytes() == chained.tobytes()
        one, two = (_codes(rng, 5, n, group, planes) for _ in range(2))
        _call(level, "quant_act_i8", [chained, *one], **coded)
        row = level.row("gated_quant_i8", f"gated_quant_i8_{act_name}")
        assert row([pair, *two], {"M": 5, "act": act_name, "dtype": "f32", **coded}) == 0
        assert same(one, two)


@pytest.mark.parametrize("planes", [1, 2])
def test_norms_equal_their_chains(levels: Any, planes: int) -> None:
    """add, rmsnorm and codes in one op have the bytes of the ops in a row."""
    rng = np.random.default_rng()
    n, group = 576, 64
    x, residual = wide(rng, 6, n), wide(rng, 6, n)
    w = rng.normal(size=n).astype(ml_dtypes.bfloat16)
    norm = {"n": n, "eps": 1e-6, "wadd": 1.0}
    coded = {"group": group, "planes": planes}
    for level in levels:
        total, normed, codes = junk(rng, 6, n), junk(rng, 6, n), _codes(rng, 6, n, group, planes)
        _call(level, "add", [x, residual, total], n=n)
        _call(level, "rmsnorm", [total, w, normed], **norm)
        _call(level, "quant_act_i8", [normed, *codes], n=n, **coded)
        y, out = junk(rng, 6, n), junk(rng, 6, n)
        _call(level, "rmsnorm_add", [x, residual, w, y, out], **norm)
        assert same([y, out], [normed, total])
        fused, out = _codes(rng, 6, n, group, planes), junk(rng, 6, n)
        _call(level, "rmsnorm_add_quant_i8", [x, residual, w, *fused, out], **norm, **coded)
        assert same([*fused, out], [*codes, total])
        fused = _codes(rng, 6, n, group, planes)
        _call(level, "rmsnorm_quant_i8", [total, w, *fused], **norm, **coded)
        assert same(fused, codes)


def test_in_place(levels: Any) -> None:
    """Outputs may be the inputs themselves: a residual that is updated where it lies."""
    rng = np.random.default_rng()
    n = 100
    x, residual, w = wide(rng, 4, n), wide(rng, 4, n), rng.normal(size=n).astype(np.float32)
    for level in levels:
        y, out = junk(rng, 4, n), junk(rng, 4, n)
        _call(level, "rmsnorm_add", [x, residual, w, y, out], n=n, eps=1e-6)
        a, b = x.copy(), residual.copy()
        _call(level, "rmsnorm_add", [a, b, w, a, b], n=n, eps=1e-6)
        assert same([a, b], [y, out])
        _call(level, "silu", [x, y], n=n)
        a = x.copy()
        _call(level, "silu", [a, a], n=n)
        assert same([a], [y])
