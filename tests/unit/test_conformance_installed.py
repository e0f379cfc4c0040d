"""The conformance kit on what is installed: entry points, hooks and the rows that are asked for."""

import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest
from kit_rows import gemm_row

from radiance_abi import (
    AbiError,
    KernelLibrary,
    hookimpl,
)
from radiance_abi.__main__ import main
from radiance_abi.testing import (
    check,
    installed,
)


def test_a_module_without_the_hook_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point that yields no library says which hook is missing."""
    entry = EntryPoint("hollow", "json", installed.GROUP)
    monkeypatch.setattr(installed, "entry_points", lambda **_: [entry])
    with pytest.raises(AbiError, match="hollow = json: expected a hook") as error:
        installed.libraries("hollow")
    assert "mark it with @radiance_abi.hookimpl" in str(error.value)


def test_a_hook_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point with a misspelt hook is an error in words that lists the hooks."""
    module = ModuleType("misspelt")
    monkeypatch.setattr(module, "radiance_kernel_librarys", hookimpl(lambda: ()), raising=False)
    monkeypatch.setitem(sys.modules, "misspelt", module)
    entry = EntryPoint("misspelt", "misspelt", installed.GROUP)
    monkeypatch.setattr(installed, "entry_points", lambda **_: [entry])
    with pytest.raises(
        AbiError, match="misspelt: unknown hook 'radiance_kernel_librarys'"
    ) as error:
        installed.libraries("misspelt")
    assert "the hooks are radiance_architectures, radiance_kernel_libraries" in str(error.value)


def test_a_row_that_no_library_has_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A --row that picks nothing does not pass: it names the rows that there are."""
    library = KernelLibrary("l", version="1", kernels=[gemm_row()])
    monkeypatch.setattr("radiance_abi.testing.libraries", lambda _: [library])
    assert main(["check", "l", "--row", "no such row"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "--row no such row: expected a part of an op and the name of its row" in told.err
    assert f"the rows are gemm_nt {gemm_row().name}" in told.err
    assert not check(library, only="no such row").passed
