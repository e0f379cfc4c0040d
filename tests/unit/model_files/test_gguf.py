"""Opening GGUF models: metadata, row ranges, split files, threads, memory."""

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from processor_time import least

from radiance_abi.encoding import check_planes
from radiance_core.model_files import ModelFileError, open_checkpoint

from .block_packer import BLOCK_TYPES, random_blocks
from .gguf_writer import Gguf


def test_metadata_has_python_values(tmp_path: Path) -> None:
    """Every value type comes back as the Python value that was written."""
    values: dict[str, tuple[str, Any]] = {
        "a.u8": ("u8", 255),
        "a.i8": ("i8", -128),
        "a.u16": ("u16", 65535),
        "a.i16": ("i16", -32768),
        "a.u32": ("u32", 2**32 - 1),
        "a.i32": ("i32", -(2**31)),
        "a.u64": ("u64", 2**64 - 1),
        "a.i64": ("i64", -(2**63)),
        "a.f32": ("f32", 0.5),
        "a.f64": ("f64", 0.1),
        "a.bool": ("bool", True),
        "a.str": ("str", "häh\n日本"),
        "a.strs": ("[str]", ["", "x", "日" * 99]),
        "a.ints": ("[i32]", [1, -2, 3]),
        "a.bools": ("[bool]", [True, False]),
        "a.none": ("[f32]", []),
    }
    file = Gguf()
    for key, (kind, value) in values.items():
        file.key(key, kind, value)
    checkpoint = open_checkpoint(file.write(tmp_path / "m.gguf"))
    assert dict(checkpoint.metadata) == {key: value for key, (_, value) in values.items()}
    assert isinstance(checkpoint.metadata["a.bool"], bool)
    assert checkpoint.format == "gguf"
    assert checkpoint.total_bytes == 0


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_every_type_and_alignment(version: int, alignment: int, tmp_path: Path) -> None:
    """All block types and plain types in one file, read whole and in ranges of rows."""
    rng = np.random.default_rng()
    file = Gguf(version=version, alignment=alignment).key("general.alignment", "u32", alignment)
    stored = {}
    for name, (id_, kind) in BLOCK_TYPES.items():
        stored[name] = random_blocks(name, 5 * 2 * 3, rng)
        file.tensor(name, (kind.block * 2, 5, 3), id_, stored[name].tobytes())
    plains = {"F32": (0, "f4"), "F16": (1, "f2"), "BF16": (30, "u2"), "I8": (24, "i1")}
    plains |= {"I16": (25, "i2"), "I32": (26, "i4"), "I64": (27, "i8"), "F64": (28, "f8")}
    for name, (id_, code) in plains.items():
        stored[name] = rng.integers(0, 100, (5, 7)).astype(code)
        file.tensor(name, (7, 5), id_, stored[name].tobytes())
    checkpoint = open_checkpoint(file.write(tmp_path / "m.gguf"))
    for name in plains:
        planes = checkpoint.read(name)
        check_planes(checkpoint.tensors[name].encoding, planes, (5, 7))
        assert planes["codes"].tobytes() == stored[name].tobytes()
        assert not planes["codes"].flags.owndata
        assert not planes["codes"].flags.writeable
        assert checkpoint.read(name, 2, 4)["codes"].tobytes() == stored[name][2:4].tobytes()
    for name, (_, kind) in BLOCK_TYPES.items():
        info = checkpoint.tensors[name]
        assert info.shape == (3, 5, kind.block * 2)
        assert (info.rows, info.cols) == (15, kind.block * 2)
        assert info.nbytes == stored[name].size
        whole = checkpoint.read(name)
        check_planes(info.encoding, whole, info.shape)
        first, last = sorted(rng.integers(0, 16, 2).tolist())
        part = checkpoint.read(name, first, last)
        check_planes(info.encoding, part, (last - first, info.cols))
        for role, plane in part.items():
            expected = whole[role] if role == "table" else whole[role][first:last]
            assert np.array_equal(plane.view(np.uint8), expected.view(np.uint8))
    assert checkpoint.total_bytes == sum(a.nbytes for a in stored.values())


def test_wrong_requests_are_named(tmp_path: Path) -> None:
    """Unknown names, rows outside, and reads after close."""
    path = Gguf().tensor("w", (8, 4), 0, bytes(128)).write(tmp_path / "m.gguf")
    checkpoint = open_checkpoint(path)
    with pytest.raises(ModelFileError, match="tensor 'x': expected one of its 1 tensors") as caught:
        checkpoint.read("x")
    assert caught.value.tensor == "x"
    for first, last in ((-1, 2), (3, 2), (0, 5)):
        with pytest.raises(
            ModelFileError, match=rf"tensor 'w': expected rows within 0 \.\. 4, got {first} \.\."
        ):
            checkpoint.read("w", first, last)
    assert checkpoint.side_file("tokenizer.json") is None
    view = checkpoint.read("w")["codes"]
    checkpoint.close()
    assert view.sum() == 0
    with pytest.raises(ModelFileError, match="expected an open checkpoint, got a closed one"):
        checkpoint.read("w")
    with pytest.raises(ModelFileError, match="expected an open checkpoint, got a closed one"):
        checkpoint.read("w", 0, 1)


def test_a_file_without_suffix_is_known_by_its_magic(tmp_path: Path) -> None:
    """Blobs of download caches are named by digest only."""
    path = Gguf().tensor("w", (8,), 0, bytes(32)).write(tmp_path / "0123abcd")
    link = tmp_path / "model.gguf"
    link.symlink_to(path)
    assert open_checkpoint(path).format == open_checkpoint(link).format == "gguf"


