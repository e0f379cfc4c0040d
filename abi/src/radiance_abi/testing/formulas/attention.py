"""Formulas of rope, the paged cache and attention: plain loops over tokens and heads."""

import numpy as np

from radiance_abi.kv_cache import cache_dtype
from radiance_abi.testing.case import F64, Array, Case, rounded
from radiance_abi.testing.formulas import kv_rows
from radiance_abi.testing.formulas.expected import F32_SLACK, Exact, Expected, Formula, Near
from radiance_abi.testing.formulas.rows import f32_gain, norm_of

_FLUSHED = float(np.finfo(np.float32).tiny)
"""Weights of a softmax, and products with them, that are less than this may count as 0 in f32."""


def _pairs(rotary: int, mode: str) -> list[tuple[int, int]]:
    """Return which two elements of a head turn together."""
    half = rotary // 2
    if mode == "neox":
        return [(i, i + half) for i in range(half)]
    return [(2 * i, 2 * i + 1) for i in range(half)]


def _turned(case: Case, qkv: F64) -> tuple[F64, F64]:
    """Return rotated rows, and the size of the terms."""
    head_dim = case.integer("head_dim")
    rotary = case.integer("rotary_dim") or head_dim
    heads = case.integer("n_head") + case.integer("n_head_kv")
    position = case.f64("positions")
    mscale = np.float32(case.number("mscale", 1.0))
    out, size = qkv.copy(), np.abs(qkv)
    for i, (a, b) in enumerate(_pairs(rotary, case.word("mode"))):
        if case.has("freqs"):
            frequency = case.f64("freqs")[i]
        else:
            frequency = case.number("theta") ** (-2 * i / rotary) / case.number("scale", 1.0)
        angle = position * frequency
        cos = (np.cos(angle).astype(np.float32) * mscale).astype(np.float64)[:, None]
        sin = (np.sin(angle).astype(np.float32) * mscale).astype(np.float64)[:, None]
        firsts = [h * head_dim + a for h in range(heads)]
        seconds = [h * head_dim + b for h in range(heads)]
        x, y = qkv[:, firsts], qkv[:, seconds]
        out[:, firsts], out[:, seconds] = x * cos - y * sin, x * sin + y * cos
        size[:, firsts] = size[:, seconds] = (np.abs(x) + np.abs(y)) * float(mscale)
    return out, size


def rope(case: Case) -> Expected:
    """Turn every pair by position times frequency."""
    out, size = _turned(case, case.f64("qkv"))
    return {"qkv": Near(out, size)}


def qk_norm_rope(case: Case) -> Expected:
    """Norm of each head, rounded, then rope."""
    head_dim, n_head = case.integer("head_dim"), case.integer("n_head")
    normed = case.f64("qkv").copy()
    for h in range(n_head + case.integer("n_head_kv")):
        gain = f32_gain(case, "q_w" if h < n_head else "k_w")
        part = normed[:, h * head_dim : (h + 1) * head_dim]
        part[:] = rounded(norm_of(part, gain, case.number("eps")), case.word("dtype"))
    out, size = _turned(case, normed)
    # |cos| + |sin| is at most the root of 2; what is not turned keeps its rounding.
    magnified = max(1.0, 2**0.5 * case.number("mscale", 1.0))
    return {"qkv": Near(out, 2 * size, size, magnified)}


def kv_store(case: Case) -> Expected:
    """Each token's key and value at its slot; packed ones are the same bytes from every kernel."""
    cache = case.array("kv_cache").copy()
    head_dim, heads = case.integer("head_dim"), cache.shape[1]
    packed = cache_dtype(case.word("kv_dtype")).packed
    halves = kv_rows.parts(cache, case.word("kv_dtype"), head_dim) if packed else []
    both = [case.f64(n).astype(np.float32).reshape(-1, heads, head_dim) for n in ("k", "v")]
    for i, slot in enumerate(case.array("slot_mapping").tolist()):
        if slot < 0:
            continue
        page, offset = divmod(slot, cache.shape[2])
        for part, rows in zip(halves, both, strict=False):
            kv_rows.write(part, page, offset, rows[i])
        if not packed:
            cache[page, :, offset] = np.concatenate([x[i] for x in both], 1).astype(cache.dtype)
    return {"kv_cache": Exact(cache)}


