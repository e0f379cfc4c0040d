"""Formulas of ops that look at one row at a time.

One file, because it is a list: a formula is a few lines.
"""

import math

import numpy as np

from radiance_abi.testing.case import F64, MOST_CODE, Array, Case, codes_of, numpy_dtype, rounded
from radiance_abi.testing.formulas.expected import Codes, Exact, Expected, Formula, Near

_erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid_of(x: F64) -> F64:
    """Return 1 / (1 + e^-x) without overflow."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + e), e / (1 + e)))


def act_of(name: str, x: F64) -> F64:
    """Return an activation by name."""
    if name == "silu":
        return x * sigmoid_of(x)
    if name == "gelu":
        return np.asarray(x * (1 + _erf(x * math.sqrt(0.5))) / 2)
    if name == "gelu_tanh":
        inner = math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)
        return np.asarray(x * (1 + np.tanh(inner)) / 2)
    assert name == "none", f"no activation {name}"
    return x


def f32_gain(case: Case, name: str) -> F64:
    """Return a gain plus ``wadd``, as f32 holds the sum."""
    gain = case.f64(name).astype(np.float32) + np.float32(case.number("wadd"))
    return gain.astype(np.float64)


def _rms(x: F64, eps: float) -> F64:
    return np.asarray(np.sqrt(np.einsum("...n,...n->...", x, x) / x.shape[-1] + eps)[..., None])


def norm_of(x: F64, gain: F64, eps: float, over: F64 | None = None) -> F64:
    """Return x / rms * gain; the rms is that of ``over``, or of x."""
    return x / _rms(x if over is None else over, eps) * gain


def _rmsnorm(case: Case) -> Near:
    y = norm_of(case.f64("x"), f32_gain(case, "w"), case.number("eps"))
    return Near(y, np.abs(y))


def _rmsnorm_add(case: Case) -> tuple[Near, Exact]:
    exact = case.f64("x") + case.f64("residual")
    total = exact.astype(np.float32).astype(np.float64)
    stored = rounded(exact, case.word("dtype"))
    y = norm_of(stored, f32_gain(case, "w"), case.number("eps"), over=total)
    return Near(y, np.abs(y)), Exact(stored.astype(case.array("x").dtype))


def rmsnorm(case: Case) -> Expected:
    """Root mean square norm."""
    return {"y": _rmsnorm(case)}


def rmsnorm_add(case: Case) -> Expected:
    """The norm of a sum; the sum itself is exact."""
    y, residual = _rmsnorm_add(case)
    return {"y": y, "residual_out": residual}


def _codes(case: Case, y: Near) -> Codes:
    """Return codes of a value that is rounded once more on the way."""
    staged = Near(y.value, y.magnitude, np.abs(y.value) + y.stages, 1 + y.gains)
    return Codes(staged, case.integer("group"), case.integer("planes", 1))


def rmsnorm_quant_i8(case: Case) -> Expected:
    """Codes of the norm."""
    return {"q": _codes(case, _rmsnorm(case))}


def rmsnorm_add_quant_i8(case: Case) -> Expected:
    """Codes of the norm of a sum."""
    y, residual = _rmsnorm_add(case)
    return {"q": _codes(case, y), "residual_out": residual}


def layernorm(case: Case) -> Expected:
    """Mean and biased variance norm."""
    x, w = case.f64("x"), case.f64("w")
    mean = x.mean(axis=1, keepdims=True)
    deviation = np.sqrt(((x - mean) ** 2).mean(axis=1, keepdims=True) + case.number("eps"))
    y = (x - mean) / deviation * w
    b = case.f64("b") if case.has("b") else np.zeros(x.shape[1])
    # The mean is a sum that may cancel: its error follows the sizes that went into it.
    size = np.abs(x) + np.abs(x).mean(axis=1, keepdims=True)
    return {"y": Near(y + b, size / deviation * np.abs(w) + np.abs(b))}


def _stored(case: Case, name: str, exact: F64) -> Exact:
    """Return a result that f32 arithmetic gives exactly as f64 does, then narrowed."""
    kind = case.array(name).dtype
    return Exact(exact.astype(np.float32).astype(kind))


def add(case: Case) -> Expected:
    """Sum."""
    return {"y": _stored(case, "a", case.f64("a") + case.f64("b"))}


def mul(case: Case) -> Expected:
    """Product; numpy broadcasts one row."""
    return {"y": _stored(case, "a", case.f64("a") * case.f64("b"))}


def scale(case: Case) -> Expected:
    """Product with a number that is narrowed to f32."""
    factor = float(np.float32(case.number("factor")))
    return {"y": _stored(case, "x", case.f64("x") * factor)}


def softcap(case: Case) -> Expected:
    """A tanh that saturates at cap."""
    cap = case.number("cap")
    y = cap * np.tanh(case.f64("x") / cap)
    return {"y": Near(y, np.abs(y))}


def _pointwise(name: str) -> Formula:
    def formula(case: Case) -> Expected:
        x = case.f64("x")
        return {"y": Near(act_of(name, x), np.abs(x))}

    return formula


def sigmoid(case: Case) -> Expected:
    """Logistic function."""
    y = sigmoid_of(case.f64("x"))
    return {"y": Near(y, np.ones_like(y))}


def softmax(case: Case) -> Expected:
    """Normalised exponentials of a row."""
    x = case.f64("x")
    e = np.exp(x - x.max(axis=1, keepdims=True))
    y = e / e.sum(axis=1, keepdims=True)
    # An error of x - max in f32 is one of the exponent.
    return {"y": Near(y, y * (1 + np.abs(x - x.max(axis=1, keepdims=True))))}


def _gated(case: Case, act: str) -> Near:
    gate_up = case.f64("gate_up")
    half = gate_up.shape[1] // 2
    gate, up = gate_up[:, :half], gate_up[:, half:]
    y = rounded(act_of(act, gate), case.word("dtype")) * up
    return Near(y, np.abs(gate * up), np.abs(y), np.abs(up))


def silu_mul(case: Case) -> Expected:
    """Gate with silu."""
    return {"y": _gated(case, "silu")}


def gelu_tanh_mul(case: Case) -> Expected:
    """Gate with gelu_tanh."""
    return {"y": _gated(case, "gelu_tanh")}


def gated_quant_i8(case: Case) -> Expected:
    """Codes of a gated product."""
    return {"q": _codes(case, _gated(case, case.word("act")))}


def cast(case: Case) -> Expected:
    """Another element type."""
    values = rounded(case.f64("x"), case.word("to"))
    return {"y": Exact(values.astype(np.float32).astype(numpy_dtype(case.word("to"))))}


def gather_rows(case: Case) -> Expected:
    """Rows by index; a negative one is zeros."""
    x, index = case.array("x"), case.array("idx")
    y = np.zeros((len(index), x.shape[1]), x.dtype)
    for i, j in enumerate(index.tolist()):
        if j >= 0:
            y[i] = x[j]
    return {"y": Exact(y)}


def embed_lookup(case: Case) -> Expected:
    """Rows of the token table, times wscale."""
    table, tokens = case.f64("wte"), case.array("tokens")
    factor = float(np.float32(case.number("wscale", 1.0)))
    x = np.zeros((len(tokens), table.shape[1]))
    for i, token in enumerate(tokens.tolist()):
        if token >= 0:
            x[i] = table[token] * factor
    # Decoding a block of codes in f32 adds terms of the block's size.
    size = np.broadcast_to(np.abs(x).max(axis=1, keepdims=True), x.shape)
    return {"x": Near(x, np.asarray(size))}


def quant_act_i8(case: Case) -> Expected:
    """Codes and scales, spelt in f32 operations that every machine rounds alike."""
    x = case.array("x").astype(np.float32)
    group, planes = case.integer("group"), case.integer("planes", 1)
    most = np.float32(MOST_CODE[planes])
    groups = x.reshape(len(x), -1, group)
    amax = np.abs(groups).max(axis=2)
    with np.errstate(divide="ignore"):
        inverse = np.where(amax > 0, most / amax, np.float32(0))
    codes = np.rint(groups * inverse[:, :, None]).astype(np.int32)
    asum: Array = codes.sum(axis=2, dtype=np.int32)
    codes = codes.reshape(x.shape)
    high = codes if planes == 1 else np.floor_divide(codes + 64, 128)
    parts = [high] if planes == 1 else [high, codes - 128 * high]
    return {
        "q": Exact(np.concatenate(parts, axis=1).astype(np.int8)),
        "scale": Exact((amax / most).astype(np.float32)),
        "asum": Exact(asum),
    }


def dequant(case: Case) -> Expected:
    """Codes times scales, one rounding."""
    q = codes_of(case.array("q"), case.integer("planes", 1)).astype(np.float64)
    scales = np.repeat(case.f64("scale"), case.integer("group"), axis=1)
    return {"y": Exact((q * scales).astype(np.float32).astype(numpy_dtype(case.word("dtype"))))}


FORMULAS: dict[str, Formula] = {
    "rmsnorm": rmsnorm,
    "rmsnorm_add": rmsnorm_add,
    "rmsnorm_quant_i8": rmsnorm_quant_i8,
    "rmsnorm_add_quant_i8": rmsnorm_add_quant_i8,
    "layernorm": layernorm,
    "add": add,
    "mul": mul,
    "scale": scale,
    "softcap": softcap,
    "silu": _pointwise("silu"),
    "gelu": _pointwise("gelu"),
    "gelu_tanh": _pointwise("gelu_tanh"),
    "sigmoid": sigmoid,
    "softmax": softmax,
    "silu_mul": silu_mul,
    "gelu_tanh_mul": gelu_tanh_mul,
    "gated_quant_i8": gated_quant_i8,
    "cast": cast,
    "gather_rows": gather_rows,
    "embed_lookup": embed_lookup,
    "quant_act_i8": quant_act_i8,
    "dequant": dequant,
}
