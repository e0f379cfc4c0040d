"""Malformed safetensors heads are refused with a text that names the file and both numbers."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from radiance_core.model_files import ModelFileError, open_checkpoint
from radiance_core.model_files.json_text import MAX_JSON_BYTES

from .safetensors_writer import entry, raw_file


def head(data: int = 8, /, **entries: Any) -> bytes:
    """Return a file with those entries and that many bytes of data."""
    return raw_file(json.dumps(entries).encode(), bytes(data))


GOOD = entry("I8", [8], 0, 8)
CASES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "expected a model file, got 0 bytes"),
    "short": (b"12345678{", "expected at least 10 bytes, got 9"),
    "length": (raw_file(b"{}", b"xx", 5), "a header of at most 4 bytes, got 5; is it safetensors"),
    "huge length": (raw_file(b"{}", b"", 2**64 - 1), "at most 2 bytes, got 18446744073709551615"),
    "no brace": (raw_file(b" {}"), r"starts with '{', got b' '"),
    "not json": (raw_file(b"{x}"), "expected valid JSON in the header, got: Expecting property"),
    "not utf-8": (raw_file(b'{"\xff":1}'), "expected valid JSON in the header, got: 'utf-8'"),
    "deep": (
        raw_file(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        "expected flat JSON in the header, got it nested too deep",
    ),
    "long number": (raw_file(b'{"a":' + b"9" * 5000 + b"}"), "expected valid JSON in the header"),
    "duplicate": (
        raw_file(
            b'{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},'
            b'"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}',
            b"x",
        ),
        "the key 'a' occurs twice",
    ),
    "duplicate field": (
        raw_file(b'{"a":{"dtype":"I8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        "the key 'dtype' occurs twice",
    ),
    "metadata": (head(0, __metadata__={"a": 1}), "expected __metadata__ as strings by name"),
    "metadata list": (head(0, __metadata__=[]), "expected __metadata__ as strings by name"),
    "entry": (head(a=5), "tensor 'a': expected the fields dtype, shape and data_offsets, got int"),
    "field": (head(a={**GOOD, "x": 1}), r"expected the fields .*, got \['data_offsets', 'dtype'"),
    "missing": (head(a={"dtype": "I8", "shape": [8]}), r"got \['dtype', 'shape'\]"),
    "dtype": (head(a=entry("F8_E3M4", [8], 0, 8)), "expected a dtype of F64.*, got 'F8_E3M4'"),
    "dtype type": (head(a=entry([], [8], 0, 8)), r"expected a dtype of F64.*, got \[\]"),
    "shape": (head(a=entry("I8", {}, 0, 8)), r"a shape of at most 8 integers >= 0, got \{\}"),
    "negative": (head(a=entry("I8", [-8], 0, 8)), r"at most 8 integers >= 0, got \[-8\]"),
    "float": (head(a=entry("I8", [8.0], 0, 8)), r"at most 8 integers >= 0, got \[8.0\]"),
    "bool": (head(a=entry("I8", [True], 0, 1)), r"at most 8 integers >= 0, got \[True\]"),
    "ranks": (head(a=entry("I8", [1] * 9, 0, 1)), "a shape of at most 8 integers"),
    "big extent": (head(a=entry("I8", [2**63], 0, 8)), "integers >= 0, got .92233720368547758"),
    "offsets": (head(a=entry("I8", [8], -8, 0)), r"expected two data_offsets >= 0, got \[-8, 0\]"),
    "three": (
        head(a={"dtype": "I8", "shape": [8], "data_offsets": [0, 8, 8]}),
        r"expected two data_offsets >= 0, got \[0, 8, 8\]",
    ),
    "backwards": (head(a=entry("I8", [8], 8, 0)), r"expected 8 bytes of I8 \[8\], got -8"),
    "size": (head(a=entry("F32", [8], 0, 8)), r"tensor 'a': expected 32 bytes of F32 \[8\], got 8"),
    "product": (
        head(a=entry("F32", [1 << 31, 1 << 31, 4], 0, 0)),
        f"expected {1 << 66} bytes of F32",
    ),
    "past end": (
        head(a=entry("I8", [9], 0, 9)),
        "tensor 'a': expected data that ends by 8, got 9; the file is cut short",
    ),
    "gap": (
        head(a=entry("I8", [2], 0, 2), b=entry("I8", [2], 6, 8)),
        r"tensor 'b': expected its data to start at 2 where the one before ends, got 6 \(gap\)",
    ),
    "overlap": (
        head(a=entry("I8", [5], 0, 5), b=entry("I8", [4], 4, 8)),
        r"tensor 'b': expected its data to start at 5 where .*, got 4 \(overlap\)",
    ),
    "trailing": (head(9, a=GOOD), "expected tensors to cover 9 bytes of data, got 8"),
    "empty name": (head(8, **{"": GOOD}), "expected names of 1 to 1024 bytes, got 0"),
    "long name": (head(8, **{"n" * 1025: GOOD}), "expected names of 1 to 1024 bytes, got 1025"),
    "surrogate": (
        raw_file(b'{"\\ud800":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        r"expected names in UTF-8, got '\\ud800'",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused_and_named(case: str, tmp_path: Path) -> None:
    """The error is typed, names the file, and says what was expected and what was got."""
    data, message = CASES[case]
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=message) as caught:
        open_checkpoint(path)
    assert caught.value.file == path
    assert str(path) in str(caught.value)


def test_the_good_file_is_good(tmp_path: Path) -> None:
    """The entries that all cases start from open, so each case fails for its own reason."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(head(a=GOOD))
    assert open_checkpoint(path).tensors["a"].nbytes == 8


def test_headers_that_claim_gigabytes_allocate_nothing(tmp_path: Path) -> None:
    """A sparse file with a giant header length is refused by its number."""
    path = tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.write(raw_file(b"{}", b"", 1 << 33))
        file.truncate(1 << 34)
    tracemalloc.start()
    with pytest.raises(ModelFileError, match=f"at most {MAX_JSON_BYTES} bytes, got {1 << 33}"):
        open_checkpoint(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_configuration_over_the_limit_is_refused(tmp_path: Path) -> None:
    """Text is bounded before it is parsed, whoever hands it in."""
    from radiance_core.model_files.json_text import parse_object

    with pytest.raises(ModelFileError, match=f"x of at most {MAX_JSON_BYTES} bytes, got"):
        parse_object(bytes(MAX_JSON_BYTES + 1), tmp_path, "x")
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(ModelFileError, match=f"at most {MAX_JSON_BYTES} bytes, got"):
        open_checkpoint(tmp_path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    """A file cut at any byte is refused."""
    whole = head(a=entry("I8", [5], 0, 5), b=entry("I8", [3], 5, 8))
    path = tmp_path / "m.safetensors"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError):
            open_checkpoint(path)
