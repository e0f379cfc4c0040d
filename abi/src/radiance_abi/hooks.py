"""The three hooks by which a plugin offers what it has; pluggy carries them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from radiance_abi.architectures import Architecture
    from radiance_abi.kernels import KernelLibrary
    from radiance_abi.quantizers import Quantizer

PROJECT = "radiance"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

HOOK_OF_GROUP = {
    "radiance.kernels": "radiance_kernel_libraries",
    "radiance.architectures": "radiance_architectures",
    "radiance.quantizers": "radiance_quantizers",
}
"""Entry-point group to the hook that a plugin of that group implements."""


@hookspec
def radiance_kernel_libraries() -> "Iterable[KernelLibrary]":  # type: ignore[empty-body]
    """Yield this plugin's kernel libraries; must start no thread and touch no device memory."""


@hookspec
def radiance_architectures() -> "Iterable[Architecture]":  # type: ignore[empty-body]
    """Yield the architectures of this plugin."""


@hookspec
def radiance_quantizers() -> "Iterable[Quantizer]":  # type: ignore[empty-body]
    """Yield the quantisers of this plugin."""
