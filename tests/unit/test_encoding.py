"""Encodings: validity, spelling, geometry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiance_abi.dtypes import DTYPES
from radiance_abi.encoding import Encoding, Plane, affine, plain, rows_and_cols
from radiance_abi.errors import EncodingError

SPELLINGS = [
    "(none)",
    "bf16",
    "fp8_e4m3*bf16[128x128]",
    "i4*bf16[1x128]/fwht128",
    "fp8_e4m3*bf16[*x*]",
    "u2*f16[1x128]-u8[1x128]",
    "fp4_e2m1*e8m0[1x32]",
    "fp4_e2m1*fp8_e4m3[1x16]*f32[*x*]",
    "affine:codes=u4[1x1],scale=bf16[1x128],table=f32{1x16}/fwht128",
    "affine:codes=u4[1x1],scale=fp8_e4m3[1x64],scale.1=f32[*x*],table=f32{1x16}/fwht128",
    "affine:codes=u4[1x1],scale=u6[1x32],scale.1=f16[1x256],min=u6[1x32],min.1=f16[1x256]",
    "affine:codes=u8[1x8],scale=u4[1x32],scale.1=f16[1x256],signs=u1[1x1],grid=u8{256x8}",
    "i4*f16[1x128]*f16[*x1]",
    "bf16/fwht64",
    "affine:codes=i4[1x1],scale=f16[1x128],t.perm=i32{1x64}/perm",
    "affine:codes=i4[1x1],scale=f16[1x4],t.scale=f32{1x8},t.pairs=i32{2x8},t.angle=f32{2x4}/givens",
    "mine:codes=u8[1x4],weird=f32[3x*]/own",
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_spellings_round_trip(text: str) -> None:
    """What is read is written back letter for letter."""
    assert str(Encoding.parse(text)) == text
    assert Encoding.parse(str(Encoding.parse(text))) == Encoding.parse(text)


def test_aliases_and_long_forms_are_the_same_encoding() -> None:
    """Equality looks at fields, so two spellings of one thing are equal."""
    assert Encoding.parse("half") == plain("f16")
    assert Encoding.parse("plain:codes=bfloat16[1x1]") == plain("bf16")
    assert Encoding.parse("affine:codes=i4[1x1],scale=f16[1x32]") == Encoding.parse("i4*f16[1x32]")
    assert affine("u4", [("u6", 1, 32), ("f16", 1, 256)], min=("f16", 1, 32)).roles == (
        "codes",
        "scale",
        "scale.1",
        "min",
    )


def test_constructors_spell_as_expected() -> None:
    """Every argument of ``affine`` lands in the plane of its name, in the documented order."""
    zero = affine("u2", ("f16", 1, 128), zero=("u8", 1, 128))
    assert str(zero) == "u2*f16[1x128]-u8[1x128]"
    grid = affine(
        ("u8", 1, 8),
        [("u4", 1, 32), ("f16", 1, 256)],
        min=[("u4", 1, 32)],
        signs=True,
        grid=("u8", 256, 8),
        transform="fwht8",
    )
    assert str(grid) == (
        "affine:codes=u8[1x8],scale=u4[1x32],scale.1=f16[1x256],min=u4[1x32],signs=u1[1x1],"
        "grid=u8{256x8}/fwht8"
    )


def test_plane_order_is_part_of_the_encoding() -> None:
    """The same planes in another order are another encoding and spell so."""
    a, b, c = Plane("codes", "u4"), Plane("scale", "f16", (1, 8)), Plane("zero", "u8", (1, 8))
    first, second = Encoding("affine", (a, b, c)), Encoding("affine", (a, c, b))
    assert first != second
    assert str(first) == "u4*f16[1x8]-u8[1x8]"
    assert str(second) == "affine:codes=u4[1x1],zero=u8[1x8],scale=f16[1x8]"
    assert Encoding.parse(str(second)) == second


blocks = st.tuples(st.integers(0, 300), st.integers(0, 300))
dtypes = st.sampled_from(sorted(DTYPES))


@given(st.data())
def test_any_valid_affine_encoding_round_trips(data: st.DataObject) -> None:
    """Random planes in random order survive spelling."""
    draw = data.draw
    planes = [
        Plane(f"{role}.{level}" if level else role, draw(dtypes), draw(blocks))
        for role in ("scale", "min")
        for level in range(draw(st.integers(0, 2)))
    ]
    if draw(st.booleans()):
        planes.append(Plane("zero", draw(dtypes), draw(blocks)))
    codes = Plane("codes", draw(dtypes))
    if draw(st.booleans()):
        codes = Plane("codes", "u5")
        planes.append(Plane("table", draw(dtypes), extent=(1, draw(st.integers(1, 99)))))
    planes = draw(st.permutations(planes))
    transform = draw(st.sampled_from(["", "fwht2", "fwht128"]))
    if not planes and not transform:
        transform = "fwht64"
    encoding = Encoding("affine", (codes, *planes), transform)
    assert Encoding.parse(str(encoding)) == encoding


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a dtype or 'scheme:' first, got no dtype"),
        ("q4", "expected a dtype or 'scheme:' first, got 'q4'"),
        ("bf16/", "expected a transform after '/', got nothing"),
        ("i4*f16", r"expected '\*dtype\[RxC\]'"),
        ("i4*f16[1]", r"expected '\*dtype\[RxC\]'"),
        ("i4-u8[1x1]", r"got '-u8\[1x1\]'"),
        ("i4*f16[1x8]-u8[1x8]*f16[1x8]", r"got '\*f16\[1x8\]'"),
        ("affine:codes", r"got 'codes'"),
        ("affine:codes=u4[1x1],", "got ''"),
        ("i4*f17[1x8]", "expected a known dtype, got 'f17'"),
        ("f" * 2000, "at most 1024 characters, got 2000"),
        ("affine:codes=u4[1x1]", "expected more than codes, got none; spell it plain"),
        ("plain:codes=u4[1x2]", "expected only codes with block 1x1"),
        ("affine:scale=u4[1x1],codes=u4[1x1]", "as the first plane, got scale"),
        ("affine:codes=u4[2x1],scale=f16[1x1]", r"as the first plane, got codes \(2, 1\)"),
        ("affine:codes=u4{2x1},scale=f16[1x1]", r"as the first plane, got codes \(2, 1\)"),
        ("affine:codes=u4[1x1],scale=f16[1x1],scale=f16[1x1]", "got scale twice"),
        ("affine:codes=u4[1x1],wat=f16[1x1]", "expected a known role, got tiled 'wat'"),
        ("affine:codes=u4[1x1],table=f16[1x1]", "got tiled 'table'"),
        ("affine:codes=u4[1x1],scale=f16{1x1}", "got table 'scale'"),
        ("affine:codes=u4[1x1],scale.1=f16[1x1]", "expected scale below scale.1"),
        ("affine:codes=u4[1x1],min=f16[1x1],min.2=f16[1x1]", "expected min.1 below min.2"),
        ("affine:codes=u4[1x2],scale=f16[1x1]", "expected codes of block 1x1"),
        ("affine:codes=u8[1x4],grid=u8{256x8}", r"expected codes of block 1x8 \(the width"),
        ("affine:codes=u8[1x8],grid=u8{256x8},table=u8{1x2}", "a grid or a table, got both"),
        ("affine:codes=i8[1x1],table=u8{1x2}", "unsigned codes to index a table, got i8"),
        ("affine:codes=u4[1x1],signs=u2[1x1]", r"expected signs u1\[1x1\], got u2"),
        ("i4*f16[1x1]/fwht3", "a power of two >= 2, got 'fwht3'"),
        ("i4*f16[1x1]/fwht1", "a power of two >= 2, got 'fwht1'"),
        ("i4*f16[1x1]/spin", "fwhtN, perm or givens, got 'spin'"),
        ("i4*f16[1x1]/perm", "expected a table t.perm for perm"),
        ("affine:codes=i4[1x1],t.perm=i64{1x4}/perm", "expected t.perm of i32 with 1 row, got i64"),
        ("affine:codes=i4[1x1],t.perm=i32{2x4}/perm", r"with 1 row, got i32 \(2, 4\)"),
        ("x:codes=u4[1x1]/" + "y" * 24, "a transform of at most 23 bytes"),
        ("x:codes=u4[1x1]" + "".join(f",r{i}=u8[1x1]" for i in range(8)), "1 to 8 planes, got 9"),
        ("x:codes=u4[1x1]," + "r" * 24 + "=u8[1x1]", "plane role: expected a name of 1 to 23"),
        ("x!:codes=u4[1x1]", "encoding scheme: expected a name"),
        ("x:codes=u4[1x1],t=u8{0x4}", r"expected a table of at least 1x1, got \(0, 4\)"),
    ],
)
def test_breaches_are_refused_and_named(text: str, message: str) -> None:
    """Every rule has a text that says what was expected and what was got."""
    with pytest.raises(EncodingError, match=message):
        Encoding.parse(text)


def test_planes_built_by_hand_are_checked_too() -> None:
    """The same rules hold without the parser."""
    with pytest.raises(EncodingError, match=r"expected a block of two numbers >= 0, got \(-1, 1\)"):
        Plane("scale", "f16", (-1, 1))
    with pytest.raises(EncodingError, match="no block beside a table's extent"):
        Plane("table", "f16", (1, 2), extent=(1, 2))
    with pytest.raises(EncodingError, match=r"plane table: expected \(dtype, rows, cols\)"):
        affine("u4", table="f32")
    with pytest.raises(EncodingError, match="expected one of the planes codes, got 'scale'"):
        plain("bf16").plane("scale")


@given(st.integers(0, 70), st.integers(0, 70), blocks)
def test_plane_shapes_count_partial_blocks(rows: int, cols: int, block: tuple[int, int]) -> None:
    """The extents are the number of distinct block indices that elements fall into."""
    encoding = affine("u3", ("f16", *block))
    expected = tuple(
        len({i // size if size else 0 for i in range(extent)})
        for extent, size in zip((rows, cols), block, strict=True)
    )
    assert encoding.plane_shape("scale", rows, cols) == expected
    assert encoding.plane_bytes("scale", rows, cols) == 2 * expected[0] * expected[1]
    assert encoding.plane_bytes("codes", rows, cols) == rows * ((cols * 3 + 7) // 8)
    assert encoding.total_bytes(rows, cols) == sum(
        encoding.plane_bytes(role, rows, cols) for role in encoding.roles
    )
    dtype, shape = encoding.codes.storage(rows, cols)
    assert dtype == np.dtype(np.uint8)
    assert shape == (rows, (cols * 3 + 7) // 8)


def test_cutting_units() -> None:
    """Where a weight can be sliced is the common multiple of its blocks."""
    assert Encoding.parse("i4*f16[4x32]*f16[6x256]").block_rows == 12
    assert Encoding.parse("i4*f16[4x32]*f16[6x256]").block_cols == 256
    assert Encoding.parse("fp8*f32[*x*]").block_rows == 0
    assert rows_and_cols((3, 4, 5)) == (12, 5)
    assert rows_and_cols((7,)) == (1, 7)
    assert rows_and_cols(()) == (1, 1)
