"""The kernel libraries of this environment and their rows, as parameters of tests."""

from functools import lru_cache

import pytest

from radiance_abi import Kernel, KernelLibrary
from radiance_abi.testing import libraries, names

REFERENCE = "libref"


@lru_cache(maxsize=1)
def loaded() -> dict[str, list[KernelLibrary] | Exception]:
    """Return what each entry point yields, or why it could not be loaded."""
    found: dict[str, list[KernelLibrary] | Exception] = {}
    for name in names():
        try:
            found[name] = libraries(name)
        except Exception as error:
            found[name] = error
    return found


def served() -> list[KernelLibrary]:
    """Return the libraries that serve this machine."""
    sound = [some for some in loaded().values() if not isinstance(some, Exception)]
    return [library for some in sound for library in some if library.declined is None]


def rows(*, reference: bool) -> list[object]:
    """Return (library, host row with a standard op) parameters; those of libref only if asked."""
    return [
        pytest.param(library, kernel, id=f"{library.name}-{kernel.op}-{kernel.name}")
        for library in served()
        for kernel in library.kernels
        if kernel.domain == "host" and (reference or library.name != REFERENCE)
    ]


def reference_row(op: str) -> Kernel:
    """Return libref's row of an op."""
    (library,) = (found for found in served() if found.name == REFERENCE)
    return next(kernel for kernel in library.kernels if kernel.op == op)
