"""Self-attention over a paged cache."""

from collections.abc import Sequence
from dataclasses import dataclass

from radiance_abi.architectures import Graph, KvGroup, Value
from radiance_arch_blocks.activation import Activation, plain
from radiance_arch_blocks.issuing import Params, one
from radiance_arch_blocks.linear import side_by_side
from radiance_arch_blocks.rope import Rotary


@dataclass(frozen=True, slots=True)
class Attention:
    """What all attention layers of a model share.

    Args:
        n_head, n_head_kv, head_dim: heads of queries, heads of keys and values, elements of a head.
        bias: q, k and v have biases.
        qk_norm: each head of q and k has an RMS norm before it rotates.
        eps, wadd: of those norms.
        scale: factor on scores; None is 1 / sqrt(head_dim).
        softcap: bound of scores, 0 for none.
    """

    n_head: int
    n_head_kv: int
    head_dim: int
    bias: bool = False
    qk_norm: bool = False
    eps: float = 0.0
    wadd: float = 0.0
    scale: float | None = None
    softcap: float = 0.0


def attention(
    x: Activation, spec: Attention, rope: Rotary, group: KvGroup, layer: int, window: int = 0
) -> Activation:
    """Return the heads' outputs side by side, [M, n_head * head_dim]; no output projection."""
    g, prefix = x.g, f"blk.{layer}"
    q_width, kv_width = spec.n_head * spec.head_dim, spec.n_head_kv * spec.head_dim
    parts = (("attn_q", q_width), ("attn_k", kv_width), ("attn_v", kv_width))
    qkv = side_by_side(x, prefix, "attn_qkv", parts, bias=spec.bias)
    qkv = _rotate(g, qkv, spec, rope, prefix, x.dtype)
    q = g.columns(qkv, 0, q_width)
    k = g.columns(qkv, q_width, q_width + kv_width)
    v = g.columns(qkv, q_width + kv_width, q_width + 2 * kv_width)
    heads: Params = {"head_dim": spec.head_dim, "n_head_kv": spec.n_head_kv, "dtype": x.dtype}
    cache = group.layer(layer)
    g.op("kv_store", k, v, group.slot_mapping, cache, **heads)
    out = one(
        g,
        "attn_paged",
        q,
        cache,
        group.block_table,
        group.seqused,
        g.step.cu_seqlens,
        n_head=spec.n_head,
        causal=1,
        window=window,
        scale=spec.scale,
        softcap=spec.softcap,
        **heads,
    )
    return plain(g, out, q_width, x.dtype, x.planes)


def kv_groups(
    g: Graph, *, n_head_kv: int, head_dim: int, windows: Sequence[int]
) -> tuple[KvGroup, ...]:
    """Declare one pool for each distinct window; return each layer's pool.

    Args:
        g: the graph declared into.
        n_head_kv, head_dim: of the keys and values.
        windows: keys that each layer sees, 0 for all.
    """
    pools = {}
    for window in sorted(set(windows)):
        layers = [i for i, w in enumerate(windows) if w == window]
        name = "window" if window else "full"
        if window and len(set(windows) - {0}) > 1:
            name = f"window{window}"
        pools[window] = g.kv_group(
            name, n_head_kv=n_head_kv, head_dim=head_dim, layers=layers, window=window
        )
    return tuple(pools[w] for w in windows)


def _rotate(g: Graph, qkv: Value, spec: Attention, rope: Rotary, prefix: str, dtype: str) -> Value:
    heads: Params = {"head_dim": spec.head_dim, "n_head": spec.n_head, "n_head_kv": spec.n_head_kv}
    turn: Params = {
        "theta": rope.theta,
        "mode": rope.mode,
        "rotary_dim": rope.rotary_dim,
        "mscale": rope.mscale,
    }
    if not spec.qk_norm:
        return one(g, "rope", qkv, g.step.positions, rope.freqs, **heads, **turn, dtype=dtype)
    q_gain = g.weight(f"{prefix}.attn_q_norm.weight", (spec.head_dim,))
    k_gain = g.weight(f"{prefix}.attn_k_norm.weight", (spec.head_dim,))
    return one(
        g,
        "qk_norm_rope",
        qkv,
        g.step.positions,
        q_gain,
        k_gain,
        rope.freqs,
        **heads,
        **turn,
        eps=spec.eps,
        wadd=spec.wadd,
        dtype=dtype,
    )
