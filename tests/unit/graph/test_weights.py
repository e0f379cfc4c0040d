"""Declared weights against a checkpoint: found, joined, or refused with the reason."""

import re

import pytest

from radiance_abi import Encoding, affine, concat, copy, plain
from radiance_core.graph.errors import WeightError
from radiance_core.graph.weights import WeightCatalog

from .building import Facts, f32

Q8 = affine("i8", ("f16", 1, 32))
TALL = affine("i8", ("f32", 128, 128))
ALL_ROWS = affine("i8", ("f32", 0, 32))


def catalog(**tensors: Facts) -> WeightCatalog:
    names = {
        "one": copy("a"),
        "either": copy("x", "a"),
        "both": concat("a", "b"),
        "three": concat("a", "b", "c"),
        "neither": copy("x", "y"),
    }
    return WeightCatalog(names, tensors, "model.gguf")


def refused(text: str) -> "pytest.RaisesExc[WeightError]":
    return pytest.raises(WeightError, match=re.escape(text))


def test_what_is_there_is_found() -> None:
    """The first present alternative, or all parts stacked along their rows."""
    c = catalog(a=f32(3, 8), b=f32(5, 8))
    assert c.find("either", (3, 8)) == (copy("a"), plain("f32"))
    assert c.find("both", (8, 8)) == (concat("a", "b"), plain("f32"))
    assert (c.has("one"), c.has("both"), c.has("neither"), c.has("zzz")) == (
        True,
        True,
        False,
        False,
    )


def test_vectors_join_end_to_end() -> None:
    """Stacked vectors have the sum of their lengths."""
    c = catalog(a=f32(3), b=f32(5))
    assert c.find("both", (8,))[0].join
    assert c.has("both")


def test_what_is_missing_is_named() -> None:
    """A missing tensor and an unmapped weight come with the nearest name."""
    c = catalog(a=f32(3, 8), y2=f32(1))
    with refused(
        "weight onee: the architecture declares it but names() does not map it; did you mean 'one'?"
    ):
        c.find("onee", (3, 8))
    with refused("weight both: expected tensor b in model.gguf, got 2 tensors and not this"):
        c.find("both", (3, 8))
    with refused("weight three: expected tensor b and c in"):
        c.find("three", (3, 8))
    with refused("weight neither: expected tensor x or y in model.gguf"):
        c.find("neither", (3, 8))
    near = WeightCatalog({"w": copy("output.weight")}, {"output.weights": f32(1)}, "m")
    with refused("and not this; did you mean 'output.weights'?"):
        near.find("w", (1,))


def test_extents_are_compared() -> None:
    """A tensor of other extents is refused with both shapes and where they come from."""
    c = catalog(a=f32(3, 8), b=f32(5, 8))
    with refused("weight one: expected [8, 3], got [3, 8] from a in model.gguf"):
        c.find("one", (8, 3))
    with refused("weight both: expected [9, 8], got [8, 8] from a + b in model.gguf"):
        c.find("both", (9, 8))


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (f32(4, 8), Facts((4, 8), plain("bf16")), f"a is {plain('f32')} and b is {plain('bf16')}"),
        (f32(4, 8), f32(4, 9), "a is [4, 8] and b is [4, 9]"),
        (
            Facts((64, 128), TALL),
            Facts((128, 128), TALL),
            "a has 64 rows, which blocks of 128 rows do not divide",
        ),
        (
            Facts((64, 32), ALL_ROWS),
            Facts((64, 32), ALL_ROWS),
            f"{ALL_ROWS} has a plane that covers all rows of a",
        ),
    ],
)
def test_what_cannot_be_stacked(a: Facts, b: Facts, says: str) -> None:
    """Parts of other encodings, widths or uncuttable blocks are not joined, and has says so."""
    c = catalog(a=a, b=b)
    assert not c.has("both")
    with refused(f"weight both: its parts cannot be stacked: {says}"):
        c.find("both", (8, 8))


@pytest.mark.parametrize("encoding", [Q8, TALL])
def test_blocks_that_fit_are_stacked(encoding: Encoding) -> None:
    """Blocks that end where a part ends do not stand in the way; the last part may be ragged."""
    c = catalog(a=Facts((128, 128), encoding), b=Facts((70, 128), encoding))
    assert c.find("both", (198, 128))[1] == encoding


def test_experts_count_all_their_rows() -> None:
    """Blocks of stacked experts are cut along the flattened rows."""
    c = catalog(a=Facts((2, 64, 128), TALL), b=Facts((2, 64, 128), TALL))
    assert c.has("both")
