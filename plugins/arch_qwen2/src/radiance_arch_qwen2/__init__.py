"""Qwen2 (dense)."""

from collections.abc import Iterable

from radiance_abi import Architecture, hookimpl
from radiance_arch_qwen2.qwen2 import Qwen2

__all__ = ["Qwen2", "radiance_architectures"]


@hookimpl
def radiance_architectures() -> Iterable[Architecture]:
    """Offer the family."""
    yield Qwen2()
