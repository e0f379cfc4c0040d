"""The quantization_config that AMD Quark writes into config.json of an MXFP4 checkpoint."""

from typing import Any

_MXFP4 = {
    "dtype": "fp4",
    "is_dynamic": False,
    "qscheme": "per_group",
    "ch_axis": -1,
    "group_size": 32,
    "symmetric": None,
    "round_method": "half_even",
    "scale_type": "float",
    "scale_format": "e8m0",
    "scale_calculation_mode": "even",
    "mx_element_dtype": None,
    "observer_cls": "PerBlockMXObserver",
    "is_scale_quant": False,
}


def quark_config(**changes: Any) -> dict[str, Any]:
    """Return a config.json's part; ``changes`` replace keys of quantization_config."""
    return {
        "quantization_config": {
            "quant_method": "quark",
            "quant_mode": "eager_mode",
            "version": "0.10",
            "algo_config": None,
            "exclude": ["lm_head"],
            "global_quant_config": {
                "weight": dict(_MXFP4),
                "input_tensors": {**_MXFP4, "is_dynamic": True},
                "output_tensors": None,
                "bias": None,
                "target_device": None,
            },
            "layer_quant_config": {},
            "layer_type_quant_config": {},
            "kv_cache_quant_config": {},
            "softmax_quant_spec": None,
            "export": {
                "kv_cache_group": [],
                "min_kv_scale": 0.0,
                "pack_method": "reorder",
                "weight_format": "real_quantized",
                "weight_merge_groups": None,
            },
            **changes,
        }
    }


def spec(**changes: Any) -> dict[str, Any]:
    """Return how a layer's weights are stored, with these keys changed."""
    return {"weight": {**_MXFP4, **changes}}
