"""Ops against what torch and transformers compute, by other code than the library's."""

import math
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.nn import functional

from radiance_abi import KernelError
from radiance_abi.testing import ENCODINGS, Weight, caller, plain_weight, random_weight
from radiance_libref.library import library

torch.set_num_threads(1)
call = caller(library())
weight = plain_weight

Rng = np.random.Generator


@pytest.fixture
def rng() -> Rng:
    return np.random.default_rng()


def _f32(rng: Rng, *shape: int) -> np.ndarray:
    return (rng.normal(size=shape) * rng.uniform(0.3, 3)).astype(np.float32)


def _t(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _near(got: np.ndarray, want: Any, tolerance: float = 1e-6) -> None:
    want = np.asarray(want, np.float64)
    scale = max(1e-30, float(np.abs(want).max()))
    assert np.abs(got.astype(np.float64) - want).max() / scale <= tolerance


def test_norms_equal_torch(rng: Rng) -> None:
    """Norms by root mean square and by variance are torch's in f64."""
    x, w, b = _f32(rng, 5, 96), _f32(rng, 96), _f32(rng, 96)
    params = {"n": 96, "eps": 1e-5, "dtype": "f32"}
    got = call("rmsnorm", params, x=x, w=weight(w))["y"]
    _near(got, functional.rms_norm(_t(x).double(), (96,), _t(w).double(), 1e-5))
    got = call("rmsnorm", {**params, "wadd": 1.0}, x=x, w=weight(w))["y"]
    _near(got, functional.rms_norm(_t(x).double(), (96,), _t(w).double() + 1, 1e-5))
    got = call("layernorm", params, x=x, w=weight(w), b=weight(b))["y"]
    _near(got, functional.layer_norm(_t(x).double(), (96,), _t(w).double(), _t(b).double(), 1e-5))


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("silu", functional.silu),
        ("gelu", functional.gelu),
        ("gelu_tanh", lambda x: functional.gelu(x, approximate="tanh")),
        ("sigmoid", torch.sigmoid),
        ("softmax", lambda x: torch.softmax(x, -1)),
    ],
)
def test_activations_equal_torch(op: str, function: Any, rng: Rng) -> None:
    """Each is torch's function of that name, evaluated in f64."""
    x = _f32(rng, 4, 33)
    _near(call(op, {"n": 33, "dtype": "f32"}, x=x)["y"], function(_t(x).double()))


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("name", ["f32", "bf16", "f16"])
def test_fused_ops_equal_their_chains(name: str, planes: int, rng: Rng) -> None:
    """Fusions give the bits of the ops that they stand for, in every dtype."""
    kinds = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    x, r, g = (_cast(_f32(rng, 6, n), kinds[name]) for n in (128, 128, 256))
    w = weight(_f32(rng, 128))
    norm = {"n": 128, "eps": 1e-6, "dtype": name}
    coded = {"group": 32, "planes": planes}
    quant = {"n": 128, "dtype": name, **coded}
    plain = call("rmsnorm_add", norm, x=x, residual=r, w=w)
    added = call("add", {"n": 128, "dtype": name}, a=x, b=r)["y"]
    _same(plain["residual_out"], added)
    fused = call("rmsnorm_add_quant_i8", {**norm, **coded}, x=x, residual=r, w=w)
    _all_same(fused, {**call("quant_act_i8", quant, x=plain["y"]), "residual_out": added})
    fused = call("rmsnorm_quant_i8", {**norm, **coded}, x=x, w=w)
    _all_same(fused, call("quant_act_i8", quant, x=call("rmsnorm", norm, x=x, w=w)["y"]))
    for act in ("silu", "gelu_tanh"):
        fused = call("gated_quant_i8", {**quant, "act": act}, gate_up=g)
        product = call(f"{act}_mul", {"n": 128, "dtype": name}, gate_up=g)["y"]
        _all_same(fused, call("quant_act_i8", quant, x=product))
        active = call(act, {"n": 128, "dtype": name}, x=np.ascontiguousarray(g[:, :128]))["y"]
        up = np.ascontiguousarray(g[:, 128:])
        _same(product, call("mul", {"n": 128, "dtype": name}, a=active, b=up)["y"])


