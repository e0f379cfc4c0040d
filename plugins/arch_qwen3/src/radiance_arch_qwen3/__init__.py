"""Qwen3 (dense)."""

from collections.abc import Iterable

from radiance_abi import Architecture, hookimpl
from radiance_arch_qwen3.qwen3 import Qwen3

__all__ = ["Qwen3", "radiance_architectures"]


@hookimpl
def radiance_architectures() -> Iterable[Architecture]:
    """Offer the family."""
    yield Qwen3()
