"""Block-scaled fp8: an fp8 tensor and its scales are one weight.

A checkpoint stores the codes as ``X`` and the scale of each block of them as ``X_scale_inv``, which
despite its name is what codes are multiplied by.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from radiance_abi.encoding import Encoding, affine, rows_and_cols
from radiance_core.model_files.errors import ModelFileError
from radiance_core.model_files.safetensors_header import StoredTensor

SUFFIX = "_scale_inv"
_USUAL_BLOCK = 128
_FP8 = ("fp8_e4m3", "fp8_e5m2")
_SCALES = ("f32", "bf16", "f16", "e8m0")


def scaled_encoding(
    codes: StoredTensor, scale: StoredTensor, config: Mapping[str, Any], file: Path
) -> Encoding | None:
    """Return the encoding of codes and their scales, or None when they are not a pair.

    Args:
        codes: the tensor X.
        scale: the tensor X_scale_inv.
        config: config.json; its quantization_config may state the block.
        file: the file of ``codes``, for messages.

    Raises:
        ModelFileError: the scales' extents do not follow from the codes' and the block.
    """
    if codes.dtype not in _FP8 or scale.dtype not in _SCALES:
        return None
    rows, cols = rows_and_cols(codes.shape)
    scale_rows, scale_cols = rows_and_cols(scale.shape)
    if scale_rows == scale_cols == 1 and rows * cols > 0 and not _stated_block(config, file):
        return affine(codes.dtype, (scale.dtype, 0, 0))
    if len(codes.shape) != len(scale.shape) or codes.shape[:-2] != scale.shape[:-2]:
        raise ModelFileError(
            file,
            f"expected scales of the same leading extents as {list(codes.shape)}, "
            f"got {list(scale.shape)}",
            scale.name,
        )
    block = _stated_block(config, file) or (
        _infer(rows, scale_rows),
        _infer(cols, scale_cols),
    )
    expected = (-(-rows // block[0]), -(-cols // block[1]))
    stacked = len(codes.shape) > 2 and codes.shape[-2] % block[0]
    if expected != (scale_rows, scale_cols) or stacked:
        raise ModelFileError(
            file,
            f"expected {expected[0]} x {expected[1]} scales for blocks of {block[0]} x {block[1]} "
            f"in {list(codes.shape)}, got {list(scale.shape)}",
            scale.name,
        )
    return affine(codes.dtype, (scale.dtype, *block))


def _stated_block(config: Mapping[str, Any], file: Path) -> tuple[int, int] | None:
    quantization = config.get("quantization_config")
    block = quantization.get("weight_block_size") if isinstance(quantization, dict) else None
    if block is None:
        return None
    if (
        not isinstance(block, list)
        or len(block) != 2
        or not all(type(extent) is int and 1 <= extent < 1 << 31 for extent in block)
    ):
        raise ModelFileError(
            file, f"expected weight_block_size as two integers >= 1, got {block!r:.100}"
        )
    return block[0], block[1]


def _infer(extent: int, count: int) -> int:
    """Return a block that cuts ``extent`` into ``count``: 128, a power of two, or the quotient."""
    candidates = [_USUAL_BLOCK, *(1 << power for power in range(31))]
    for block in candidates:
        if -(-extent // block) == count:
            return block
    return max(1, -(-extent // max(count, 1)))
