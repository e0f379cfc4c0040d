"""Checkpoints that AMD Quark quantised to MXFP4: packed codes and their scales are one weight.

A weight of N x K is stored as ``X`` u8 [N, K/2], two e2m1 codes a byte with the first in the low
bits, and ``X_scale`` u8 [N, K/32], the e8m0 scales. What it says of activations is not done here:
they keep the precision that products give them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from radiance_abi.encoding import affine
from radiance_core.model_files.errors import ModelFileError
from radiance_core.model_files.safetensors_header import StoredTensor

SUFFIX = "_scale"
_METHOD = "quark"
_BLOCK = 32
ENCODING = affine("fp4_e2m1", ("e8m0", 1, _BLOCK))
_WANTED = {"dtype": "fp4", "qscheme": "per_group", "group_size": _BLOCK, "scale_format": "e8m0"}
_ALGORITHMS = ("awq", "gptq", "gptaq", "qronos", "smooth", "smoothquant", "autosmoothquant")
"""Those that leave nothing behind but other weights; a rotation turns activations too."""


def is_quark(config: Mapping[str, Any], file: Path) -> bool:
    """Say whether config.json names Quark.

    Raises:
        ModelFileError: it does, and stores weights in another way than MXFP4 or none.
    """
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict) or quantization.get("quant_method") != _METHOD:
        return False
    _check_export(quantization, file)
    for where, settings in _weight_settings(quantization, file):
        _check_weights(where, settings, file)
    return True


def scaled(codes: StoredTensor, scale: StoredTensor, file: Path) -> StoredTensor:
    """Return packed codes as the weight they are.

    Args:
        codes: the tensor X.
        scale: the tensor X_scale.
        file: the file of ``codes``, for messages.

    Raises:
        ModelFileError: a pair of other types or extents.
    """
    if codes.dtype != "u8" or scale.dtype not in ("u8", "e8m0"):
        raise ModelFileError(
            file,
            f"expected codes and scales of Quark's MXFP4 as u8, got {codes.dtype} and "
            f"{scale.dtype}",
            codes.name,
        )
    shape = (*codes.shape[:-1], 2 * codes.shape[-1]) if codes.shape else ()
    if len(shape) < 2 or shape != (*scale.shape[:-1], _BLOCK * scale.shape[-1]):
        raise ModelFileError(
            file,
            f"expected a scale for each {_BLOCK // 2} bytes of codes {list(codes.shape)}, "
            f"got {list(scale.shape)}",
            scale.name,
        )
    return replace(codes, dtype=ENCODING.codes.dtype, shape=shape)


def check_alone(stored: StoredTensor, file: Path) -> None:
    """Require that a tensor without scales is one of numbers, not of packed codes.

    Raises:
        ModelFileError: it has the type and the extents of codes, and is no scale itself.
    """
    if stored.dtype == "u8" and len(stored.shape) > 1 and not stored.name.endswith(SUFFIX):
        raise ModelFileError(
            file,
            f"expected {stored.name}{SUFFIX} with the scales of these codes of Quark's MXFP4, in "
            "this file or another part of the model, got no such; complete the download, or "
            "export the model again",
            stored.name,
        )


def _check_export(quantization: Mapping[str, Any], file: Path) -> None:
    export = quantization.get("export")
    stored = export.get("weight_format", "real_quantized") if isinstance(export, dict) else None
    if stored not in (None, "real_quantized"):
        raise ModelFileError(
            file,
            f"quantization_config.export.weight_format: expected 'real_quantized', got "
            f"{stored!r:.100}; export the model with its weights quantised",
        )
    algorithms = quantization.get("algo_config") or []
    for settings in algorithms if isinstance(algorithms, list) else [algorithms]:
        name = settings.get("name") if isinstance(settings, dict) else settings
        if name not in _ALGORITHMS:
            raise ModelFileError(
                file,
                f"quantization_config.algo_config: expected algorithms that change nothing but "
                f"weights ({', '.join(_ALGORITHMS)}), got {name!r:.100}",
            )


def _weight_settings(quantization: Mapping[str, Any], file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the settings of each kind of layer, and where they stand."""
    yield "global_quant_config", quantization.get("global_quant_config")
    for group in ("layer_quant_config", "layer_type_quant_config"):
        layers = quantization.get(group) or {}
        if not isinstance(layers, dict):
            raise ModelFileError(
                file,
                f"quantization_config.{group}: expected settings by layer, got {layers!r:.100}",
            )
        for name, settings in layers.items():
            yield f"{group}[{name!r:.100}]", settings


def _check_weights(where: str, settings: Any, file: Path) -> None:
    """Refuse what layers are stored in, unless it is MXFP4 or nothing."""
    settings = {} if settings is None else settings
    if not isinstance(settings, dict):
        raise ModelFileError(
            file, f"quantization_config.{where}: expected an object, got {settings!r:.100}"
        )
    if settings.get("bias") is not None:
        raise ModelFileError(
            file,
            f"quantization_config.{where}.bias: expected biases as numbers, got them quantised",
        )
    weight = settings.get("weight")
    if weight is None:
        return
    got = {key: weight.get(key) for key in _WANTED} if isinstance(weight, dict) else weight
    if got != _WANTED:
        raise ModelFileError(
            file,
            f"quantization_config.{where}.weight: expected MXFP4 ({_spelt(_WANTED)}), got "
            f"{_spelt(got)}; this way of Quark's is not read",
        )


def _spelt(settings: Any) -> str:
    if not isinstance(settings, dict):
        return f"{settings!r:.200}"
    return ", ".join(f"{key}={value!r:.60}" for key, value in settings.items())