def _cast(x: np.ndarray, kind: torch.dtype) -> np.ndarray:
    if kind == torch.bfloat16:
        return x.astype(ml_dtypes.bfloat16)
    return x.astype(np.float16) if kind == torch.float16 else x


def _same(a: np.ndarray, b: np.ndarray) -> None:
    assert a.dtype == b.dtype
    assert a.tobytes() == b.tobytes()


def _all_same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert set(a) == set(b)
    for name, array in a.items():
        _same(array, b[name])


def _codes(q: np.ndarray, planes: int) -> np.ndarray:
    """Return codes as ints: 128 times the first plane plus the second."""
    parts = np.split(q.astype(int), planes, axis=1)
    return parts[0] if planes == 1 else 128 * parts[0] + parts[1]


@pytest.mark.parametrize(("planes", "most"), [(1, 127), (2, 16256)])
def test_quantised_activations_are_within_half_a_code(planes: int, most: int, rng: Rng) -> None:
    """Codes times scales are near x, the largest element has the top code, zeros stay zeros."""
    x = _f32(rng, 4, 96)
    x[2, :32] = 0
    params = {"n": 96, "group": 32, "dtype": "f32", "planes": planes}
    got = call("quant_act_i8", params, x=x)
    codes = _codes(got["q"], planes)
    scale = np.repeat(got["scale"], 32, axis=1).astype(np.float64)
    # A product of f32 numbers is off by up to 2^-24 of a code as large as 16256.
    assert (np.abs(codes * scale - x) <= (0.5 + most * 2.0**-22) * scale).all()
    groups = np.abs(codes).reshape(4, 3, 32).max(axis=2)
    assert sorted(set(groups.reshape(-1))) == [0, most]
    assert groups[2, 0] == 0
    assert got["scale"][2, 0] == 0
    assert np.array_equal(got["asum"], codes.reshape(4, 3, 32).sum(axis=2))
    back = call("dequant", params, q=got["q"], scale=got["scale"])["y"]
    assert np.array_equal(back, (codes * scale).astype(np.float32))


@pytest.mark.parametrize("planes", [0, 3])
def test_other_planes_are_refused(planes: int) -> None:
    """A call with planes that no definition covers is told what is expected."""
    params = {"n": 32, "group": 32, "dtype": "f32", "planes": planes}
    expected = f"planes: expected 1 or 2, got {planes}"
    with pytest.raises(KernelError, match=expected):
        call("quant_act_i8", params, x=np.ones((1, 32), np.float32))
    q, scale = np.ones((1, 32 * planes), np.int8), np.ones((1, 1), np.float32)
    with pytest.raises(KernelError, match=expected):
        call("dequant", params, q=q, scale=scale)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_products_equal_f64(encoding: Any, rng: Rng) -> None:
    """Every product is the f64 product of decoded weights, rounded."""
    n, k = int(rng.integers(1, 40)), 256
    b = random_weight(encoding, (n, k), rng, 0.1)
    a, res, bias = _f32(rng, 5, k), _f32(rng, 5, n), _f32(rng, n)
    base = {"N": n, "K": k, "dtype": "f32"}
    exact = _t(a).double() @ _t(b.values).T
    _near(call("gemm_nt", base, a=a, b=b)["y"], exact, 2e-7)
    got = call("gemm_nt_bias", {**base, "act": "gelu"}, a=a, b=b, bias=weight(bias), res=res)["y"]
    _near(got, functional.gelu(exact + _t(bias)) + _t(res), 1e-6)
    planes = int(rng.integers(1, 3))
    coded = {"group": 32, "planes": planes}
    q = call("quant_act_i8", {"n": k, "dtype": "f32", **coded}, x=a)
    operands: dict[str, np.ndarray | Weight] = {
        "a": q["q"],
        "a_scale": q["scale"],
        "a_sum": q["asum"],
        "b": b,
    }
    decoded = _codes(q["q"], planes) * np.repeat(q["scale"].astype(np.float64), 32, axis=1)
    want = decoded @ b.values.T
    _near(call("gemm_nt_q", {**base, **coded}, **operands)["y"], want, 2e-7)
    _near(call("gemm_nt_q_add", {**base, **coded}, **operands, res=res)["y"], want + res, 1e-6)