def test_views_are_bounded_by_the_file(tmp_path: Path) -> None:
    """The mapping itself refuses ranges outside the file, whoever asks."""
    from radiance_core.model_files.mapping import MappedFile

    path = tmp_path / "f"
    path.write_bytes(bytes(100))
    file = MappedFile(path)
    for offset, count in ((-1, 2), (99, 2), (0, 101), (5, -1), (2**64, 1)):
        with pytest.raises(ModelFileError, match=rf"within 100 bytes, got {offset} \+ {count}"):
            file.view(offset, count)
    file.close()
    with pytest.raises(ModelFileError, match="got a closed one"):
        file.view(0, 1)
    with pytest.raises(ModelFileError, match="got a closed one"):
        file.release(0, 1 << 20)


def split_model(folder: Path, count: int = 3, **overrides: Any) -> Path:
    """Write a split model with one tensor a part; returns the first part."""
    for number in range(count):
        file = Gguf().key("split.no", "u16", overrides.get("no", number))
        file.key("split.count", "u16", count)
        file.key("split.tensors.count", "i32", overrides.get("total", count))
        name = overrides.get("name", f"w{number}")
        file.tensor(name, (8,), 0, struct.pack("<8f", *[number] * 8))
        file.write(folder / f"m-{number + 1:05d}-of-{count:05d}.gguf")
    return folder / f"m-00001-of-{count:05d}.gguf"


def test_split_models_are_one_checkpoint(tmp_path: Path) -> None:
    """Tensors of all parts are there, each read from its own file."""
    checkpoint = open_checkpoint(split_model(tmp_path))
    assert list(checkpoint.tensors) == ["w0", "w1", "w2"]
    for number in range(3):
        assert (checkpoint.read(f"w{number}")["codes"] == number).all()
        assert checkpoint.tensors[f"w{number}"].file.name == f"m-0000{number + 1}-of-00003.gguf"


def test_incomplete_split_models_are_refused(tmp_path: Path) -> None:
    """A missing part, a wrong one, a wrong total, a wrong name and a duplicate are each named."""
    first = split_model(tmp_path)
    with pytest.raises(ModelFileError, match="expected part 0 of 3, got part 1 of 3; open the fir"):
        open_checkpoint(tmp_path / "m-00002-of-00003.gguf")
    (tmp_path / "m-00003-of-00003.gguf").rename(tmp_path / "gone")
    with pytest.raises(ModelFileError, match=r"m-00003-of-00003.gguf: expected a readable file"):
        open_checkpoint(first)
    second, third = (tmp_path / f"m-0000{number}-of-00003.gguf" for number in (2, 3))
    third.write_bytes(second.read_bytes())
    with pytest.raises(ModelFileError, match=r"00003.gguf: expected part 2 of 3, got part 1 of 3"):
        open_checkpoint(first)
    other = first.rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelFileError, match=r"the name NAME-00001-of-00003.gguf .*'renamed.gguf'"):
        open_checkpoint(other)
    with pytest.raises(ModelFileError, match="expected 4 tensors in 3 parts, got 3"):
        open_checkpoint(split_model(tmp_path, total=4))
    with pytest.raises(ModelFileError, match="tensor 'w': expected each name in one part, got it"):
        open_checkpoint(split_model(tmp_path, name="w"))
    with pytest.raises(ModelFileError, match="a model of 9 parts"):
        open_checkpoint(_miscounted(tmp_path))


def _miscounted(folder: Path) -> Path:
    path = folder / "m-00001-of-00003.gguf"
    return Gguf().key("split.no", "u16", 0).key("split.count", "u16", 9).write(path)


def test_big_vocabularies_parse_fast(tmp_path: Path) -> None:
    """150,000 tokens and as many merges in well under a second on a busy machine."""
    tokens = [f"tok{i}é" for i in range(150_000)]
    raw = Gguf()
    raw.key("tokenizer.ggml.tokens", "[str]", tokens)
    raw.key("tokenizer.ggml.scores", "[f32]", [0.5] * len(tokens))
    path = raw.write(tmp_path / "m.gguf")
    assert least(lambda: open_checkpoint(path), 0.3) < 0.3
    checkpoint = open_checkpoint(path)
    assert checkpoint.metadata["tokenizer.ggml.tokens"] == tokens


def test_threads_read_ranges_of_one_tensor(tmp_path: Path) -> None:
    """Row ranges read by several threads at once equal the whole."""
    rng = np.random.default_rng()
    id_, kind = BLOCK_TYPES["Q4_K"]
    blocks = random_blocks("Q4_K", 512 * 4, rng)
    path = Gguf().tensor("w", (1024, 512), id_, blocks.tobytes()).write(tmp_path / "m.gguf")
    checkpoint = open_checkpoint(path)
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda r: checkpoint.read("w", r, r + 16), range(0, 512, 16)))
    whole = checkpoint.read("w")
    for role in kind.encoding.roles:
        joined = np.concatenate([part[role] for part in parts])
        assert np.array_equal(joined.view(np.uint8), whole[role].view(np.uint8))


def resident_bytes(path: Path) -> int:
    """Return how much of a file's mappings is resident; of the whole process it is estimated."""
    maps = psutil.Process().memory_maps(grouped=False)
    return sum(each.rss for each in maps if each.path == str(path))


def test_release_gives_memory_back(tmp_path: Path) -> None:
    """Pages of a released tensor leave the resident set, and come back on the next read."""
    count = 1 << 24
    path = Gguf().tensor("w", (count // 4096, 1024), 0, bytes(count)).write(tmp_path / "m.gguf")
    checkpoint = open_checkpoint(path)
    view = checkpoint.read("w")["codes"]
    assert view.sum() == 0
    before = resident_bytes(path)
    checkpoint.release("w")
    assert before - resident_bytes(path) > count * 0.9
    assert view.sum() == 0
