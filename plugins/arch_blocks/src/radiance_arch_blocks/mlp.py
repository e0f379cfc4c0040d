"""Gated feed-forward blocks."""

from radiance_abi.architectures import Value
from radiance_arch_blocks.activation import GROUP, Activation, Quantised
from radiance_arch_blocks.issuing import Params, one
from radiance_arch_blocks.linear import side_by_side

_GATED = {"silu": "silu_mul", "gelu_tanh": "gelu_tanh_mul"}


def gated(x: Activation, layer: int, n_ff: int, *, act: str, bias: bool = False) -> Activation:
    """Return act(gate) * up of ``x``, [M, n_ff], before the down projection.

    ``act`` is "silu" or "gelu_tanh".
    """
    g = x.g
    parts = (("ffn_gate", n_ff), ("ffn_up", n_ff))
    gate_up = side_by_side(x, f"blk.{layer}", "ffn_gate_up", parts, bias=bias)

    def value() -> Value:
        return one(g, _GATED[act], gate_up, n=n_ff, dtype=x.dtype)

    def int8(planes: int) -> Quantised | None:
        params: Params = {"n": n_ff, "act": act, "dtype": x.dtype}
        params |= {"group": GROUP, "planes": planes}
        if n_ff % GROUP or not g.has("gated_quant_i8", gate_up, **params):
            return None
        codes: Quantised = g.op("gated_quant_i8", gate_up, **params)
        return codes

    return Activation(g, n_ff, x.dtype, x.planes, value, int8)
