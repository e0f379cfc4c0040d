"""Formulas of the matrix products."""

import numpy as np

from radiance_abi.testing.case import F64, Case, codes_of, rounded
from radiance_abi.testing.formulas.expected import Expected, Formula, Near
from radiance_abi.testing.formulas.rows import act_of


def _product(a: F64, b: F64) -> tuple[F64, F64]:
    """Return a . b^T and the same of the absolute values."""
    return a @ b.T, np.abs(a) @ np.abs(b).T


def _activations(case: Case) -> F64:
    """Return a, decoded when it is int8."""
    if not case.has("a_scale"):
        return case.f64("a")
    codes = codes_of(case.array("a"), case.integer("planes", 1)).astype(np.float64)
    return np.asarray(codes * np.repeat(case.f64("a_scale"), case.integer("group"), axis=1))


def _plain(a: str, b: str, y: str) -> Formula:
    def formula(case: Case) -> Expected:
        x = case.f64("x") if a == "x" else _activations(case)
        value, size = _product(x, case.f64(b))
        return {y: Near(value, size)}

    return formula


def with_residual(case: Case) -> Expected:
    """Product, rounded, plus residual."""
    value, size = _product(_activations(case), case.f64("b"))
    res = case.f64("res")
    first = rounded(value, case.word("dtype"))
    return {"y": Near(first + res, size + np.abs(res), np.abs(first), 1)}


def gemm_nt_bias(case: Case) -> Expected:
    """Product plus bias, activation, residual; rounded after each."""
    value, size = _product(case.f64("a"), case.f64("b"))
    dtype = case.word("dtype")
    bias = case.f64("bias")
    size = size + np.abs(bias)
    first = rounded(value + bias, dtype)
    active = act_of(case.word("act"), first)
    if not case.has("res"):
        # gelu has slopes up to 1.13.
        return {"y": Near(active, 1.2 * size, 1.2 * np.abs(first), 1.2)}
    second = rounded(active, dtype)
    res = case.f64("res")
    stages = 1.2 * np.abs(first) + np.abs(second)
    return {"y": Near(second + res, 1.2 * size + np.abs(res), stages, 2.2)}


def gemm_nt_q_bias(case: Case) -> Expected:
    """Product of codes plus bias, rounded once."""
    value, size = _product(_activations(case), case.f64("b"))
    bias = case.f64("bias")
    return {"y": Near(value + bias, size + np.abs(bias))}


FORMULAS: dict[str, Formula] = {
    "gemm_nt": _plain("a", "b", "y"),
    "gemm_nt_add": with_residual,
    "gemm_nt_bias": gemm_nt_bias,
    "gemm_nt_q": _plain("a", "b", "y"),
    "gemm_nt_q_add": with_residual,
    "gemm_nt_q_bias": gemm_nt_q_bias,
    "gemm_nt_bf16": _plain("a", "b", "y"),
    "gemm_nt_bf16_add": with_residual,
    "logits_gemm": _plain("x", "lm_head", "logits"),
    "logits_gemm_q": _plain("a", "lm_head", "logits"),
    "logits_gemm_bf16": _plain("a", "lm_head", "logits"),
}
