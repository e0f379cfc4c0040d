"""From settings to how a model is built; what builds it is imported when that is asked for."""

from pathlib import Path
from typing import TYPE_CHECKING

from radiance_abi.errors import ConfigurationError
from radiance_core.config import Config

if TYPE_CHECKING:
    from radiance_core.build import BuildSettings

MIB = 1 << 20


def local_model(text: str) -> Path | None:
    """Return the file or folder that ``--model`` names; None for a hub id.

    Raises:
        ConfigurationError: there is no such path, and it is no hub id.
    """
    path = Path(text).expanduser()
    if path.exists():
        return path
    parts = text.split("/")
    if len(parts) != 2 or not all(parts) or text.startswith((".", "/", "~")):
        raise ConfigurationError(
            f"--model {text}: expected a GGUF file, a safetensors folder or a hub id such as "
            "owner/name, got a path that does not exist"
        )
    return None


def resolve_model(text: str) -> Path:
    """Return the file or folder that ``--model`` names; a hub id is fetched unless it is cached.

    Raises:
        ConfigurationError: no such file, and no hub id that can be had.
    """
    path = local_model(text)
    if path is not None:
        return path
    from radiance_core.hub import fetch

    return fetch(text)


def kv_dtype(config: Config) -> str | None:
    """Return the cache's element type that was asked for."""
    name = config.text("kv-cache-dtype")
    return None if name == "auto" else name


def activation_planes(config: Config) -> int:
    """Return how many int8 planes activations should have."""
    return {"int8": 1, "int16": 2}[config.text("activations")]


def build_settings(config: Config, path: Path) -> "BuildSettings":
    """Return what decides how the model is built."""
    from radiance_core.build import BuildSettings

    return BuildSettings(
        model=path,
        kernels=config.names("kernels") or None,
        max_seqs=config.number("max-num-seqs"),
        max_tokens=config.number("max-num-batched-tokens"),
        max_context=config.number("max-model-len"),
        headroom_mib=config.number("gpu-headroom-mib"),
        kv_dtype=kv_dtype(config),
        activation_planes=activation_planes(config),
        card_bytes=config.number("memory-mib") * MIB,
        max_drafts=config.number("num-speculative-tokens"),
        threads=config.number("threads"),
        accept_reference=config.flag("debug-accept-reference-kernels"),
        tuning=config.text("tuning"),
    )


def max_queued(config: Config) -> int:
    """Return how many requests may wait."""
    return config.number("max-queued-requests") or 8 * config.number("max-num-seqs")
