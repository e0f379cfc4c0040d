"""Which calls a family of models makes, from its sizes alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from radiance_abi.encoding import Encoding
from radiance_abi.kv_cache import CACHE_DTYPES
from radiance_abi.testing.cache_inputs import LONG_PAST
from radiance_abi.testing.planes import fits
from radiance_core.kbench.fixture import Sizes, Value

PAGE = 16
"""Block size in which caches are drawn; replay puts them into pages of the kernel's size."""

_ROWS = (1, 100)
"""One token, and more than kernels take at once."""

_MOST_TABLE = 16384
"""Rows of an embedding or a head: more would make it large, and are computed as these are."""

_GROUP = 32


@dataclass(frozen=True, slots=True)
class Planned:
    """A call to be drawn: its op, params, and the encodings of its matrices by operand.

    ``past``: keys that attention has before one sequence, at least; 0 for a few.
    """

    op: str
    params: Mapping[str, Value]
    weights: Mapping[str, str]
    past: int = 0


def planned(s: Sizes) -> Iterator[Planned]:
    """Yield the calls of one family."""
    for subject in (_rows, _codes, _products, _lookups, _heads, _caches, _sampling):
        yield from subject(s)


def _call(op: str, weights: Mapping[str, str] | None = None, /, **params: Value) -> Planned:
    return Planned(op, params, weights or {})


def _rows(s: Sizes) -> Iterator[Planned]:
    embd: dict[str, Value] = {"M": 5, "n": s.n_embd, "dtype": "f32"}
    wide: dict[str, Value] = {**embd, "n": s.n_ff}
    for op in ("rmsnorm", "rmsnorm_add"):
        yield _call(op, **embd, eps=s.eps, wadd=s.wadd)
    yield _call("layernorm", **embd, eps=s.eps)
    yield _call("add", **embd)
    yield _call("mul", **wide)
    yield _call("scale", **embd, factor=float(s.n_embd**0.5))
    yield _call("softcap", **embd, cap=30.0)
    for op in ("silu", "gelu", "gelu_tanh", "sigmoid", "softmax", "silu_mul", "gelu_tanh_mul"):
        yield _call(op, **wide)
    for start, end in (("f32", "bf16"), ("bf16", "f32"), ("f32", "f16")):
        yield _call("cast", M=5, n=s.n_embd, to=end, **{"from": start})
    yield _call("gather_rows", **embd)


def _codes(s: Sizes) -> Iterator[Planned]:
    for planes in (1, 2):
        coded: dict[str, Value] = {"M": 5, "group": _GROUP, "dtype": "f32", "planes": planes}
        for op in ("rmsnorm_quant_i8", "rmsnorm_add_quant_i8"):
            yield _call(op, **coded, n=s.n_embd, eps=s.eps, wadd=s.wadd)
        for act in ("silu", "gelu_tanh"):
            yield _call("gated_quant_i8", **coded, n=s.n_ff, act=act)
        yield _call("quant_act_i8", **coded, n=s.n_embd)
        yield _call("dequant", **coded, n=s.n_embd)


def _products(s: Sizes) -> Iterator[Planned]:
    attention = s.n_head * s.head_dim
    joint = attention + 2 * s.n_head_kv * s.head_dim
    shapes = {"": (2 * s.n_ff, s.n_embd), "_add": (s.n_embd, s.n_ff), "_bias": (joint, s.n_embd)}
    for text in s.encodings:
        encoding = Encoding.parse(text)
        for ending, (n, k) in shapes.items():
            if not fits(encoding, (n, k)):
                continue
            for rows in _ROWS:
                sizes: dict[str, Value] = {"M": rows, "N": n, "K": k, "dtype": "f32"}
                after: dict[str, Value] = {"act": "none"} if ending == "_bias" else {}
                yield _call(f"gemm_nt{ending}", {"b": text}, **sizes, **after)
                for planes in (1, 2) if encoding.codes.element.meets_int8 else ():
                    coded: dict[str, Value] = {"group": _GROUP, "planes": planes}
                    yield _call(f"gemm_nt_q{ending}", {"b": text}, **sizes, **coded)
    for ending in ("", "_add"):
        n, k = shapes[ending]
        for rows in _ROWS:
            sizes = {"M": rows, "N": n, "K": k, "dtype": "f32"}
            yield _call(f"gemm_nt_bf16{ending}", {"b": "bf16"}, **sizes)


def _lookups(s: Sizes) -> Iterator[Planned]:
    table: dict[str, Value] = {
        "n_embd": s.n_embd,
        "n_vocab": min(s.n_vocab, _MOST_TABLE),
        "dtype": "f32",
    }
    text = next(t for t in s.encodings if fits(Encoding.parse(t), (1, s.n_embd)))
    yield _call("embed_lookup", {"wte": text}, M=9, **table, wscale=1.0)
    yield _call("logits_gemm", {"lm_head": text}, M=2, **table)
    yield _call("logits_gemm_bf16", {"lm_head": "bf16"}, M=2, **table)
    for planes in (1, 2) if Encoding.parse(text).codes.element.meets_int8 else ():
        coded: dict[str, Value] = {"group": _GROUP, "planes": planes}
        yield _call("logits_gemm_q", {"lm_head": text}, M=2, **table, **coded)


def _heads(s: Sizes) -> Iterator[Planned]:
    turned: dict[str, Value] = {
        "M": 5,
        "head_dim": s.head_dim,
        "n_head": s.n_head,
        "n_head_kv": s.n_head_kv,
        "theta": s.theta,
        "dtype": "f32",
    }
    for mode in s.modes:
        yield _call("rope", **turned, mode=mode)
        yield _call("qk_norm_rope", **turned, mode=mode, eps=s.eps, wadd=s.wadd)


def _caches(s: Sizes) -> Iterator[Planned]:
    kept: dict[str, Value] = {
        "head_dim": s.head_dim,
        "n_head_kv": s.n_head_kv,
        "block_size": PAGE,
        "dtype": "f32",
    }
    for kind in CACHE_DTYPES:
        yield _call("kv_store", **kept, M=9, kv_dtype=kind)
        # A window shows where more than it came before.
        for window, past in [
            (0, 0),
            (0, LONG_PAST),
            *([(s.window, LONG_PAST)] if s.window else []),
        ]:
            for most in (1, 33):
                called: dict[str, Value] = {**kept, "kv_dtype": kind, "q_len": most}
                called |= {"n_head": s.n_head, "causal": 1, "window": window}
                yield Planned("attn_paged", called, {}, past)


def _sampling(s: Sizes) -> Iterator[Planned]:
    vocab = s.n_vocab
    for op in ("keep", "penalties", "dry", "temp", "mask", "argmax", "draw"):
        yield _call(f"sample_{op}", M=3, n_vocab=vocab)
    yield _call("sample_bias", M=3, n_vocab=vocab, n_bias=16)
    yield _call("sample_logprobs", M=3, n_vocab=vocab, n_top=20)
    yield _call("sample_topk", M=3, n_vocab=vocab, n_cand=64)
    for op in ("topp", "minp", "typical", "xtc", "pick"):
        yield _call(f"sample_{op}", M=3, n_cand=64)
