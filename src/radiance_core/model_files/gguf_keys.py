"""The GGUF keys whose types and lengths the core relies on, checked once when a file opens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from radiance_core.model_files.errors import ModelFileError

_INTEGERS = ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")

_TYPES: dict[str, tuple[str, ...]] = {
    "general.architecture": ("str",),
    "general.alignment": ("u32",),
    "general.name": ("str",),
    "split.no": _INTEGERS,
    "split.count": _INTEGERS,
    "split.tensors.count": _INTEGERS,
    "tokenizer.ggml.model": ("str",),
    "tokenizer.ggml.pre": ("str",),
    "tokenizer.ggml.tokens": ("[str]",),
    "tokenizer.ggml.scores": ("[f32]",),
    "tokenizer.ggml.token_type": ("[i32]", "[u32]"),
    "tokenizer.ggml.merges": ("[str]",),
    "tokenizer.ggml.bos_token_id": _INTEGERS,
    "tokenizer.ggml.eos_token_id": _INTEGERS,
    "tokenizer.ggml.unknown_token_id": _INTEGERS,
    "tokenizer.ggml.padding_token_id": _INTEGERS,
    "tokenizer.ggml.add_bos_token": ("bool",),
    "tokenizer.ggml.add_eos_token": ("bool",),
    "tokenizer.ggml.add_space_prefix": ("bool",),
    "tokenizer.chat_template": ("str",),
}

_PER_TOKEN = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type")
_TOKENS = "tokenizer.ggml.tokens"


def check_keys(metadata: Mapping[str, Any], types: Mapping[str, str], file: Path) -> None:
    """Refuse well-known keys of another type, and per-token arrays of another length.

    Raises:
        ModelFileError: names the key, with both types or both lengths.
    """
    for key, allowed in _TYPES.items():
        if key in types and types[key] not in allowed:
            raise ModelFileError(
                file, f"expected the key {key!r} as {' or '.join(allowed)}, got {types[key]}"
            )
    if _TOKENS not in metadata:
        return
    count = len(metadata[_TOKENS])
    for key in _PER_TOKEN:
        if key in metadata and len(metadata[key]) != count:
            raise ModelFileError(
                file,
                f"expected {count} items in {key!r} as in {_TOKENS!r}, got {len(metadata[key])}",
            )