def _keys_and_values(case: Case) -> tuple[list[F64], list[F64]]:
    """Return keys and values f64 [P, K, B, D], and how large what makes them up is."""
    head_dim, name = case.integer("head_dim"), case.word("kv_dtype")
    if cache_dtype(name).packed:
        found = [kv_rows.read(p) for p in kv_rows.parts(case.array("kv_cache"), name, head_dim)]
        return [value for value, _ in found], [size for _, size in found]
    cache = case.f64("kv_cache")
    both = [cache[..., :head_dim], cache[..., head_dim:]]
    return both, [np.abs(x) for x in both]


def _visible(case: Case, count: int, length: int) -> Array:
    """Return which positions each of the last ``count`` sees, bool [count, length]."""
    row = np.arange(length - count, length)[:, None]
    key = np.arange(length)
    window = case.integer("window")
    seen = key <= row if case.integer("causal") else np.ones((count, length), bool)
    return seen & (np.abs(row - key) < window) if window > 0 else seen


def attn_paged(case: Case) -> Expected:
    """Softmax over the visible keys of every query."""
    head_dim, n_head = case.integer("head_dim"), case.integer("n_head")
    both, sizes = _keys_and_values(case)
    table, block = case.array("block_table"), case.array("kv_cache").shape[2]
    q = case.f64("q").reshape(-1, n_head, head_dim)
    out, size = np.zeros_like(q), np.zeros_like(q)
    cuts = case.array("cu_seqlens").tolist()
    for s, length in enumerate(case.array("seqused").tolist()):
        at = np.arange(length)
        at = at[table[s, at // block] >= 0]
        visible = _visible(case, cuts[s + 1] - cuts[s], length)[:, at]
        at, visible = at[visible.any(axis=0)], visible[:, visible.any(axis=0)]
        held = (x[table[s, at // block], :, at % block] for x in (*both, *sizes))
        rows = slice(cuts[s], cuts[s + 1])
        out[rows], size[rows] = _attended(case, q[rows], visible, *held)
    near = Near(out.reshape(len(q), -1), size.reshape(len(q), -1))
    return {"out": near, "kv_cache": Exact(case.array("kv_cache"))}


def _attended(
    case: Case, q: F64, visible: Array, keys: F64, values: F64, key_sizes: F64, value_sizes: F64
) -> tuple[F64, F64]:
    """Return what queries [i, H, D] find among keys [j, K, D], and the size of the terms."""
    factor, cap = case.number("scale") or q.shape[-1] ** -0.5, case.number("softcap")
    out, size = np.zeros_like(q), np.zeros_like(q)
    some = visible.any(axis=1)  # a row that sees nothing is zeros
    hidden = ~visible[some]
    shared = q.shape[1] // keys.shape[1]
    for h in range(q.shape[1] if some.any() else 0):
        k = h // shared
        logits = factor * (q[some, h] @ keys[:, k].T)
        sizes = abs(factor) * (np.abs(q[some, h]) @ key_sizes[:, k].T)
        reach = np.where(hidden, 0, sizes).max(axis=1, keepdims=True)
        if cap > 0:
            logits = cap * np.tanh(logits / cap)
        logits = np.where(hidden, -np.inf, logits)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        out[some, h] = weights @ values[:, k]
        size[some, h] = (weights @ value_sizes[:, k]) * (1 + reach)
        size[some, h] += _FLUSHED / F32_SLACK * (visible[some] @ (value_sizes[:, k] + 1))
    return out, size


FORMULAS: dict[str, Formula] = {
    "rope": rope,
    "qk_norm_rope": qk_norm_rope,
    "kv_store": kv_store,
    "attn_paged": attn_paged,
}
