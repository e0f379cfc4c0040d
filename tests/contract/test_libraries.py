"""Libraries as a whole: they load, they are declared soundly, and the reference is complete."""

import pytest

from radiance_abi import KernelLibrary
from radiance_abi.testing import declarations, names
from radiance_abi.vocabulary import STANDARD

from . import discovered


@pytest.mark.parametrize("name", names())
def test_an_installed_library_loads(name: str) -> None:
    """Every entry point of kernels imports and yields libraries."""
    found = discovered.loaded()[name]
    if isinstance(found, Exception):
        raise found
    assert found


@pytest.mark.parametrize("library", discovered.served(), ids=lambda library: library.name)
def test_declarations_are_sound(library: KernelLibrary) -> None:
    """Versions, names, schemas and constraints follow the contract."""
    assert list(declarations.faults(library)) == []


def test_the_reference_serves_every_standard_op() -> None:
    """No standard op is without an oracle."""
    (library,) = (found for found in discovered.served() if found.name == discovered.REFERENCE)
    assert {kernel.op for kernel in library.kernels} == set(STANDARD)
    assert library.reference
