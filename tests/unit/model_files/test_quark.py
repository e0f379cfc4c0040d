"""MXFP4 as AMD Quark stores it: what is read, and that other ways of it are refused by name."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from radiance_abi.encoding import Encoding, check_planes, decode
from radiance_core.model_files import ModelFileError, open_checkpoint

from .quark_config import quark_config, spec
from .safetensors_writer import write_folder

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
VALUES = np.concatenate([E2M1, -E2M1])
"""The numbers of the sixteen codes: a sign, two bits of exponent and one of mantissa."""


def random_pair(rows: int, cols: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return packed codes, scales and, by the formula, the numbers they stand for."""
    rng = np.random.default_rng()
    codes = rng.integers(0, 16, (rows, cols))
    scales = rng.integers(0, 255, (rows, cols // 32))
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)
    values = VALUES[codes] * np.repeat(2.0 ** (scales - 127), 32, axis=1)
    return packed, scales.astype(np.uint8), values


def opened(folder: Path, arrays: dict[str, Any], config: dict[str, Any] | None = None) -> Any:
    """Open a folder of one file with these tensors."""
    config = quark_config() if config is None else config
    return open_checkpoint(write_folder(folder / "m", config, {"model.safetensors": arrays}))


@pytest.mark.parametrize("scale_dtype", [np.uint8, ml_dtypes.float8_e8m0fnu])
def test_codes_and_scales_are_one_weight(scale_dtype: Any, tmp_path: Path) -> None:
    """The pair has the weight's own shape, its rows can be cut, and other tensors stay."""
    packed, scales, values = random_pair(37, 96)
    arrays = {
        "x.weight": packed,
        "x.weight_scale": scales.view(scale_dtype),
        "x.bias": np.ones(37, ml_dtypes.bfloat16),
        "norm.weight": np.ones(96, np.float32),
    }
    checkpoint = opened(tmp_path, arrays)
    assert list(checkpoint.tensors) == ["x.weight", "x.bias", "norm.weight"]
    info = checkpoint.tensors["x.weight"]
    assert info.encoding == Encoding.parse("fp4_e2m1*e8m0[1x32]")
    assert info.shape == (37, 96)
    assert info.nbytes == packed.nbytes + scales.nbytes
    assert checkpoint.total_bytes == sum(array.nbytes for array in arrays.values())
    for first, last in ((0, 37), (5, 23), (36, 37)):
        planes = checkpoint.read("x.weight", first, last)
        shape = (last - first, 96)
        check_planes(info.encoding, planes, shape)
        assert np.array_equal(decode(info.encoding, planes, shape, np.float64), values[first:last])
    checkpoint.release("x.weight")


def test_a_scale_of_255_is_nan(tmp_path: Path) -> None:
    """As MX 1.0 says, of its whole block and nothing else."""
    packed, scales, values = random_pair(2, 64)
    scales[1, 0] = 255
    values[1, :32] = np.nan
    checkpoint = opened(tmp_path, {"w": packed, "w_scale": scales})
    encoding = checkpoint.tensors["w"].encoding
    got = decode(encoding, checkpoint.read("w"), (2, 64), np.float64)
    np.testing.assert_array_equal(got, values)


def test_experts_in_one_tensor(tmp_path: Path) -> None:
    """Leading extents are kept."""
    packed, scales, values = random_pair(6, 64)
    arrays = {"e": packed.reshape(2, 3, 32), "e_scale": scales.reshape(2, 3, 2)}
    checkpoint = opened(tmp_path, arrays)
    info = checkpoint.tensors["e"]
    assert info.shape == (2, 3, 64)
    got = decode(info.encoding, checkpoint.read("e"), info.shape, np.float64)
    assert np.array_equal(got, values.reshape(2, 3, 64))


def test_pairs_without_quark_are_two_tensors(tmp_path: Path) -> None:
    """Nothing is guessed from names where config.json does not say so."""
    packed, scales, _ = random_pair(2, 64)
    checkpoint = opened(tmp_path, {"w": packed, "w_scale": scales}, {})
    assert {name: str(info.encoding) for name, info in checkpoint.tensors.items()} == {
        "w": "u8",
        "w_scale": "u8",
    }


def test_layers_may_have_settings_of_their_own(tmp_path: Path) -> None:
    """The same again, activations and caches in any way, or nothing at all."""
    layers = {
        "*down_proj": {**spec(), "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
        "*k_proj": {**spec(), "output_tensors": {"dtype": "fp8_e4m3"}},
        "lm_head": {"weight": None},
        "*gate": None,
    }
    config = quark_config(layer_quant_config=layers, algo_config=[{"name": "gptq"}])
    packed, scales, _ = random_pair(2, 64)
    assert opened(tmp_path, {"w": packed, "w_scale": scales}, config).tensors["w"].cols == 64


@pytest.mark.parametrize(
    ("codes", "scale", "message"),
    [
        (np.ones((2, 32), np.uint8), np.ones((2, 2), np.float32), "Quark's MXFP4 as u8, got u8 an"),
        (np.ones((2, 64), np.float16), np.ones((2, 2), np.uint8), "MXFP4 as u8, got f16 and u8"),
        (
            np.ones((2, 32), np.uint8),
            np.ones((2, 4), np.uint8),
            r"'w_scale': expected a scale for each 16 bytes of codes \[2, 32\], got \[2, 4\]",
        ),
        (np.ones((2, 40), np.uint8), np.ones((2, 3), np.uint8), r"codes \[2, 40\], got \[2, 3\]"),
        (np.ones((2, 32), np.uint8), np.ones((3, 2), np.uint8), r"codes \[2, 32\], got \[3, 2\]"),
        (np.ones(32, np.uint8), np.ones(2, np.uint8), r"codes \[32\], got \[2\]"),
        (np.ones((), np.uint8), np.ones((), np.uint8), r"codes \[\], got \[\]"),
    ],
)
def test_pairs_that_do_not_fit(codes: Any, scale: Any, message: str, tmp_path: Path) -> None:
    """Other types and extents are refused with both."""
    with pytest.raises(ModelFileError, match=message):
        opened(tmp_path, {"w": codes, "w_scale": scale})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"global_quant_config": spec(dtype="fp8_e4m3", qscheme="per_tensor", group_size=None)},
            r"config.json: quantization_config.global_quant_config.weight: expected MXFP4 "
            r"\(dtype='fp4', qscheme='per_group', group_size=32, scale_format='e8m0'\), got "
            r"dtype='fp8_e4m3', qscheme='per_tensor', group_size=None, .* is not read",
        ),
        ({"global_quant_config": spec(scale_format="fp8_e4m3")}, "got .* scale_format='fp8_e4m3'"),
        ({"global_quant_config": spec(group_size=16)}, "got .* group_size=16"),
        ({"global_quant_config": spec(dtype="mx")}, "got dtype='mx'"),
        ({"global_quant_config": {"weight": [spec(), spec()]}}, r"global.*weight: .* got \[\{"),
        ({"global_quant_config": {"bias": spec()}}, "global_quant_config.bias: expected biases as"),
        ({"global_quant_config": 5}, "global_quant_config: expected an object, got 5"),
        (
            {"layer_quant_config": {"*q_proj": spec(dtype="int4")}},
            r"layer_quant_config\['\*q_proj'\].weight: expected MXFP4 .* got dtype='int4'",
        ),
        (
            {"layer_quant_config": ["x"]},
            r"layer_quant_config: expected settings by layer, got \['x",
        ),
        ({"layer_type_quant_config": {"L": spec(dtype="int4")}}, r"layer_type_quant_config\['L'\]"),
        (
            {"export": {"weight_format": "fake_quantized"}},
            "weight_format: expected 'real_quantized', got 'fake_quantized'; export the model",
        ),
        (
            {"algo_config": [{"name": "gptq"}, {"name": "rotation"}]},
            r"algo_config: expected algorithms .* \(awq, .*\), got 'rotation'",
        ),
        ({"algo_config": {"name": "quarot"}}, "algo_config: expected algorithms .* got 'quarot'"),
        ({"algo_config": ["x"]}, "algo_config: expected algorithms .* got 'x'"),
    ],
)
def test_other_ways_of_quark_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """What is stored otherwise, or computed otherwise, is named with where config.json says so."""
    packed, scales, _ = random_pair(2, 64)
    with pytest.raises(ModelFileError, match=message):
        opened(tmp_path, {"w": packed, "w_scale": scales}, quark_config(**changes))


def test_codes_without_scales_are_named(tmp_path: Path) -> None:
    """The text has the tensor, the scales that it lacks, its file, and what to do."""
    packed, scales, _ = random_pair(2, 64)
    arrays = {"a.weight": packed, "a.weight_scale": scales, "b.weight": packed}
    told = (
        r"m/model\.safetensors: tensor 'b\.weight': expected b\.weight_scale with the scales of "
        r"these codes of Quark's MXFP4, .* got no such; complete the download, or export"
    )
    with pytest.raises(ModelFileError, match=told):
        opened(tmp_path, arrays)


def test_bytes_that_are_no_codes_need_no_scales(tmp_path: Path) -> None:
    """A vector of bytes, and scales whose codes are not there, stay what they are."""
    arrays = {"v": np.zeros(8, np.uint8), "gone_scale": np.zeros((2, 2), np.uint8)}
    assert list(opened(tmp_path, arrays).tensors) == list(arrays)
