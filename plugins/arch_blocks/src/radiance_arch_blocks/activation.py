"""Activations in the forms that their readers want, and the residual stream of a trunk."""

from collections.abc import Callable

from radiance_abi.architectures import Graph, Value
from radiance_arch_blocks.issuing import Params, one

GROUP = 32
"""Values per scale of an int8 activation; a divisor of every group that integer weights have."""

Quantised = tuple[Value, Value, Value]
"""Int8 planes [M, planes * n], f32 scales [M, n / GROUP], i32 sums of codes [M, n / GROUP]."""


class Activation:
    """One activation in its forms; each is declared when first asked for, once.

    So a norm whose readers are all integer matrix products is declared as the fused norm that
    writes codes, and never as plain numbers.

    Args:
        g: the graph declared into.
        width: columns.
        dtype: element type of the plain form.
        planes: int8 planes that readers should take, where kernels serve so many.
        value: declares the plain form.
        int8: declares the fused form of so many int8 planes, or returns None when no kernel serves
            it.
    """

    def __init__(
        self,
        g: Graph,
        width: int,
        dtype: str,
        planes: int,
        value: Callable[[], Value],
        int8: Callable[[int], Quantised | None] = lambda _: None,
    ) -> None:
        self.g = g
        self.width = width
        self.dtype = dtype
        self.planes = planes
        self._declare_value = value
        self._declare_int8 = int8
        self._value: Value | None = None
        self._bf16: Value | None = None
        self._int8: dict[int, Quantised] = {}

    @property
    def value(self) -> Value:
        """The plain form, [M, width] of ``dtype``."""
        if self._value is None:
            self._value = self._declare_value()
        return self._value

    @property
    def bf16(self) -> Value:
        """The plain form narrowed to bf16, [M, width]."""
        if self._bf16 is None:
            kinds: Params = {"from": self.dtype, "to": "bf16"}
            self._bf16 = one(self.g, "cast", self.value, n=self.width, **kinds)
        return self._bf16

    def int8(self, planes: int) -> Quantised:
        """Return the form of so many int8 planes."""
        if planes not in self._int8:
            fused = None if self._value is not None else self._declare_int8(planes)
            self._int8[planes] = fused or self.g.op(
                "quant_act_i8",
                self.value,
                n=self.width,
                group=GROUP,
                dtype=self.dtype,
                planes=planes,
            )
        return self._int8[planes]


def plain(g: Graph, value: Value, width: int, dtype: str, planes: int) -> Activation:
    """Return the activation whose plain form exists already."""
    return Activation(g, width, dtype, planes, lambda: value)


class Stream:
    """The residual stream: what layers read through a norm and add to.

    An addition waits for its reader, so that it and the norm behind it can be one op.

    Args:
        g: the graph declared into.
        value: first value, [M, width].
        width: columns.
        dtype: element type.
        eps: of the norms.
        wadd: added to each norm gain (1 where gains are stored as differences from one).
        planes: int8 planes of activations that are read from it.
    """

    def __init__(
        self,
        g: Graph,
        value: Value,
        *,
        width: int,
        dtype: str,
        eps: float,
        wadd: float = 0.0,
        planes: int,
    ) -> None:
        self.g = g
        self.width = width
        self.dtype = dtype
        self.eps = eps
        self.wadd = wadd
        self.planes = planes
        self._settled = value
        self._waiting: Value | None = None

    @property
    def value(self) -> Value:
        """The stream with every addition made."""
        if self._waiting is not None:
            self._settled = one(
                self.g, "add", self._settled, self._waiting, n=self.width, dtype=self.dtype
            )
            self._waiting = None
        return self._settled

    def add(self, value: Value) -> None:
        """Add ``value`` [M, width] to the stream."""
        _ = self.value  # an earlier addition comes first
        self._waiting = value

    def replace(self, value: Value) -> None:
        """Take ``value``, which some op computed from the stream, as the stream."""
        assert self._waiting is None, "an addition that still waits would be lost"
        self._settled = value

    def rows(self, part: str) -> "Stream":
        """Return the stream of a part of the rows."""
        return Stream(
            self.g,
            self.g.rows(self.value, part),
            width=self.width,
            dtype=self.dtype,
            eps=self.eps,
            wadd=self.wadd,
            planes=self.planes,
        )

    def norm(self, name: str) -> Activation:
        """Return the stream's RMS norm with the gain ``name``."""
        g = self.g
        gain = g.weight(name, (self.width,))
        params: Params = {"n": self.width, "eps": self.eps, "dtype": self.dtype, "wadd": self.wadd}

        def value() -> Value:
            if self._waiting is None or not g.has("rmsnorm_add", None, None, gain, **params):
                return one(g, "rmsnorm", self.value, gain, **params)
            y: Value
            y, total = g.op("rmsnorm_add", self._settled, self._waiting, gain, **params)
            self._settled, self._waiting = total, None
            return y

        def int8(planes: int) -> Quantised | None:
            if self.width % GROUP:
                return None
            more: Params = {**params, "group": GROUP, "planes": planes}
            if self._waiting is not None and g.has(
                "rmsnorm_add_quant_i8", None, None, gain, **more
            ):
                q, scale, sums, total = g.op(
                    "rmsnorm_add_quant_i8", self._settled, self._waiting, gain, **more
                )
                self._settled, self._waiting = total, None
                return q, scale, sums
            if g.has("rmsnorm_quant_i8", None, gain, **more):
                fused: Quantised = g.op("rmsnorm_quant_i8", self.value, gain, **more)
                return fused
            return None

        return Activation(g, self.width, self.dtype, self.planes, value, int8)


def norm(stream: Stream, value: Value, name: str) -> Value:
    """Return the RMS norm of a value that is not the stream itself (a norm behind a block)."""
    gain = stream.g.weight(name, (stream.width,))
    return one(
        stream.g,
        "rmsnorm",
        value,
        gain,
        n=stream.width,
        eps=stream.eps,
        dtype=stream.dtype,
        wadd=stream.wadd,
    )
