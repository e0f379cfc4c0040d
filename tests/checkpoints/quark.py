"""Weights in MXFP4 as AMD Quark writes them into a folder of safetensors."""

from typing import Any

import numpy as np

_E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_VALUES = np.concatenate([_E2M1, -_E2M1])
_WEIGHT = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}


def quark_config() -> dict[str, Any]:
    """Return the quantization_config, of what a reader needs of it."""
    layers = {"weight": _WEIGHT, "input_tensors": {**_WEIGHT, "is_dynamic": True}, "bias": None}
    export = {"pack_method": "reorder", "weight_format": "real_quantized", "kv_cache_group": []}
    return {
        "quant_method": "quark",
        "algo_config": None,
        "exclude": ["lm_head"],
        "export": export,
        "global_quant_config": layers,
        "layer_quant_config": {},
        "layer_type_quant_config": {},
    }


def to_mxfp4(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return packed codes u8 [N, K/2], scales u8 [N, K/32] and the f64 [N, K] that they mean.

    The scale is OCP's: the largest power of two that keeps a block's largest value below 8; each
    code is the nearest number.
    """
    rows, cols = weight.shape
    blocks = weight.astype(np.float64).reshape(rows, cols // 32, 32)
    largest = np.maximum(np.abs(blocks).max(axis=2, keepdims=True), 2.0**-120)
    scale = 2.0 ** (np.floor(np.log2(largest)) - 2)
    codes = np.abs(blocks[..., None] / scale[..., None] - _VALUES).argmin(axis=3)
    values = (_VALUES[codes] * scale).reshape(rows, cols)
    flat = codes.reshape(rows, cols).astype(np.uint8)
    exponents = (np.log2(scale[..., 0]) + 127).astype(np.uint8)
    return flat[:, 0::2] | flat[:, 1::2] << 4, exponents, values
