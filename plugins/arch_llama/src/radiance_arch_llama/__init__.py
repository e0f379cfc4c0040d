"""The llama family: Llama 2 and 3, SmolLM2, MiniCPM, Mistral."""

from collections.abc import Iterable

from radiance_abi import Architecture, hookimpl
from radiance_arch_llama.llama import Llama

__all__ = ["Llama", "radiance_architectures"]


@hookimpl
def radiance_architectures() -> Iterable[Architecture]:
    """Offer the ids under which files of this family go."""
    yield Llama("llama")
    yield Llama("mistral")
    yield Llama("minicpm")
