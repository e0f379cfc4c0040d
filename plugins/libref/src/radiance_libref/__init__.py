"""Reference kernels for radiance: every standard op in torch, written to be read."""

from collections.abc import Iterable

from radiance_abi import KernelLibrary, hookimpl


@hookimpl
def radiance_kernel_libraries() -> Iterable[KernelLibrary]:
    """Yield the reference library."""
    from radiance_libref.library import library

    yield library()
