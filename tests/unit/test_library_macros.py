"""RAD_LIBRARY and RAD_LIBRARY_WITH: what a C or C++ author writes at the end of a library."""

import subprocess
from pathlib import Path

import pytest

from radiance_abi import KernelLibrary, native

SOURCE = """
#include <radiance_abi.h>
#include <stdio.h>
static int run(const RadCall *c, int64_t first, int64_t last, int worker)
{
    (void)c, (void)first, (void)last, (void)worker;
    return RAD_OK;
}
static const RadKernel kernels[] = {
    { RAD_KERNEL("silu", "one"), .run = run }, { RAD_KERNEL("add", "two"), .run = run } };
"""
MORE = """
static const char *const schemas[] = { "fold(M~, n, dtype:s) x[M,n] -> y[M,n]" };
static int open_mine(char *text, size_t bytes)
{
    snprintf(text, bytes, "found by open");
    return OPENS;
}
RAD_LIBRARY_WITH("mine", "0.2", "host", kernels, .flags = RAD_REFERENCE, .num_schemas = 1,
                 .schemas = schemas, .open = open_mine);
"""
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-missing-field-initializers"]
COMPILERS = (("cc", "-std=c11", ".c"), ("c++", "-std=c++20", ".cpp"))


def built(folder: Path, text: str, compiler: tuple[str, str, str], *flags: str) -> KernelLibrary:
    """Compile a library, with warnings as errors, and load it."""
    program, standard, suffix = compiler
    source = folder / f"mine{suffix}"
    source.write_text(text, encoding="utf-8")
    shared = folder / f"lib{program}{len(flags)}.so"
    command = [program, standard, *STRICT, native.cflags(), *flags, "-shared", "-fPIC"]
    subprocess.run([*command, str(source), "-o", str(shared)], check=True)
    return native.load(shared)


@pytest.mark.parametrize("compiler", COMPILERS, ids=["C", "C++"])
def test_a_table_of_kernels_is_a_library(tmp_path: Path, compiler: tuple[str, str, str]) -> None:
    """RAD_LIBRARY exports every row of the table, and nothing is set that was not asked for."""
    library = built(tmp_path, f'{SOURCE}RAD_LIBRARY("mine", "0.1", "host", kernels);', compiler)
    assert (library.name, library.version, library.target) == ("mine", "0.1", "host")
    assert [k.name for k in library.kernels] == ["one", "two"]
    assert (library.reference, tuple(library.schemas), library.about) == (False, (), "")


@pytest.mark.parametrize("compiler", COMPILERS, ids=["C", "C++"])
def test_further_members_are_set_by_name(tmp_path: Path, compiler: tuple[str, str, str]) -> None:
    """RAD_LIBRARY_WITH takes flags, schemas and open; an open that declines leaves no rows."""
    library = built(tmp_path, SOURCE + MORE, compiler, "-DOPENS=RAD_OK")
    assert library.reference
    assert tuple(library.schemas) == ("fold(M~, n, dtype:s) x[M,n] -> y[M,n]",)
    assert library.about == "found by open"
    assert len(library.kernels) == 2
    away = built(tmp_path, SOURCE + MORE, compiler, "-DOPENS=RAD_UNSUPPORTED", "-DAGAIN")
    assert (away.declined, len(away.kernels)) == ("found by open", 0)
