"""The table of rows.

Nothing here imports torch: a kernel's module is imported when it first runs.
"""

import importlib
import importlib.util
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from radiance_abi import Call, Constraint, Kernel, KernelLibrary, div, eq, ge, isin, le
from radiance_libref import weights

_FLOATS = isin("dtype", "f32 bf16 f16")
_CACHE = isin("kv_dtype", "f32 bf16 f16 fp8")
# Their scales are for 32 numbers of a head.
_PACKED = (isin("kv_dtype", "fp8_v4 k6_v4"), div("head_dim", 32))
# Words of their codes hold 4 or 8 slots.
_WORDS = (isin("kv_dtype", "int8 k8_v4"), div("head_dim", 32), div("block_size", 8))
_PAGE = eq("block_size", 16)
_PLANES = (ge("planes", 1), le("planes", 2))

# Modules by the ops that they define; a function is named as its op.
_MODULES = {
    "norms": "rmsnorm rmsnorm_add rmsnorm_quant_i8 rmsnorm_add_quant_i8 layernorm",
    "elementwise": """add mul scale softcap silu gelu gelu_tanh sigmoid softmax
        silu_mul gelu_tanh_mul gated_quant_i8 cast gather_rows embed_lookup""",
    "quant": "quant_act_i8 dequant",
    "gemm": "gemm_nt gemm_nt_add gemm_nt_bias gemm_nt_q gemm_nt_q_add gemm_nt_q_bias",
    "rope": "rope qk_norm_rope",
    "attention": "kv_store attn_paged",
    "sampling_logits": """sample_keep sample_penalties sample_dry sample_bias sample_temp
        sample_mask sample_argmax sample_logprobs""",
    "sampling": """sample_topk sample_topp sample_minp sample_typical sample_xtc sample_pick
        sample_draw""",
}

# Ops that are another op by a different name; their operands lie in the same order.
_SAME_AS = {
    "logits_gemm": ("gemm", "gemm_nt"),
    "logits_gemm_q": ("gemm", "gemm_nt_q"),
    "gemm_nt_bf16": ("gemm", "gemm_nt"),
    "gemm_nt_bf16_add": ("gemm", "gemm_nt_add"),
    "logits_gemm_bf16": ("gemm", "gemm_nt"),
}

_OF_CODES = (
    *("quant_act_i8", "dequant", "rmsnorm_quant_i8", "rmsnorm_add_quant_i8"),
    *("gemm_nt_q", "gemm_nt_q_add", "gemm_nt_q_bias", "logits_gemm_q"),
)
_WHERE: dict[str, tuple[Constraint, ...]] = {
    "cast": (isin("from", "f32 bf16 f16"), isin("to", "f32 bf16 f16")),
    "gather_rows": (isin("dtype", "f32 bf16 f16 i32 i8 u8"),),
    "gated_quant_i8": (_FLOATS, isin("act", "silu gelu_tanh gelu"), *_PLANES),
    "kv_store": (_FLOATS, _CACHE),
    "attn_paged": (_FLOATS, _CACHE, _PAGE),
    "kv_store_packed": (_FLOATS, *_PACKED),
    "attn_paged_packed": (_FLOATS, *_PACKED, _PAGE),
    "kv_store_words": (_FLOATS, *_WORDS),
    "attn_paged_words": (_FLOATS, *_WORDS, _PAGE),
    **dict.fromkeys(_OF_CODES, (_FLOATS, *_PLANES)),
}


def _deferred(module: str, function: str) -> Callable[[Call], None]:
    """Return a kernel that imports its module when it is first called."""

    def run(call: Call) -> None:
        getattr(importlib.import_module(f"radiance_libref.{module}"), function)(call)

    return run


def _row(op: str, module: str, function: str, kind: str = "") -> Kernel:
    sampling = module.startswith("sampling")
    return Kernel(
        op=op,
        name=f"ref_{op}{kind}",
        run=_deferred(module, function),
        where=() if sampling else _WHERE.get(op + kind, (_FLOATS,)),
        layout=None if sampling else weights.layout,
        relayout=None if sampling else weights.relayout,
        unrelayout=None if sampling else weights.unrelayout,
    )


def _version() -> str:
    try:
        return version("radiance-libref")
    except PackageNotFoundError:
        return "0"


def library() -> KernelLibrary:
    """Return the reference library; without torch it declines."""
    rows = [_row(op, m, op) for m, ops in _MODULES.items() for op in ops.split()]
    rows += [_row(op, *same) for op, same in _SAME_AS.items()]
    for kind in ("_packed", "_words"):
        rows += [_row(op, "attention", op, kind) for op in ("kv_store", "attn_paged")]
    found = importlib.util.find_spec("torch") is not None
    return KernelLibrary(
        "libref",
        version=_version(),
        target="host",
        kernels=tuple(rows),
        reference=True,
        declined=None if found else "torch is not installed; install it to have the reference",
        about="torch" if found else "",
    )
