"""Malformed GGUF files are refused with a text that names the file, the tensor and both numbers."""

import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from radiance_core.model_files import ModelFileError, open_checkpoint

from .gguf_writer import Gguf, Tensor, text, typed

F32 = 0
Q4_0 = 2


def good() -> Gguf:
    """Return a small valid file: two keys, two tensors."""
    file = Gguf().key("general.architecture", "str", "llama").key("llama.block_count", "u32", 2)
    file.tensor("a.weight", (8, 4), F32, bytes(128))
    return file.tensor("b.weight", (32, 2), Q4_0, bytes(36))


def with_tensor(*args: object, **overrides: object) -> bytes:
    """Return the good file with one more tensor."""
    file = good()
    file.tensors.append(Tensor(*args, **overrides))  # type: ignore[arg-type]
    return file.build()


def with_key(name: str | bytes, value: bytes) -> bytes:
    """Return the good file with one more key."""
    file = good()
    file.keys.append((name, value))
    return file.build()


def build(**fields: object) -> bytes:
    """Return the good file with fields of the head overridden."""
    file = good()
    for name, value in fields.items():
        setattr(file, name, value)
    return file.build()


def array(kind: int, count: int, payload: bytes = b"") -> bytes:
    """Return an array value with any item type and count."""
    return struct.pack("<IIQ", 9, kind, count) + payload


