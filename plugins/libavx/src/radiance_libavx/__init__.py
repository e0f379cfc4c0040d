"""x86 host kernels in one shared object, with a level of instructions for each kind of CPU."""

from collections.abc import Iterator

from radiance_abi import KernelLibrary, hookimpl, native


@hookimpl
def radiance_kernel_libraries() -> Iterator[KernelLibrary]:
    """Yield the library; on a CPU below AVX2 it says so in ``declined``."""
    yield native.library(__package__, "libavx.so")
