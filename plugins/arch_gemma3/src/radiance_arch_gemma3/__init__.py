"""Gemma 3, text."""

from collections.abc import Iterable

from radiance_abi import Architecture, hookimpl
from radiance_arch_gemma3.gemma3 import Gemma3

__all__ = ["Gemma3", "radiance_architectures"]


@hookimpl
def radiance_architectures() -> Iterable[Architecture]:
    """Offer text models and the text part of models that also see."""
    yield Gemma3("gemma3")
    yield Gemma3("gemma3text")