BIG = 1 << 63
CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "magic": (lambda: build(magic=b"GGML"), "starts with b'GGUF', got b'GGML'"),
    "version 1": (lambda: build(version=1), "expected GGUF version 2 or 3, got 1; convert"),
    "big endian": (lambda: build(version=3 << 24), r"got 50331648 \(the file is big-endian\)"),
    "future": (lambda: build(version=4), "expected GGUF version 2 or 3, got 4;"),
    "short head": (lambda: b"GGUF\3\0\0\0", "expected 24 bytes for the head.*got 8 before"),
    "empty": (lambda: b"", "expected a model file, got 0 bytes"),
    "keys": (lambda: build(num_keys=BIG), rf"expected at most \d+ keys in the \d+ .*got {BIG}"),
    "tensors": (lambda: build(num_tensors=2**64 - 1), r"at most \d+ tensors in.*got 1844674407370"),
    "key length": (lambda: good().build()[:24] + b"\xff" * 90, "a key of at most 65535 bytes, got"),
    "cut key": (
        lambda: good().build()[:24] + struct.pack("<Q", 999) + bytes(90),
        "expected 999 bytes for a key at offset 32, got 90 before the end",
    ),
    "empty key": (lambda: with_key("", typed("u8", 1)), "none empty, got ''"),
    "duplicate key": (
        lambda: with_key("llama.block_count", typed("u8", 1)),
        "each key once.*got 'llama.block_count' again",
    ),
    "key bytes": (lambda: with_key(b"\xff\xfe", typed("u8", 1)), "expected UTF-8 in a key"),
    "value type": (lambda: with_key("k", struct.pack("<I", 13)), "0 to 12 for 'k', got 13"),
    "bool": (lambda: with_key("k", struct.pack("<IB", 7, 2)), "bool of 0 or 1 in 'k', got 2"),
    "bool item": (
        lambda: with_key("k", array(7, 2, b"\1\7")),
        "bool of 0 or 1 in 'k', got 7",
    ),
    "string length": (
        lambda: with_key("k", struct.pack("<IQ", 8, 1 << 62)),
        f"value of 'k' of at most {1 << 24} bytes, got {1 << 62}",
    ),
    "string bytes": (
        lambda: with_key("k", struct.pack("<I", 8) + text(b"\xc3")),
        "expected UTF-8 in the value of 'k'",
    ),
    "nested array": (lambda: with_key("k", array(9, 1, array(0, 1, b"a"))), "got item type 9"),
    "item type": (lambda: with_key("k", array(77, 1)), "for 'k', got item type 77"),
    "array count": (
        lambda: with_key("k", array(0, BIG)),
        f"at most {1 << 24} items in 'k', got {BIG}",
    ),
    "array size": (
        lambda: with_key("k", array(12, 1 << 24)),
        rf"expected {1 << 27} bytes for the {1 << 24} items of 'k' at offset \d+, got \d+",
    ),
    "strings count": (
        lambda: with_key("k", array(8, 1 << 20)),
        rf"expected {1 << 23} bytes for the {1 << 20} strings of 'k'",
    ),
    "string item length": (
        lambda: with_key("k", array(8, 2, text("a") + struct.pack("<Q", BIG))),
        r"expected string 1 of 'k' to end by \d+, got 92233720368547",
    ),
    "string item bytes": (
        lambda: with_key("k", array(8, 2, text("a") + text(b"\xff"))),
        "expected 2 UTF-8 strings in 'k', got string 1:",
    ),
    "alignment 0": (
        lambda: with_key("general.alignment", typed("u32", 0)),
        "general.alignment as a power of two from 8 to 1048576, got 0",
    ),
    "alignment odd": (lambda: with_key("general.alignment", typed("u32", 48)), "got 48"),
    "alignment type": (
        lambda: with_key("general.alignment", typed("u64", 32)),
        "'general.alignment' as u32, got u64",
    ),
    "tokens type": (
        lambda: with_key("tokenizer.ggml.tokens", typed("[u8]", [1])),
        r"'tokenizer.ggml.tokens' as \[str\], got \[u8\]",
    ),
    "scores type": (
        lambda: with_key("tokenizer.ggml.scores", typed("[i8]", [1])),
        r"'tokenizer.ggml.scores' as \[f32\], got \[i8\]",
    ),
    "scores length": (
        lambda: (
            good()
            .key("tokenizer.ggml.tokens", "[str]", ["a", "b"])
            .key("tokenizer.ggml.scores", "[f32]", [1.0])
            .build()
        ),
        "expected 2 items in 'tokenizer.ggml.scores' as in 'tokenizer.ggml.tokens', got 1",
    ),
    "name length": (
        lambda: with_tensor("n" * 256, (8,), F32, bytes(32)),
        "a tensor name of at most 255 bytes, got 256",
    ),
    "no dims": (
        lambda: with_tensor("c", (), F32, b""),
        "tensor 'c': expected 1 to 4 dimensions, got 0",
    ),
    "many dims": (
        lambda: with_tensor("c", (1,), F32, bytes(4), num_dims=0xFFFFFFFF),
        "tensor 'c': expected 1 to 4 dimensions, got 4294967295",
    ),
    "zero extent": (
        lambda: with_tensor("c", (8, 0), F32, b""),
        r"tensor 'c': expected extents of at least 1, got \[8, 0\]",
    ),
    "overflowing product": (
        lambda: with_tensor("c", (1 << 40, 1 << 40, 1 << 40, 1 << 40), F32, b""),
        rf"tensor 'c': expected its {1 << 162} bytes at offset \d+ to end by \d+",
    ),
    "wrapping product": (
        lambda: with_tensor("c", (1 << 32, 1 << 32), F32, b""),
        f"tensor 'c': expected its {1 << 66} bytes",
    ),
    "block": (
        lambda: with_tensor("c", (33, 1), Q4_0, bytes(36)),
        "tensor 'c': expected rows of whole Q4_0 blocks of 32, got 33",
    ),
    "type": (
        lambda: with_tensor("c", (256,), 16, bytes(66)),
        r"tensor 'c': expected one of the types F32, F16.*, MXFP4, got IQ2_XXS \(16\); use a file",
    ),
    "nvidia's type": (
        lambda: with_tensor("c", (64,), 40, bytes(36)),
        r"tensor 'c': expected one of the types F32, .*, MXFP4, got NVFP4 \(40\); use a file",
    ),
    "unknown type": (
        lambda: with_tensor("c", (256,), 999, bytes(66)),
        r"got an unknown type \(999\)",
    ),
    "misaligned": (
        lambda: with_tensor("c", (8,), F32, bytes(32), offset=4),
        "tensor 'c': expected an offset that is a multiple of 32, got 4",
    ),
    "overlap": (
        lambda: with_tensor("c", (8,), F32, bytes(32), offset=32),
        r"tensor 'c': expected it to start after 'a.weight' ends at \d+, got \d+",
    ),
    "same place": (
        lambda: with_tensor("c", (8,), F32, bytes(32), offset=0),
        r"tensor '.*': expected it to start after '.*' ends at \d+, got \d+",
    ),
    "duplicate name": (
        lambda: with_tensor("a.weight", (8,), F32, bytes(32)),
        "tensor 'a.weight': expected each name once, got it twice",
    ),
    "truncated": (
        lambda: good().build()[:-1],
        "tensor 'b.weight': expected its 36 bytes at offset 128 to end by 163, got 164; the file",
    ),
    "no data": (
        lambda: good().build()[:200],
        "the file is cut short or damaged",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused_and_named(case: str, tmp_path: Path) -> None:
    """The error is typed, names the file, and says what was expected and what was got."""
    make, message = CASES[case]
    path = tmp_path / "model.gguf"
    path.write_bytes(make())
    with pytest.raises(ModelFileError, match=message) as caught:
        open_checkpoint(path)
    assert caught.value.file == path
    assert str(path) in str(caught.value)
    if "tensor '" in message:
        assert caught.value.tensor is not None


def test_the_good_file_is_good(tmp_path: Path) -> None:
    """The file that all cases start from opens, so each case fails for its own reason."""
    path = good().write(tmp_path / "model.gguf")
    assert list(open_checkpoint(path).tensors) == ["a.weight", "b.weight"]


@pytest.mark.parametrize("edge", [2**31, 2**32, 2**63, 2**64])
def test_sizes_around_every_word_edge_are_refused(edge: int, tmp_path: Path) -> None:
    """Offsets and extents whose sum or product wraps in some word size do not wrap here."""
    for delta in (-64, -32, 0, 32, 64):
        value = edge + delta
        if value >= 2**64:
            continue
        for data in (
            with_tensor("c", (8,), F32, bytes(32), offset=value),
            with_tensor("c", (value,), F32, b""),
            with_tensor("c", (8, value), F32, b""),
            with_tensor("c", (4, value // 4), F32, b"", offset=(2**64 - value) % 2**64),
        ):
            path = tmp_path / "model.gguf"
            path.write_bytes(data)
            with pytest.raises(ModelFileError, match="tensor 'c': expected its"):
                open_checkpoint(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    """A file cut at any byte is refused; no length happens to look complete."""
    whole = good().build()
    path = tmp_path / "model.gguf"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError):
            open_checkpoint(path)


def test_huge_counts_allocate_nothing(tmp_path: Path) -> None:
    """Counts that claim gigabytes are refused before anything is built from them."""
    path = tmp_path / "model.gguf"
    for name in ("keys", "tensors", "array count", "array size", "strings count", "string length"):
        path.write_bytes(CASES[name][0]())
        tracemalloc.start()
        with pytest.raises(ModelFileError):
            open_checkpoint(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20


def test_other_things_than_files(tmp_path: Path) -> None:
    """Missing paths, folders without weights, fifos and unknown kinds each say what they are."""
    with pytest.raises(ModelFileError, match=r"expected a model file or folder, got.*No such file"):
        open_checkpoint(tmp_path / "absent.gguf")
    with pytest.raises(ModelFileError, match=r"expected a model file or folder, got.*null"):
        open_checkpoint("a\0b")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="expected a regular file, got another kind"):
        open_checkpoint(tmp_path / "pipe.gguf")
    (tmp_path / "model.bin").write_bytes(b"PK\3\4 not read")
    with pytest.raises(ModelFileError, match=r"\.gguf or \.safetensors file or a folder, got .bin"):
        open_checkpoint(tmp_path / "model.bin")
