"""Formulas of rope, the paged cache and attention: plain loops over tokens and heads."""

import numpy as np

from radiance_abi.kv_cache import cache_dtype
from radiance_abi.testing.case import F64, Case, rounded
from radiance_abi.testing.formulas import kv_rows
from radiance_abi.testing.formulas.expected import Exact, Expected, Formula, Near
from radiance_abi.testing.formulas.rows import f32_gain, norm_of


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


def _visible(case: Case, position: int, length: int) -> list[int]:
    """Return the positions that a query at ``position`` sees."""
    keys = range(position + 1) if case.integer("causal") else range(length)
    window = case.integer("window")
    return [j for j in keys if window <= 0 or abs(position - j) < window]


def attn_paged(case: Case) -> Expected:
    """Softmax over the visible keys of every query."""
    head_dim, n_head, n_kv = (case.integer(n) for n in ("head_dim", "n_head", "n_head_kv"))
    both, sizes = _keys_and_values(case)
    table, block = case.array("block_table"), case.array("kv_cache").shape[2]
    q = case.f64("q").reshape(-1, n_head, head_dim)
    factor = case.number("scale") or head_dim**-0.5
    cap = case.number("softcap")
    out, size = np.zeros_like(q), np.zeros_like(q)
    cuts = case.array("cu_seqlens").tolist()
    for s, length in enumerate(case.array("seqused").tolist()):
        count = cuts[s + 1] - cuts[s]
        for i in range(count):
            seen = _visible(case, length - count + i, length)
            seen = [j for j in seen if table[s, j // block] >= 0]
            if not seen:
                continue
            where = np.array(seen)
            keys, values, key_sizes, value_sizes = (
                np.repeat(x[table[s, where // block], :, where % block], n_head // n_kv, axis=1)
                for x in (*both, *sizes)
            )
            row = q[cuts[s] + i]
            logits = factor * np.einsum("hd,jhd->hj", row, keys)
            reach = abs(factor) * np.einsum("hd,jhd->hj", np.abs(row), key_sizes).max(axis=1)
            if cap > 0:
                logits = cap * np.tanh(logits / cap)
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            out[cuts[s] + i] = np.einsum("hj,jhd->hd", weights, values)
            spread = np.einsum("hj,jhd->hd", weights, value_sizes)
            size[cuts[s] + i] = spread * (1 + reach[:, None])
    near = Near(out.reshape(len(q), -1), size.reshape(len(q), -1))
    return {"out": near, "kv_cache": Exact(case.array("kv_cache"))}


FORMULAS: dict[str, Formula] = {
    "rope": rope,
    "qk_norm_rope": qk_norm_rope,
    "kv_store": kv_store,
    "attn_paged": attn_paged,
}
