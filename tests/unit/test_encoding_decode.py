"""Decoding against a definition written element by element in double precision."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radiance_abi.dtypes import DTYPES
from radiance_abi.encoding import Encoding, Plane, affine, decode, pack, plain
from radiance_abi.encoding.decoding import plane_values
from radiance_abi.errors import EncodingError

NUMERIC = sorted(set(DTYPES) - {"bool", "u64", "i64", "f64"})


def random_plane(rng: np.random.Generator, plane: Plane, rows: int, cols: int) -> Any:
    """Draw a stored plane over the dtype's whole finite range."""
    dtype, shape = plane.storage(rows, cols)
    element = plane.element
    if element.packed:
        count = plane.shape(rows, cols)[1]
        codes = rng.integers(0, 1 << element.bits, (shape[0], count))
        return pack(codes, element.bits)
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8).reshape(
        shape[0], shape[1] * dtype.itemsize
    )
    array = np.ascontiguousarray(raw).view(dtype)
    with np.errstate(invalid="ignore"):
        wide = array.astype(np.float64)
    bad = ~np.isfinite(wide) | (np.abs(wide) > 1e6)
    return np.where(bad, np.ones_like(array), array)


def by_definition(encoding: Encoding, planes: dict[str, Any], rows: int, cols: int) -> Any:
    """Evaluate the affine formula with Python loops and floats."""

    def at(plane: Plane, i: int, j: int) -> float:
        br, bc = plane.block
        count = plane.shape(rows, cols)[1]
        values = plane_values(plane, planes[plane.role], count, np.dtype(np.float64))
        return float(values[i // br if br else 0, j // bc if bc else 0])

    out = np.empty((rows, cols))
    grid, table = encoding.find("grid"), encoding.find("table")
    for i in range(rows):
        for j in range(cols):
            q = at(encoding.codes, i, j)
            if grid is not None:
                q = float(planes["grid"][int(q), j % encoding.codes.block[1]])
            if table is not None:
                q = float(planes["table"].reshape(-1)[int(q)])
            if encoding.find("signs") and at(encoding.plane("signs"), i, j):
                q = -q
            if (zero := encoding.find("zero")) is not None:
                q -= at(zero, i, j)
            for level in encoding.chain("scale"):
                q *= at(level, i, j)
            if encoding.find("min"):
                q -= math.prod(at(level, i, j) for level in encoding.chain("min"))
            out[i, j] = q
    return out


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(1, 40))
def test_affine_follows_the_formula(data: Any, seed: int, rows: int, cols: int) -> None:
    """Any mixture of planes, dtypes and blocks, partial blocks included."""
    rng, draw = np.random.default_rng(seed), data.draw
    blocks = st.tuples(st.integers(0, 9), st.integers(0, 50))
    form = draw(st.sampled_from(["codes", "table", "grid"]))
    codes, tables = Plane("codes", draw(st.sampled_from(NUMERIC))), []
    if form == "table":
        codes, tables = Plane("codes", "u3"), [Plane("table", "f16", extent=(1, 8))]
    if form == "grid":
        width = draw(st.integers(1, 8))
        codes = Plane("codes", "u5", (1, width))
        tables = [Plane("grid", "i8", extent=(32, width))]
    planes = [
        Plane(f"{role}.{level}" if level else role, draw(st.sampled_from(NUMERIC)), draw(blocks))
        for role, least in (("scale", 1), ("min", 0))
        for level in range(draw(st.integers(least, 2)))
    ]
    if draw(st.booleans()):
        planes.append(Plane("zero", draw(st.sampled_from(NUMERIC)), draw(blocks)))
    if draw(st.booleans()):
        planes.append(Plane("signs", "u1"))
    encoding = Encoding("affine", (codes, *planes, *tables))
    stored = {p.role: random_plane(rng, p, rows, cols) for p in encoding}
    with np.errstate(all="ignore"):
        got = decode(encoding, stored, (rows, cols), np.float64)
        assert got.dtype == np.float64
        assert np.array_equal(got, by_definition(encoding, stored, rows, cols), equal_nan=True)


@pytest.mark.parametrize("name", sorted(set(DTYPES)))
def test_plain_returns_the_stored_values(name: str) -> None:
    """Every dtype decodes to its own values; the shape is the logical one."""
    rng = np.random.default_rng()
    plane = random_plane(rng, Plane("codes", name), 6, 5)
    got = decode(plain(name), {"codes": plane}, (2, 3, 5), np.float64)
    assert got.shape == (2, 3, 5)
    want = plane_values(Plane("codes", name), plane, 5, np.dtype(np.float64))
    assert np.array_equal(got.reshape(6, 5), want)


@pytest.mark.parametrize("text", ["f32*f32[1x4]-f32[1x2]", "f64*f64[1x1]", "f32/fwht4"])
def test_planes_are_left_as_they_are(text: str) -> None:
    """Decoding works in place on its own copy, never on what it was given."""
    encoding, rng = Encoding.parse(text), np.random.default_rng()
    planes = {p.role: rng.normal(size=p.shape(3, 8)).astype(p.element.numpy) for p in encoding}
    before = {role: plane.copy() for role, plane in planes.items()}
    for plane in planes.values():
        plane.flags.writeable = False
    decode(encoding, planes, (3, 8), planes["codes"].dtype)
    assert all(np.array_equal(planes[role], before[role]) for role in planes)


def test_small_floats_have_their_published_values() -> None:
    """fp4 and both fp6 enumerate to the OCP values."""
    fp4 = decode(plain("fp4_e2m1"), {"codes": pack(np.arange(16)[None], 4)}, (16,))
    positive = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert fp4.tolist() == positive + [-v for v in positive]
    for name, top in (("fp6_e2m3", 7.5), ("fp6_e3m2", 28.0)):
        values = decode(plain(name), {"codes": pack(np.arange(64)[None], 6)}, (64,))
        assert values.max() == top
        assert values.min() == -top


def sylvester(n: int) -> Any:
    """Build the unnormalised matrix by its doubling definition."""
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h


@pytest.mark.parametrize("n", [2, 8, 64])
def test_fwht_undoes_its_matrix(n: int) -> None:
    """Rows v = w . H/N per column group decodes to w."""
    w = np.random.default_rng().normal(size=(3, 4 * n))
    v = (w.reshape(3, 4, n) @ (sylvester(n) / n)).reshape(3, 4 * n)
    encoding = Encoding("affine", (Plane("codes", "f64"),), f"fwht{n}")
    assert np.allclose(decode(encoding, {"codes": v}, v.shape, np.float64), w, atol=1e-12)


def test_perm_undoes_its_order() -> None:
    """v[j] = w[perm[j]] decodes to w."""
    rng = np.random.default_rng()
    w, perm = rng.normal(size=(3, 9)), rng.permutation(9).astype(np.int32)[None]
    encoding = affine("f64", transform="perm", transform_tables={"t.perm": ("i32", 1, 9)})
    planes: dict[str, Any] = {"codes": w[:, perm[0]], "t.perm": perm}
    assert np.array_equal(decode(encoding, planes, w.shape, np.float64), w)
    planes["t.perm"] = np.zeros((1, 9), np.int32)
    with pytest.raises(EncodingError, match="to name each of 9 columns once"):
        decode(encoding, planes, w.shape)


@pytest.mark.parametrize("scaled", [False, True])
def test_givens_undoes_its_rotations(scaled: bool) -> None:
    """Rows v = w . D . G_1 .. G_S with explicit matrices decodes to w."""
    rng = np.random.default_rng()
    cols, stages = 10, 3
    w = rng.normal(size=(4, cols))
    pairs = np.stack([rng.permutation(cols) for _ in range(stages)]).astype(np.int32)
    angles = rng.uniform(-3, 3, (stages, cols // 2)).astype(np.float32)
    scale = rng.uniform(0.2, 5, (1, cols)).astype(np.float32)
    matrix = np.diag(scale[0].astype(float)) if scaled else np.eye(cols)
    for stage in range(stages):
        g = np.eye(cols)
        for i, t in enumerate(angles[stage].astype(float)):
            a, b = pairs[stage, 2 * i], pairs[stage, 2 * i + 1]
            g[a, a], g[b, a] = math.cos(t), math.sin(t)
            g[b, b], g[a, b] = math.cos(t), -math.sin(t)
        matrix = matrix @ g
    tables = {"t.pairs": ("i32", stages, cols), "t.angle": ("f32", stages, cols // 2)}
    planes: dict[str, Any] = {"codes": w @ matrix, "t.pairs": pairs, "t.angle": angles}
    if scaled:
        tables["t.scale"], planes["t.scale"] = ("f32", 1, cols), scale
    encoding = affine("f64", transform="givens", transform_tables=tables)
    assert np.allclose(decode(encoding, planes, w.shape, np.float64), w, atol=1e-12)


def test_planes_that_do_not_fit_are_refused() -> None:
    """Missing planes, wrong dtypes, wrong shapes, codes past the table, foreign schemes."""
    encoding = Encoding.parse("i4*f16[1x32]")
    codes, scale = np.zeros((2, 32), np.uint8), np.ones((2, 2), np.float16)
    with pytest.raises(EncodingError, match="expected the planes codes, scale, got codes"):
        decode(encoding, {"codes": codes}, (2, 64))
    with pytest.raises(EncodingError, match=r"plane scale as float16 \[2, 2\].*got float32"):
        decode(encoding, {"codes": codes, "scale": scale.astype(np.float32)}, (2, 64))
    with pytest.raises(EncodingError, match=r"plane codes as uint8 \[2, 33\].*got uint8 \[2, 32\]"):
        decode(encoding, {"codes": codes, "scale": np.ones((2, 3), np.float16)}, (2, 65))
    table = affine("u4", table=("f32", 1, 3))
    planes: dict[str, Any] = {"codes": pack([[0, 3]], 4), "table": np.ones((1, 3), np.float32)}
    with pytest.raises(EncodingError, match="below the 3 entries of table, got 3"):
        decode(table, planes, (1, 2))
    with pytest.raises(EncodingError, match="the quantiser that wrote it supplies decode"):
        decode(Encoding.parse("own:codes=u8[1x1]"), {"codes": codes}, (2, 32))
    fwht = Encoding.parse("f32*f32[1x1]/fwht8")
    ones = np.ones((1, 12), np.float32)
    with pytest.raises(EncodingError, match="columns that 8 divides, got 12"):
        decode(fwht, {"codes": ones, "scale": ones}, (12,))


def test_givens_tables_must_fit_the_columns() -> None:
    """Angles and scales of another width are refused by name."""
    w = np.ones((1, 4))
    tables = {"t.pairs": ("i32", 1, 4), "t.angle": ("f32", 1, 3)}
    encoding = affine("f64", transform="givens", transform_tables=tables)
    planes: dict[str, Any] = {
        "codes": w,
        "t.pairs": np.arange(4, dtype=np.int32)[None],
        "t.angle": np.zeros((1, 3), np.float32),
    }
    with pytest.raises(EncodingError, match=r"expected t.angle of 1 x 4/2, got \[1, 3\]"):
        decode(encoding, planes, w.shape)
    tables = {"t.pairs": ("i32", 1, 4), "t.angle": ("f32", 1, 2), "t.scale": ("f32", 1, 3)}
    encoding = affine("f64", transform="givens", transform_tables=tables)
    planes["t.angle"], planes["t.scale"] = planes["t.angle"][:, :2], np.ones((1, 3), np.float32)
    with pytest.raises(EncodingError, match=r"expected t.scale of 1 x 4, got \[1, 3\]"):
        decode(encoding, planes, w.shape)
