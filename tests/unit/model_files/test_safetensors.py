"""Opening safetensors checkpoints: files, folders, parts, block-scaled fp8, side files."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from radiance_abi.encoding import Encoding, check_planes, decode
from radiance_core.model_files import ModelFileError, open_checkpoint

from .safetensors_writer import NAMES, write, write_folder

INDEX = "model.safetensors.index.json"


def random_array(dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return an array of any bits, bools kept to 0 and 1."""
    rng = np.random.default_rng()
    item = np.dtype(dtype)
    high = 2 if item == np.dtype(bool) else 256
    raw = rng.integers(0, high, (*shape, item.itemsize), np.uint8)
    return raw.view(item).reshape(shape)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (0, 4)])
def test_every_dtype_and_rank(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """The bytes come back as the plane, misaligned by an entry of odd size before it."""
    dtype = getattr(ml_dtypes, name, name)
    arrays = {"odd": random_array("uint8", (3,)), "x": random_array(dtype, shape)}
    checkpoint = open_checkpoint(write(tmp_path / "m.safetensors", arrays))
    info = checkpoint.tensors["x"]
    planes = checkpoint.read("x")
    check_planes(info.encoding, planes, shape)
    assert info.shape == shape
    assert planes["codes"].tobytes() == arrays["x"].tobytes()
    assert planes["codes"].flags.aligned
    assert checkpoint.total_bytes == 3 + arrays["x"].nbytes
    assert checkpoint.metadata == {}


def test_files_of_the_public_package_open(tmp_path: Path) -> None:
    """What the reference writer writes is read back, aligned planes without a copy."""
    rng = np.random.default_rng()
    arrays = {f"w{i}": rng.normal(size=(i + 1, 8)).astype(np.float32) for i in range(9)}
    save_file(arrays, tmp_path / "m.safetensors", metadata={"format": "pt"})
    checkpoint = open_checkpoint(tmp_path / "m.safetensors")
    assert set(checkpoint.tensors) == set(arrays)
    for name, array in arrays.items():
        plane = checkpoint.read(name)["codes"]
        assert np.array_equal(plane, array)
        assert not plane.flags.owndata
        assert not plane.flags.writeable
        assert np.array_equal(checkpoint.read(name, 0, 1)["codes"], array[:1])


def test_folders_with_one_file(tmp_path: Path) -> None:
    """The configuration is the metadata; side files come by name."""
    config = {"model_type": "llama", "rope": {"theta": 1e4}}
    folder = write_folder(
        tmp_path / "m", config, {"model.safetensors": {"w": np.ones((2, 2), np.float32)}}
    )
    (folder / "tokenizer.json").write_bytes(b"{}")
    (folder / "chat_template.jinja").write_bytes(b"")
    checkpoint = open_checkpoint(folder)
    assert dict(checkpoint.metadata) == config
    assert checkpoint.side_file("tokenizer.json") == b"{}"
    assert checkpoint.side_file("chat_template.jinja") == b""
    assert checkpoint.side_file("generation_config.json") is None
    assert checkpoint.format == "safetensors"
    checkpoint.release("w")
    checkpoint.close()
    with pytest.raises(ModelFileError, match="got a closed one"):
        checkpoint.read("w")


@pytest.mark.parametrize(
    "name", ["../secret", "a/b", "/etc/passwd", "..", ".", "", ".hidden", "a\0b", "a\\b", "x" * 300]
)
def test_side_files_stay_in_the_folder(name: str, tmp_path: Path) -> None:
    """A name that leaves the folder is refused before anything is opened."""
    folder = write_folder(tmp_path / "m", {}, {"model.safetensors": {}})
    (tmp_path / "secret").write_bytes(b"s")
    with pytest.raises(ModelFileError, match="expected plain file names in a request for a side f"):
        open_checkpoint(folder).side_file(name)


def test_side_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file over the limit is refused by its size and not read."""
    from radiance_core.model_files import folder as module

    path = write_folder(tmp_path / "m", {}, {"model.safetensors": {}})
    with (path / "tokenizer.json").open("wb") as file:
        file.truncate((1 << 28) + 1)
    with pytest.raises(ModelFileError, match=f"at most {1 << 28} bytes, got {(1 << 28) + 1}"):
        open_checkpoint(path).side_file("tokenizer.json")

    def refuse(_: Path) -> bool:
        raise PermissionError("no")

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(ModelFileError, match="expected to look for it, got: no"):
        module.has_file(path, "config.json")


def test_parts_are_one_checkpoint(tmp_path: Path) -> None:
    """Each tensor is read from the part that the index names."""
    parts = {
        f"model-0000{i}-of-00002.safetensors": {f"w{i}": np.full((2, 3), i, np.int32)}
        for i in (1, 2)
    }
    checkpoint = open_checkpoint(write_folder(tmp_path / "m", {}, parts))
    for i in (1, 2):
        assert (checkpoint.read(f"w{i}")["codes"] == i).all()
        assert checkpoint.tensors[f"w{i}"].file.name == f"model-0000{i}-of-00002.safetensors"


def fp8_pair(rows: int, cols: int, block: tuple[int, int], scale: Any) -> dict[str, Any]:
    """Return finite random codes and scales under the names checkpoints use."""
    rng = np.random.default_rng()
    extents = (-(-rows // block[0]), -(-cols // block[1]))
    return {
        "x.weight": rng.normal(size=(rows, cols)).astype(ml_dtypes.float8_e4m3fn),
        "x.weight_scale_inv": rng.normal(size=extents).astype(scale),
    }


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("scale", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("rows", "cols"), [(256, 384), (300, 200), (129, 1000), (7, 5)])
def test_block_fp8_is_one_weight(
    stated: bool, scale: Any, rows: int, cols: int, tmp_path: Path
) -> None:
    """Codes and scales become one encoding that decodes to code times the scale of its block."""
    arrays = fp8_pair(rows, cols, (128, 128), scale)
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    checkpoint = open_checkpoint(
        write_folder(tmp_path / "m", config if stated else {}, {"model.safetensors": arrays})
    )
    assert list(checkpoint.tensors) == ["x.weight"]
    info = checkpoint.tensors["x.weight"]
    single = rows <= 128 and cols <= 128 and not stated
    block = "*x*" if single else "128x128"
    name = "f32" if scale is np.float32 else "bf16"
    assert info.encoding == Encoding.parse(f"fp8_e4m3*{name}[{block}]")
    assert info.nbytes == sum(a.nbytes for a in arrays.values())
    got = decode(info.encoding, checkpoint.read("x.weight"), info.shape, np.float64)
    expected = arrays["x.weight"].astype(float)
    for i in range(rows):
        scales = arrays["x.weight_scale_inv"][i // 128].astype(float)
        expected[i] *= np.repeat(scales, 128)[:cols]
    assert np.array_equal(got, expected)
    if rows > 128:
        part = checkpoint.read("x.weight", 128, rows)
        check_planes(info.encoding, part, (rows - 128, cols))
        assert np.array_equal(
            decode(info.encoding, part, (rows - 128, cols), np.float64), expected[128:]
        )
        with pytest.raises(ModelFileError, match=r"cut at multiples of 128, got 1 \.\. 3"):
            checkpoint.read("x.weight", 1, 3)


def test_stacked_experts_and_other_blocks(tmp_path: Path) -> None:
    """Rank 3 codes have rank 3 scales; a block other than 128 is inferred."""
    rng = np.random.default_rng()
    arrays = {
        "e": rng.normal(size=(3, 64, 96)).astype(ml_dtypes.float8_e4m3fn),
        "e_scale_inv": rng.normal(size=(3, 2, 3)).astype(np.float32),
        "plain": np.ones((2, 2), ml_dtypes.float8_e4m3fn),
        "odd": np.ones((256, 256), ml_dtypes.float8_e5m2),
        "odd_scale_inv": np.ones((2, 3), ml_dtypes.bfloat16),
        "half": np.ones((2, 2), np.float16),
        "half_scale_inv": np.ones((1, 1), np.float32),
    }
    checkpoint = open_checkpoint(write(tmp_path / "m.safetensors", arrays))
    assert {name: str(info.encoding) for name, info in checkpoint.tensors.items()} == {
        "e": "fp8_e4m3*f32[32x32]",
        "plain": "fp8_e4m3",
        "odd": "fp8_e5m2*bf16[128x86]",
        "half": "f16",
        "half_scale_inv": "f32",
    }
    got = decode(checkpoint.tensors["e"].encoding, checkpoint.read("e"), (3, 64, 96), np.float64)
    scales = arrays["e_scale_inv"].astype(float).repeat(32, 1).repeat(32, 2)
    assert np.array_equal(got, arrays["e"].astype(float) * scales)


@pytest.mark.parametrize(
    ("codes", "scales", "block", "message"),
    [
        ((256, 256), (2, 3), [128, 128], r"expected 2 x 2 scales for blocks of 128 x 128 .*\[2, 3"),
        ((256, 256), (300, 2), None, r"expected 256 x 2 scales for blocks of 1 x 128 .*\[300, 2\]"),
        ((2, 256, 256), (4, 2), [128, 128], r"same leading extents as \[2, 256, 256\], got \[4, 2"),
        ((2, 96, 128), (2, 1, 1), [128, 128], "expected 2 x 1 scales"),
        ((4, 4), (1, 1), [0, 1], r"weight_block_size as two integers >= 1, got \[0, 1\]"),
        ((4, 4), (1, 1), "128", "weight_block_size as two integers >= 1, got '128'"),
    ],
)
def test_scales_that_do_not_fit(
    codes: Any, scales: Any, block: Any, message: str, tmp_path: Path
) -> None:
    """Scales of other extents than the block demands are refused with both."""
    arrays = {
        "x": np.ones(codes, ml_dtypes.float8_e4m3fn),
        "x_scale_inv": np.ones(scales, np.float32),
    }
    config = {"quantization_config": {"weight_block_size": block}} if block else {}
    folder = write_folder(tmp_path / "m", config, {"model.safetensors": arrays})
    with pytest.raises(ModelFileError, match=message):
        open_checkpoint(folder)


def index_of(folder: Path, change: Any) -> Path:
    """Write two parts, then the index that ``change`` makes of the right one."""
    parts = {f"p{i}.safetensors": {f"w{i}": np.ones(2, np.int8)} for i in (1, 2)}
    write_folder(folder, {}, parts)
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps(change(index)))
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w1": "p2.safetensors"}, "p2.safetensors: tensor 'w1': expected it here as .* no such"),
        ({"w3": "p1.safetensors"}, "p1.safetensors: tensor 'w3': expected it here as .* no such"),
        ({"w3": "p3.safetensors"}, "p3.safetensors: expected a readable file, got"),
        ({"w2": "p1.safetensors"}, "p1.safetensors: tensor 'w2': expected it here"),
        ({"w2": "../p2.safetensors"}, "plain file names in weight_map, got '../p2.safetensors'"),
        ({"w2": "/etc/passwd"}, "plain file names in weight_map, got '/etc/passwd'"),
        ({"w2": ".."}, "plain file names in weight_map, got '..'"),
        ({"w2": 5}, "tensor 'w2': expected a file name, got 5"),
    ],
)
def test_an_index_that_lies_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Tensors must be where the index says, and files must be in the folder."""
    folder = index_of(
        tmp_path / "m", lambda index: {"weight_map": {**index["weight_map"], **change}}
    )
    with pytest.raises(ModelFileError, match=message):
        open_checkpoint(folder)


def test_tensors_the_index_does_not_name_are_refused(tmp_path: Path) -> None:
    """A part with a tensor that is stated elsewhere or nowhere does not belong."""
    folder = index_of(tmp_path / "m", lambda index: index)
    write(folder / "p1.safetensors", {"w1": np.ones(2, np.int8), "w9": np.ones(2, np.int8)})
    with pytest.raises(ModelFileError, match=r"tensor 'w9': expected it in no file as"):
        open_checkpoint(folder)
    write(folder / "p1.safetensors", {"w1": np.ones(2, np.int8), "w2": np.ones(2, np.int8)})
    with pytest.raises(ModelFileError, match=r"tensor 'w2': expected it in p2.safetensors as"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (b"", "expected valid JSON in the index"),
        (b"[]", "expected a JSON object in the index, got list"),
        (b"{}", "expected weight_map as file names by tensor, got NoneType"),
        (b'{"weight_map": {}}', "expected weight_map as file names by tensor, got dict"),
        (b'{"weight_map": {"a": "p1", "a": "p2"}}', "the key 'a' occurs twice"),
    ],
)
def test_malformed_indexes(index: bytes, message: str, tmp_path: Path) -> None:
    """An index that is not one is refused by what is wrong with it."""
    folder = index_of(tmp_path / "m", lambda index: index)
    (folder / INDEX).write_bytes(index)
    with pytest.raises(ModelFileError, match=message):
        open_checkpoint(folder)


def test_incomplete_folders(tmp_path: Path) -> None:
    """No weights, no configuration, a configuration that is not JSON."""
    with pytest.raises(
        ModelFileError, match=r"expected a config.json beside the weights, got none; complete"
    ):
        open_checkpoint(tmp_path)
    for number in range(14):
        (tmp_path / f"m{number:02d}.gguf").touch()
    with pytest.raises(ModelFileError, match=r"its GGUF files: m00.gguf, .*, m11.gguf and 2 more"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelFileError, match=r"config.json: expected valid JSON in config.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelFileError, match=r"expected model.safetensors or .*, got neither"):
        open_checkpoint(tmp_path)
    write(tmp_path / "model.safetensors", {"w": np.ones(2, np.int8)})
    with pytest.raises(ModelFileError, match=r"tensor 'x': expected one of its 1 tensors, got no"):
        open_checkpoint(tmp_path).read("x")
