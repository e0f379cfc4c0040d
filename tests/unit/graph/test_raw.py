"""Configurations read strictly: what may be asked, and that nothing stays unread."""

import re
from typing import Any

import numpy as np
import pytest

from radiance_core.graph.errors import ModelConfigError
from radiance_core.graph.raw import RawConfig

from .building import f32


def raw(values: dict[str, Any], format: str = "safetensors") -> RawConfig:  # noqa: A002
    tensors = {"rope_freqs.weight": f32(4)}
    return RawConfig(values, format, "m/config.json", tensors, lambda name: np.ones(4, np.float32))


def refused(text: str) -> "pytest.RaisesExc[ModelConfigError]":
    return pytest.raises(ModelConfigError, match=re.escape(text))


def test_values_come_with_their_type() -> None:
    """Need and get return the value; an int serves as a float; null is absent."""
    r = raw({"a": 3, "b": 2, "c": None, "s": "x", "l": [1], "t": True})
    assert r.need("a", int) == 3
    assert type(r.need("b", float)) is float
    assert r.get("c", int, 9) == 9
    assert r.get("missing", int, 8) == 8
    assert (r.get("s", str), r.get("l", list), r.get("t", bool)) == ("x", [1], True)
    assert (r.has("a"), r.has("c"), r.has("zzz")) == (True, False, False)


@pytest.mark.parametrize(
    ("value", "kind", "says"),
    [
        ("3", int, "key k: expected int, got '3' (a string)"),
        (True, int, "key k: expected int, got True (bool)"),
        (False, float, "key k: expected float, got False (bool)"),
        (3.5, int, "key k: expected int, got 3.5 (float)"),
        ([1], dict, "key k: expected an object, got [1] (a list)"),
        ({}, str, "key k: expected a string, got {} (an object)"),
        ("x" * 200, int, "got '" + "x" * 76 + "..."),
        (float("nan"), float, "key k: expected a finite number, got nan"),
        (float("-inf"), float, "key k: expected a finite number, got -inf"),
        (10**400, float, "key k: expected a finite number, got 1000"),
    ],
)
def test_wrong_types_are_named(value: object, kind: type, says: str) -> None:
    """A value of another type, and a number that is none, name file, key and value."""
    with refused(f"m/config.json: {says}" if says.startswith("key") else says):
        raw({"k": value}).need("k", kind)
    with refused(says):
        raw({"k": value}).get("k", kind)


def test_a_missing_key_offers_the_nearest() -> None:
    """A key that must be there is refused with the one most like it."""
    with refused("key hiden_size: expected int, got nothing; did you mean 'hidden_size'?"):
        raw({"hidden_size": 3}).need("hiden_size", int)


def test_expect_allows_what_is_listed() -> None:
    """Absent, null and listed values pass; others are refused; true is not 1."""
    r = raw({"act": "silu", "n": None, "one": 1, "yes": True})
    r.expect("act", "silu", "gelu")
    r.expect("n", 5)
    r.expect("absent", 5)
    r.expect("one", 1, 1.0)
    r.expect("yes", True)
    with refused("key act: only 'relu' or 'gelu' is served, got 'silu'"):
        r.expect("act", "relu", "gelu")
    with refused("key one: only True is served, got 1"):
        r.expect("one", True)
    with refused("key yes: only 1 is served, got True"):
        r.expect("yes", 1)


def test_every_key_needs_an_answer() -> None:
    """A key that was not read, asserted or ignored stops, with the others that were not."""
    r = raw({"a": 1, "b": 2, "c": 3, "d.x": 4, "d.y": 5, "model_type": "x", "dtype": "f"})
    r.need("a", int)
    r.expect("b", 2)
    r.ignore("d.*")
    with refused(
        "m/config.json: 1 configuration key(s) that the architecture does not know: c. It"
    ):
        r.finish()
    r.ignore("c")
    r.finish()


def test_gguf_has_keys_of_its_own() -> None:
    """Keys of the tokenizer and of the file itself are the core's, the model's are not."""
    r = raw({"general.name": "x", "tokenizer.ggml.model": "gpt2", "llama.new": 1}, "gguf")
    with refused("does not know: llama.new."):
        r.finish()


def test_nested_objects_are_as_strict() -> None:
    """What is inside an object is named by its whole path, and asked twice it is one object."""
    r = raw({"rope": {"type": "x", "new": 1}, "none": None})
    assert r.sub("none") is None
    assert r.sub("absent") is None
    nested = r.sub("rope")
    assert nested is not None
    assert nested.need("type", str) == "x"
    with refused("key rope.factor: expected float, got nothing"):
        nested.need("factor", float)
    with refused("does not know: rope.new."):
        r.finish()
    again = r.sub("rope")
    assert again is not None
    again.ignore("new")
    r.finish()
    with refused("key a: expected an object, got 3 (int)"):
        raw({"a": 3}).sub("a")


def test_tensors_tell_what_keys_do_not() -> None:
    """Shapes and small tensors can be asked for by name."""
    r = raw({})
    assert r.tensor("rope_freqs.weight") == (4,)
    assert r.tensor("none") is None
    assert r.read_tensor("rope_freqs.weight").tolist() == [1, 1, 1, 1]