def test_rope_equals_transformers(rng: Rng) -> None:
    """Neox rope is what llama models compute; llama3 scaling comes through freqs."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=4096,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512,
        },
    )
    rotary = LlamaRotaryEmbedding(config)
    positions = rng.integers(0, 3000, 7).astype(np.int32)
    qkv = _f32(rng, 7, (4 + 2 + 2) * 64)
    heads = _t(qkv[:, : 6 * 64]).view(1, 7, 6, 64).transpose(1, 2)
    cos, sin = rotary(heads, _t(positions)[None].long())
    turned, _ = apply_rotary_pos_emb(heads, heads, cos, sin)
    want = np.concatenate(
        [turned[0].transpose(0, 1).reshape(7, -1).numpy(), qkv[:, 6 * 64 :]], axis=1
    )
    params = {"head_dim": 64, "n_head": 4, "n_head_kv": 2, "theta": 5e5, "dtype": "f32"}
    freqs = rotary.inv_freq.numpy().astype(np.float32)
    got = call("rope", params, qkv=qkv, positions=positions, freqs=freqs)["qkv"]
    # transformers forms angles in f32: at position 3000 they are off by 2e-4.
    _near(got, want, 3e-4)
    small = np.arange(7, dtype=np.int32)
    default = LlamaRotaryEmbedding(LlamaConfig(hidden_size=256, num_attention_heads=4))
    cos, sin = default(heads, _t(small)[None].long())
    turned, _ = apply_rotary_pos_emb(heads, heads, cos, sin)
    got = call("rope", {**params, "theta": 1e4}, qkv=qkv, positions=small)["qkv"]
    _near(got[:, : 6 * 64], turned[0].transpose(0, 1).reshape(7, -1).numpy(), 2e-6)


def test_rope_as_complex_numbers(rng: Rng) -> None:
    """Gptj pairs are complex numbers that turn; the rest of a head stays."""
    x, positions = _f32(rng, 3, 2 * 16), np.array([0, 5, 1234], np.int32)
    params = {"head_dim": 16, "n_head": 1, "n_head_kv": 1, "theta": 1e4, "dtype": "f32"}
    got = call(
        "rope",
        {**params, "mode": "gptj", "rotary_dim": 8, "mscale": 1.5, "scale": 4.0},
        qkv=x,
        positions=positions,
    )["qkv"]
    heads = x.reshape(3, 2, 16).astype(np.float64)
    z = heads[..., 0:8:2] + 1j * heads[..., 1:8:2]
    angle = positions[:, None] * 1e4 ** (-np.arange(4) / 4) / 4
    z = z * 1.5 * np.exp(1j * angle)[:, None]
    want = heads.copy()
    want[..., 0:8:2], want[..., 1:8:2] = z.real, z.imag
    _near(got, want.reshape(3, -1), 1e-6)


def test_qk_norm_rope_is_a_norm_then_rope(rng: Rng) -> None:
    """The fused op equals a norm of each head followed by rope."""
    qkv, gains = _f32(rng, 4, 6 * 16), (_f32(rng, 16), _f32(rng, 16))
    positions = np.array([3, 1, 4, 159], np.int32)
    params = {"head_dim": 16, "n_head": 3, "n_head_kv": 2, "theta": 1e4, "dtype": "f32"}
    fused = call(
        "qk_norm_rope",
        {**params, "eps": 1e-6},
        qkv=qkv,
        positions=positions,
        q_w=weight(gains[0]),
        k_w=weight(gains[1]),
    )["qkv"]
    chain = qkv.copy()
    for h in range(5):
        part = np.ascontiguousarray(chain[:, h * 16 : h * 16 + 16])
        norm = {"n": 16, "eps": 1e-6, "dtype": "f32"}
        chain[:, h * 16 : h * 16 + 16] = call("rmsnorm", norm, x=part, w=weight(gains[h > 2]))["y"]
    _same(fused, call("rope", params, qkv=chain, positions=positions)["qkv"])


@pytest.mark.parametrize("causal", [1, 0])
@pytest.mark.parametrize("window", [0, 9])
def test_attention_equals_torch(causal: int, window: int, rng: Rng) -> None:
    """A prompt stored by kv_store and attended to equals masked attention in torch."""
    tokens, last, n_head, n_kv, dim = 75, 23, 6, 2, 24
    q, k, v = (
        _f32(rng, last, n_head * dim),
        _f32(rng, tokens, n_kv * dim),
        _f32(rng, tokens, n_kv * dim),
    )
    pages = rng.permutation(8)[:5].astype(np.int32)
    slots = (pages[np.arange(tokens) // 16] * 16 + np.arange(tokens) % 16).astype(np.int32)
    cache = np.full((8, n_kv, 16, 2 * dim), np.nan, np.float32)
    store = {
        "head_dim": dim,
        "n_head_kv": n_kv,
        "block_size": 16,
        "kv_dtype": "f32",
        "dtype": "f32",
    }
    cache = call("kv_store", store, k=k, v=v, slot_mapping=slots, kv_cache=cache)["kv_cache"]
    got = call(
        "attn_paged",
        {**store, "n_head": n_head, "causal": causal, "window": window, "q_len": last},
        q=q,
        kv_cache=cache,
        block_table=pages[None],
        seqused=np.array([tokens], np.int32),
        cu_seqlens=np.array([0, last], np.int32),
    )["out"]
    behind = torch.arange(tokens - last, tokens)[:, None] - torch.arange(tokens)[None]
    seen = behind >= 0 if causal else torch.ones_like(behind, dtype=torch.bool)
    if window:
        seen &= behind.abs() < window
    qs, ks, vs = (_t(a).double().view(len(a), -1, dim).transpose(0, 1) for a in (q, k, v))
    want = functional.scaled_dot_product_attention(qs, ks, vs, attn_mask=seen, enable_gqa=True)
    _near(got, want.transpose(0, 1).reshape(last, -1), 2e-7)


def test_attention_of_hidden_pages_is_zero(rng: Rng) -> None:
    """A row that sees no key is zeros, whatever the cache holds."""
    cache = np.full((2, 1, 16, 16), np.nan, np.float32)
    params = {
        "q_len": 1,
        "head_dim": 8,
        "n_head": 1,
        "n_head_kv": 1,
        "block_size": 16,
        "causal": 1,
        "window": 0,
        "dtype": "f32",
        "kv_dtype": "f32",
    }
    out = call(
        "attn_paged",
        params,
        q=_f32(rng, 1, 8),
        kv_cache=cache,
        block_table=np.array([[-1]], np.int32),
        seqused=np.array([4], np.int32),
        cu_seqlens=np.array([0, 1], np.int32),
    )["out"]
    assert not out.any()


def test_a_prompt_in_chunks_has_the_same_bits(rng: Rng) -> None:
    """Rows of attention do not depend on how a prompt was cut into steps."""
    tokens, dim = 150, 16
    cache = _f32(rng, 10, 2, 16, 2 * dim)
    table = np.arange(10, dtype=np.int32)[None]
    q = _f32(rng, tokens, 4 * dim)
    params = {
        "head_dim": dim,
        "n_head": 4,
        "n_head_kv": 2,
        "block_size": 16,
        "causal": 1,
        "window": 0,
        "dtype": "f32",
        "kv_dtype": "f32",
    }

    def attend(first: int, last: int) -> np.ndarray:
        return np.asarray(
            call(
                "attn_paged",
                {**params, "q_len": last - first},
                q=q[first:last],
                kv_cache=cache,
                block_table=table,
                seqused=np.array([last], np.int32),
                cu_seqlens=np.array([0, last - first], np.int32),
            )["out"]
        )

    whole = attend(0, tokens)
    cuts = [0, *sorted(int(c) for c in rng.choice(np.arange(1, tokens), 6, replace=False)), tokens]
    parts = [attend(a, b) for a, b in pairwise(cuts)]
    _same(np.concatenate(parts), whole)


def test_softcap_is_a_tanh_before_the_mask(rng: Rng) -> None:
    """With all keys alike the cap changes nothing; with a sharp one it flattens."""
    x = _f32(rng, 2, 9)
    got = call("softcap", {"n": 9, "cap": 2.0, "dtype": "f32"}, x=x)["y"]
    _near(got, 2 * np.tanh(x.astype(np.float64) / 2))
    assert math.isfinite(float(np.abs(got).max()))
