"""Make short answers of whole results, and hold other results against them."""

import hashlib
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from radiance_abi.testing.case import F64, Array, codes_of
from radiance_core.kbench.fixture import Answer, numbers

_PLACES = 24
_ROWS = 8
_RUNS = 24
_STEP = 2654435761  # odd, about 2^32 over the golden ratio: its multiples spread evenly


def whole(array: F64, within: F64 | None) -> Answer:
    """Make the answer of one result.

    Args:
        array: the result.
        within: how far another may be, at each place; None when all bytes must be equal.
    """
    flat = array.reshape(-1)
    places = _places(array.shape, flat.size)
    slack = np.zeros(flat.size) if within is None else within.reshape(-1)
    slack = np.where(np.isfinite(flat), slack, 0.0)
    return Answer(
        list(array.shape),
        flat[places].astype("<f8").tobytes(),
        slack[places].astype("<f4").tobytes(),
        _norms(flat).astype("<f8").tobytes(),
        _norms(slack).astype("<f4").tobytes(),
        _digest(flat) if within is None else "",
    )


def spread(results: Mapping[str, Array], planes: int, group: int) -> dict[str, F64]:
    """Return results as numbers; codes (``planes`` > 0) times their scales, beside these."""
    if not planes:
        return {name: array.astype(np.float64) for name, array in results.items()}
    codes = codes_of(results["q"], planes).astype(np.float64)
    grouped = codes.reshape(len(codes), -1, group)
    scale = results["scale"].astype(np.float64)
    others = {n: a.astype(np.float64) for n, a in results.items() if n not in ("q", "asum")}
    return {**others, "q*scale": grouped * scale[:, :, None]}


def odd_sums(results: Mapping[str, Array], planes: int, group: int) -> str:
    """Return where sums of codes are not the sums of the codes beside them, "" when they are."""
    codes = codes_of(results["q"], planes)
    sums = codes.reshape(len(codes), -1, group).sum(axis=2)
    bad = np.argwhere(sums != results["asum"])
    if not len(bad):
        return ""
    at = tuple(int(i) for i in bad[0])
    return f"asum{list(at)}: expected {sums[at]}, got {results['asum'][at]}"


def difference(name: str, want: Answer, got: F64) -> str:
    """Return where a result misses an answer, with both values; "" when it does not."""
    if list(got.shape) != want.extents:
        return f"{name}: expected extents {want.extents}, got {list(got.shape)}"
    flat, places = got.reshape(-1), _places(got.shape, got.size)
    values, within = numbers(want.values), numbers(want.within, "<f4")
    with np.errstate(invalid="ignore"):
        bad = ~_alike(flat[places], values, within)
    if bad.any():
        first = int(np.argmax(bad))
        at = [int(i) for i in np.unravel_index(places[first], got.shape)]
        return (
            f"{name}{at}: expected {values[first]:.9g} within {within[first]:.2g}, got "
            f"{flat[places[first]]:.9g} ({int(bad.sum())} of {len(places)} places beyond)"
        )
    norms, slacks, found = numbers(want.norms), numbers(want.slacks, "<f4"), _norms(flat)
    # Norms add in f64, in an order that is numpy's.
    far = ~(np.abs(found - norms) <= slacks + 1e-12 * norms)
    if far.any():
        run = int(np.argmax(far))
        edges = _edges(flat.size)
        first_last = [
            [int(i) for i in np.unravel_index(at, got.shape)]
            for at in (int(edges[run]), int(edges[run + 1]) - 1)
        ]
        return (
            f"{name}{first_last[0]}..{first_last[1]}: expected norm {norms[run]:.9g} within "
            f"{slacks[run]:.2g}, got {found[run]:.9g}"
        )
    if want.digest and _digest(flat) != want.digest:
        return f"{name}: expected the recorded bytes, got others between the places compared"
    return ""


def _alike(got: F64, want: F64, within: F64) -> Array:
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.asarray(same | (np.abs(got - want) <= within))


def _places(extents: tuple[int, ...], size: int) -> Array:
    """Return flat indices: the ends of the first rows and of the last, and others between."""
    if size == 0:
        return np.zeros(0, np.int64)
    row = max(extents[-1], 1) if extents else 1
    starts = np.arange(0, size, row)[:_ROWS]
    others = np.arange(_PLACES, dtype=np.int64) * _STEP % size
    return np.unique(np.concatenate([starts, starts + row - 1, [size - 1], others]))


def _edges(size: int) -> Array:
    return np.linspace(0, size, min(_RUNS, max(size, 1)) + 1).astype(np.int64)


def _norms(flat: F64) -> F64:
    finite = np.where(np.isfinite(flat), flat, 0.0)
    edges = _edges(flat.size)
    return np.sqrt([np.square(finite[a:b]).sum() for a, b in pairwise(edges)])


def _digest(flat: F64) -> str:
    clean = np.where(np.isnan(flat), np.nan, flat + 0.0)
    return hashlib.sha256(clean.astype("<f8").tobytes()).hexdigest()[:32]
