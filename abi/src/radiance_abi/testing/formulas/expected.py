"""What a formula answers, and how far a kernel may be from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from radiance_abi.testing.case import F64, MOST_CODE, Array, Case, codes_of, smallest, unit

F32_SLACK = 2e-6
"""Error allowed per unit of magnitude: sums of some hundred terms in f32, and short polynomials."""


@dataclass(frozen=True, slots=True)
class Near:
    """A result that may differ by rounding.

    ``value``: what is right, in f64. ``magnitude``: size of the terms that were added to make it;
    the error of arithmetic in f32 is in proportion to it. ``stages``: sum of the sizes of
    intermediates that are rounded to the operands' dtype on the way, each of which may fall to
    either side. ``gains``: sum of what each of them is multiplied by afterwards. ``special``:
    infinities and NaN belong to the answer and must stand where they are.
    """

    value: F64
    magnitude: F64
    stages: F64 | float = 0.0
    gains: F64 | float = 0.0
    special: bool = False


@dataclass(frozen=True, slots=True)
class Exact:
    """A result that must be equal bit for bit, NaN payloads and signs of zero aside."""

    value: Array


@dataclass(frozen=True, slots=True)
class Codes:
    """Codes in int8 planes of a value that was rounded: ``value`` and its error as in ``Near``."""

    value: Near
    group: int
    planes: int = 1


Expected = Mapping[str, Near | Exact | Codes]
Formula = Callable[[Case], Expected]


def difference(name: str, want: Near | Exact | Codes, got: Mapping[str, Array], dtype: str) -> str:
    """Return in words how results ``got`` miss what is wanted of ``name``; "" when they do not.

    ``dtype`` names the type that intermediates are rounded to.
    """
    if isinstance(want, Codes):
        return _codes_difference(want, got, dtype)
    if isinstance(want, Exact):
        return _exact_difference(name, want, got[name])
    if not want.special and not np.isfinite(want.value).all():
        return f"{name}: the formula itself is not finite; narrow the inputs"
    return _beyond(name, want, got[name].astype(np.float64), allowed(want, got[name], dtype))


def _exact_difference(name: str, want: Exact, got: Array) -> str:
    if got.shape != want.value.shape:
        return f"{name}: expected extents {list(want.value.shape)}, got {list(got.shape)}"
    same = got == want.value
    if got.dtype.kind == "f" or got.dtype.name == "bfloat16":
        same |= np.isnan(got.astype(np.float64)) & np.isnan(want.value.astype(np.float64))
    if bool(np.all(same)):
        return ""
    at = _first(~same)
    count = int(np.count_nonzero(~same))
    return (
        f"{name}{list(at)}: expected {want.value[at]}, got {got[at]} "
        f"({count} of {same.size} differ)"
    )


def allowed(want: Near, got: Array, dtype: str) -> F64:
    """Return how far each element of a result may be from its formula.

    ``got`` tells the type that it is stored in; ``dtype`` names that of intermediates.
    """
    stored = unit(got.dtype.name) if got.dtype.kind != "i" else 0.0
    # Half a spacing for the last rounding, a little for what moves it; a whole one for each stage.
    last = 0.51 * stored * np.abs(want.value) + np.finfo(np.float32).tiny
    # A number s and its neighbour in the dtype lie unit * |s| apart, or as the smallest ones do,
    # whichever is more; what a stage is multiplied by afterwards magnifies that.
    inner = (unit(dtype) * np.asarray(want.stages) + smallest(dtype) * np.asarray(want.gains)) * (
        dtype != "f32"
    )
    small = smallest("f16") if got.dtype.name == "float16" else 0.0
    return np.asarray(last + inner + F32_SLACK * want.magnitude + small)


def _beyond(name: str, want: Near, got: F64, allowed: F64) -> str:
    if got.shape != want.value.shape:
        return f"{name}: expected extents {list(want.value.shape)}, got {list(got.shape)}"
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(got - want.value) <= allowed)
    if want.special:
        alike = (got == want.value) | (np.isnan(got) & np.isnan(want.value))
        bad = np.where(np.isfinite(want.value), bad, ~alike)
    if not bad.any():
        return ""
    at = _first(bad)
    return (
        f"{name}{list(at)}: expected {want.value[at]:.9g} within {allowed[at]:.2g}, "
        f"got {got[at]:.9g} ({int(np.count_nonzero(bad))} of {bad.size} beyond)"
    )


def _codes_difference(want: Codes, got: Mapping[str, Array], dtype: str) -> str:
    """Check that codes times scale are within half a code of the value, and that sums are sums."""
    value = want.value.value
    shape = (len(value), -1, want.group)
    fault = _planes_difference(want, got["q"])
    if fault:
        return fault
    codes = codes_of(got["q"], want.planes).astype(np.float64).reshape(shape)
    most = MOST_CODE[want.planes]
    sums = codes.sum(axis=2)
    if not np.array_equal(sums, got["asum"].astype(np.float64)):
        at = _first(sums != got["asum"])
        return f"asum{list(at)}: expected the sum of its codes {sums[at]:g}, got {got['asum'][at]}"
    slack = allowed(want.value, np.zeros(0, np.float32), dtype).reshape(shape)
    top = np.abs(value).reshape(shape).max(axis=2)
    scale = got["scale"].astype(np.float64)
    limit = slack.max(axis=2) / most + 2e-7 * top / most
    bad = ~(np.abs(scale - top / most) <= limit)
    if bad.any():
        at = _first(bad)
        return f"scale{list(at)}: expected {top[at] / most:.9g}, got {scale[at]:.9g}"
    decoded = codes * scale[:, :, None]
    room = 0.5001 * scale[:, :, None] + 2 * slack + 1e-30
    near = Near(value.reshape(shape), value.reshape(shape))
    return _beyond("q*scale", near, decoded, room)


def _planes_difference(want: Codes, q: Array) -> str:
    """Check that each code has its one spelling: the second plane is a remainder in -64..63."""
    if want.planes == 1:
        return ""
    width = q.shape[1] // 2
    bad = (q[:, width:] < -64) | (q[:, width:] > 63)
    if not bad.any():
        return ""
    row, column = _first(bad)
    got = q[row, width + column]
    return f"q{[row, width + column]}: expected a second plane in -64..63, got {got}"


def _first(bad: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(bad)[0])
