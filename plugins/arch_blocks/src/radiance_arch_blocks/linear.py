"""Matrix products with declared weights: which op serves the weight's encoding, and what fuses."""

from collections.abc import Sequence

from radiance_abi.architectures import Graph, Value, Weight
from radiance_arch_blocks.activation import GROUP, Activation, Stream
from radiance_arch_blocks.issuing import Params, one


def int8_planes(g: Graph, op: str, weight: Weight, x: Activation, *rest: Weight | None) -> int:
    """Return with how many int8 planes of ``x`` the op is served for this weight, 0 for none.

    As many as ``x`` asks for, or else fewer. Weights that are stored as numbers keep their
    precision, whatever a library would serve.
    """
    if x.width % GROUP or not weight.encoding.codes.element.meets_int8:
        return 0
    for planes in range(x.planes, 0, -1):
        params: Params = {"group": GROUP, "dtype": x.dtype, "planes": planes}
        if g.has(op, None, None, None, weight, *rest, **params):
            return planes
    return 0


def times_int8(
    g: Graph, op: str, planes: int, weight: Weight, x: Activation, *rest: Value | Weight
) -> Value:
    """Return the product ``op`` of int8 planes of ``x`` and a weight."""
    return one(g, op, *x.int8(planes), weight, *rest, group=GROUP, dtype=x.dtype, planes=planes)


def takes_bf16(g: Graph, op: str, weight: Weight, x: Activation, *rest: None) -> bool:
    """Return whether the op is served for this weight and ``x`` narrowed to bf16.

    Asked only where one int8 plane would do, for weights that are no more exact themselves.
    """
    if x.planes != 1 or weight.encoding.codes.element.name != "bf16" or x.dtype == "bf16":
        return False
    return g.has(op, None, weight, *rest, dtype=x.dtype)


def linear(
    x: Activation, name: str, rows: int, *, bias: bool = False, shard: str | None = "row"
) -> Value:
    """Return ``x`` times the transpose of ``name``.weight [rows, x.width], plus ``name``.bias.

    Integer weights take int8 activations when some kernel serves that, and bf16 weights bf16 ones
    where one plane of int8 would do; all readers of ``x`` share them.
    """
    g = x.g
    weight = g.weight(f"{name}.weight", (rows, x.width), shard=shard)
    if bias:
        return _with_bias(x, weight, g.weight(f"{name}.bias", (rows,), shard=shard))
    if planes := int8_planes(g, "gemm_nt_q", weight, x):
        return times_int8(g, "gemm_nt_q", planes, weight, x)
    if takes_bf16(g, "gemm_nt_bf16", weight, x):
        return one(g, "gemm_nt_bf16", x.bf16, weight, dtype=x.dtype)
    return one(g, "gemm_nt", x.value, weight, dtype=x.dtype)


def linear_into(
    stream: Stream, x: Activation, name: str, *, bias: bool = False, factor: float = 1.0
) -> None:
    """Add ``factor`` times the linear map ``name`` of ``x`` to the stream, fused where served."""
    g = stream.g
    if factor != 1.0:
        y = linear(x, name, stream.width, bias=bias, shard="col")
        stream.add(one(g, "scale", y, n=stream.width, factor=factor, dtype=x.dtype))
        return
    weight = g.weight(f"{name}.weight", (stream.width, x.width), shard="col")
    if bias:
        stream.add(_with_bias(x, weight, g.weight(f"{name}.bias", (stream.width,))))
        return
    adding = int8_planes(g, "gemm_nt_q_add", weight, x, None)
    apart = int8_planes(g, "gemm_nt_q", weight, x)
    if adding and adding >= apart:
        stream.replace(times_int8(g, "gemm_nt_q_add", adding, weight, x, stream.value))
    elif apart:
        stream.add(times_int8(g, "gemm_nt_q", apart, weight, x))
    elif takes_bf16(g, "gemm_nt_bf16_add", weight, x, None):
        total = one(g, "gemm_nt_bf16_add", x.bf16, weight, stream.value, dtype=x.dtype)
        stream.replace(total)
    elif g.has("gemm_nt_add", None, weight, None, dtype=x.dtype):
        stream.replace(one(g, "gemm_nt_add", x.value, weight, stream.value, dtype=x.dtype))
    else:
        stream.add(one(g, "gemm_nt", x.value, weight, dtype=x.dtype))


def side_by_side(
    x: Activation, prefix: str, joined: str, parts: Sequence[tuple[str, int]], *, bias: bool = False
) -> Value:
    """Return the linear maps ``parts`` (name, rows) of ``x`` as one buffer, columns in that order.

    One product with the stacked weight when the checkpoint's parts share an encoding, else one
    each.
    """
    g = x.g
    whole = f"{prefix}.{joined}"
    if g.has_weight(f"{whole}.weight") and (not bias or g.has_weight(f"{whole}.bias")):
        return linear(x, whole, sum(rows for _, rows in parts), bias=bias)
    return g.join(*(linear(x, f"{prefix}.{name}", rows, bias=bias) for name, rows in parts))


def _with_bias(x: Activation, weight: Weight, bias: Weight) -> Value:
    g = x.g
    if planes := int8_planes(g, "gemm_nt_q_bias", weight, x, bias):
        return times_int8(g, "gemm_nt_q_bias", planes, weight, x, bias)
    return one(g, "gemm_nt_bias", x.value, weight, bias, None, dtype=x.dtype)
