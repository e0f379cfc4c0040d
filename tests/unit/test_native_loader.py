"""Loading kernel libraries written in C: what is refused and how, and that hooks arrive whole."""

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from radiance_abi import AbiError, Call, KernelError, Layout, Tensor, affine, native, plain
from radiance_abi.kernels import KernelLibrary

SOURCE = Path(__file__).with_name("native_library.c")
COMPILER = shutil.which("gcc") or shutil.which("cc") or ""
needs_compiler = pytest.mark.skipif(not COMPILER, reason="no C compiler")
Params = dict[str, int | float | str]
GEOMETRY: Params = {"M": 64, "n": 8, "by": 2.0, "mode": "near", "tile": 4}

Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compile the test library with macros; the same macros give the same file."""
    if not COMPILER:
        pytest.skip("no C compiler")
    built: dict[tuple[str, ...], Path] = {}

    def make(*macros: str) -> Path:
        if macros not in built:
            out = tmp_path_factory.mktemp("native") / "libtest.so"
            flags = ["-std=c11", "-O1", "-w", "-fPIC", "-shared", native.cflags()]
            command = [COMPILER, *flags, *(f"-D{m}" for m in macros), str(SOURCE), "-o", str(out)]
            subprocess.run(command, check=True)
            built[macros] = out
        return built[macros]

    return make


@pytest.fixture
def library(build: Build) -> KernelLibrary:
    return native.load(build())


def call(rows: int = 5, n: int = 8, **params: float | str) -> Call:
    """Make a call on fresh random data; x has padded rows and y is a column slice."""
    rng = np.random.default_rng()
    x = rng.normal(size=(rows, n + 3)).astype(np.float32)[:, :n]
    w = rng.normal(size=(n, n)).astype(np.float32)
    y = np.zeros((rows, 2 * n), np.float32)[:, n:]
    tensors = [Tensor(x, "f32"), Tensor(w, "f32"), None, Tensor(y, "f32")]
    given: Params = {"M": rows, "n": n, "by": 2.0, "mode": "near", **params}
    return Call(tensors, given, [None] * 4)


def result(c: Call) -> np.ndarray:
    y = c.arrays()[3]
    assert y is not None
    return y


def expected(c: Call, extra: float = 0.0) -> np.ndarray:
    x, w, b, _ = c.arrays()
    assert x is not None
    assert w is not None
    by = c.params["by"]
    assert isinstance(by, float)
    base: np.ndarray = x.astype(np.float64) * by + w[0, 0] + extra
    return base if b is None else base + b


@needs_compiler
def test_every_struct_has_the_layout_that_the_compiler_gives_it(tmp_path: Path) -> None:
    """Sizes and offsets that cffi derives from the header equal the compiler's."""
    ffi = native.ffi()
    structs = [t for t in ffi.list_types()[0] if re.match(r"Rad|DL", t) and "Type" not in t]
    structs = [s for s in structs if ffi.typeof(s).kind == "struct"] + ["DLDataType"]
    assert {"RadKernel", "RadCall", "RadLibrary", "DLTensor", "RadLayout"} <= set(structs)
    lines, want = [], []
    for s in structs:
        lines.append(f'printf("%zu\\n", sizeof({s}));')
        want.append(ffi.sizeof(s))
        for field, _ in ffi.typeof(s).fields:
            lines.append(f'printf("%zu\\n", offsetof({s}, {field}));')
            want.append(ffi.offsetof(s, field))
    (tmp_path / "layout.c").write_text(
        "#include <radiance_abi.h>\n#include <stdio.h>\nint main(void) {" + "\n".join(lines) + "}"
    )
    command = [
        COMPILER,
        native.cflags(),
        str(tmp_path / "layout.c"),
        "-o",
        str(tmp_path / "layout"),
    ]
    subprocess.run(command, check=True)
    said = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    assert [int(line) for line in said.split()] == want


def test_tables_become_kernel_rows(library: KernelLibrary) -> None:
    """Every column of a row arrives, in order of declaration."""
    assert (library.name, library.version, library.target) == ("testlib", "1.2", "host")
    assert library.reference
    assert library.about == "two units"
    assert library.declined is None
    assert library.schemas[1] == "other(n) x[n]:f32 -> y[n]:f32"
    tiled, whole = library.kernels
    assert [str(c) for c in tiled.where] == [
        "M<=64",
        "n>=1",
        "n multiple of 2",
        "mode in {near,far}",
        "n=8",
    ]
    assert (tiled.axes[0].name, tiled.axes[0].values, tiled.axes[0].default) == (
        "tile",
        (1, 2, 4),
        2,
    )
    assert (tiled.op, tiled.name, tiled.priority, tiled.domain) == ("blend", "tiled", 5, "host")
    assert (tiled.replaces, tiled.describe) == ("mul+add", "blends")
    assert tiled.native != 0
    assert native.schema_of(tiled.native).op == "blend"
    assert (whole.tiles, whole.layout, whole.init, whole.scratch) == (None, None, None, None)


def test_a_file_is_opened_once(build: Build, library: KernelLibrary) -> None:
    """Loading the same file again gives the same object."""
    assert native.load(build()) is library


def test_library_is_found_beside_its_package(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``library`` looks in the folder of the package, and says where when there is nothing."""
    package = tmp_path / "some_kernels"
    package.mkdir()
    (package / "__init__.py").write_text("")
    shutil.copy(build(), package / "libx.so")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    assert native.library("some_kernels", "libx.so").name == "testlib"
    with pytest.raises(
        AbiError, match=r"some_kernels/liby\.so: expected a shared object, got No such"
    ):
        native.library("some_kernels", "liby.so")
    sys.modules.pop("some_kernels")


def test_tiled_run_computes_ranges_in_scratch(library: KernelLibrary) -> None:
    """Any split into ranges by any worker gives the whole result, on strided operands."""
    tiled = library.kernels[0]
    c = call(rows=11)
    assert tiled.tiles is not None
    assert tiled.tiles(c) == 11
    for first, last, worker in ((7, 11, 3), (0, 2, 0), (2, 7, 1)):
        tiled.run(c, first, last, worker)
    np.testing.assert_allclose(result(c), expected(c), rtol=1e-5, atol=1e-5)


def test_optional_operand_param_and_state_reach_the_kernel(library: KernelLibrary) -> None:
    """An optional operand, an optional param and the state change the result as they should."""
    tiled, whole = library.kernels
    assert tiled.init is not None
    assert tiled.fini is not None
    c = call(rows=3, tag=100)
    b = np.random.default_rng().normal(size=(3, 8)).astype(np.float32)
    c.tensors = [c.tensors[0], c.tensors[1], Tensor(b, "f32"), c.tensors[3]]
    c.state = tiled.init(GEOMETRY)
    whole.run(c)
    np.testing.assert_allclose(result(c), expected(c, 104.0), rtol=1e-5)
    tiled.fini(c.state)


def test_default_fills_an_absent_param(library: KernelLibrary) -> None:
    """An absent optional param holds the schema's default."""
    c = call()
    c.params = {"M": 5, "n": 8}
    library.kernels[1].run(c)
    c.params = {"by": 0.5}  # what the schema says
    np.testing.assert_allclose(result(c), expected(c), rtol=1e-5, atol=1e-6)


def test_layout_of_a_weight_reaches_the_kernel(library: KernelLibrary) -> None:
    """RadCall.layouts carries the layout of a laid-out weight, and NULL for one taken as it is."""
    c = call()
    c.layouts = [None, Layout("inverted", "f32", (8, 8), 1, 50), None, None]
    library.kernels[1].run(c)
    np.testing.assert_allclose(result(c), expected(c, 50.0), rtol=1e-5)
    c.layouts = [None, Layout("plain", "f32", (8, 8), 1, 50), None, None]
    library.kernels[1].run(c)
    np.testing.assert_allclose(result(c), expected(c), rtol=1e-5, atol=1e-5)


def test_negative_status_names_everything(library: KernelLibrary) -> None:
    """The error of a hook names op, kernel, hook, status and geometry, and carries the code."""
    tiled = library.kernels[0]
    with pytest.raises(
        KernelError,
        match=r"blend: expected kernel tiled to do run, got status -2 \(DTYPE\) at M=5 n=8 by=2",
    ) as caught:
        tiled.run(call(mode="far"), 0, 5, 0)
    assert caught.value.status == -2
    assert tiled.tiles is not None
    with pytest.raises(KernelError, match=r"to do tiles, got status -1 \(SHAPE\)"):
        tiled.tiles(call(rows=13))


def test_wrong_number_of_tensors_is_refused(library: KernelLibrary) -> None:
    """C finds operands by position, so their number is checked before the call."""
    c = call()
    c.tensors = c.tensors[:2]
    with pytest.raises(
        AbiError, match="blend: expected 4 tensors, got 2 in a call of kernel tiled"
    ):
        library.kernels[0].run(c, 0, 1, 0)


def test_layout_answers(library: KernelLibrary) -> None:
    """The three answers of a layout hook: stored so, as it is, and not read; others are errors."""
    layout = library.kernels[0].layout
    assert layout is not None
    assert layout(plain("u8"), (8, 8), GEOMETRY, 1) == Layout("inverted", "u8", (8, 8), 2, 7)
    assert layout(plain("f32"), (2, 4, 8), GEOMETRY, 1) == Layout("plain", "f32", (2, 4, 8))
    assert layout(plain("bf16"), (8, 8), GEOMETRY, 1) is None
    assert layout(affine("u4", ("f16", 1, 4)), (8, 8), GEOMETRY, 1) is None
    with pytest.raises(KernelError, match=r"to do layout, got status -6 \(NOMEM\)"):
        layout(plain("i8"), (8, 8), GEOMETRY, 1)


def test_bad_layouts_are_refused(build: Build, library: KernelLibrary) -> None:
    """An empty layout, too long a name and a missing relayout are the row's faults."""
    kernel = library.kernels[0]
    assert kernel.layout is not None
    with pytest.raises(AbiError, match=r"blend: expected kernel tiled to name its layout .*ndim=0"):
        kernel.layout(plain("i16"), (8, 8), GEOMETRY, 1)
    c = call()
    c.layouts = [None, Layout("x" * 48, "f32", (8, 8)), None, None]
    with pytest.raises(AbiError, match=r"layout x+: expected a name below 48 bytes .*got 48 bytes"):
        kernel.run(c, 0, 5, 0)
    weight = np.zeros((8, 8), np.uint8)
    layout = Layout("inverted", "u8", (8, 8), 2, 7)
    for macros, text in (
        (["RELAYOUT=NULL"], r"expected kernel tiled to have relayout, got a row without it for"),
        (
            ['SCHEMA="blend(M~, n) x[M,n]:f32, weight w[_,n]:*, b?[M,n]:f32 -> y[M,n]:f32"'],
            r"expected extents of weight w in terms of params, got \[_,n\]",
        ),
    ):
        relayout = native.load(build(*macros)).kernels[0].relayout
        assert relayout is not None
        with pytest.raises(AbiError, match=text):
            relayout(plain("u8"), layout, {"codes": weight}, weight, 0, 8, GEOMETRY, 1)


def test_relayout_in_threads_is_undone_by_unrelayout(library: KernelLibrary) -> None:
    """Row ranges written from many threads give the stored weight; the planes come back whole."""
    kernel = library.kernels[0]
    assert kernel.layout is not None
    assert kernel.relayout is not None
    assert kernel.unrelayout is not None
    relayout = kernel.relayout
    geometry = GEOMETRY | {"n": 64}
    weight = np.random.default_rng().integers(0, 256, (64, 64), np.uint8)
    for encoding, planes in ((plain("u8"), weight), (plain("f32"), weight.astype(np.float32))):
        layout = kernel.layout(encoding, (64, 64), geometry, 1)
        assert layout is not None
        stored = np.zeros_like(planes)

        def one(first: int, e=encoding, p=planes, s=stored, lay=layout) -> None:  # type: ignore[no-untyped-def]
            relayout(e, lay, {"codes": p[first : first + 4]}, s, first, first + 4, geometry, 1)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, range(0, 64, 4)))
        assert (stored == (~weight if layout.name == "inverted" else planes)).all()
        back = kernel.unrelayout(encoding, layout, stored, 8, 20, geometry, 1)
        assert (back["codes"] == planes[8:20]).all()


def test_rows_of_an_older_contract_are_read_as_far_as_they_go(build: Build) -> None:
    """Rows that end before scratch serve with the hooks that they have."""
    tiled, whole = native.load(build("SMALL_ROWS")).kernels
    assert (tiled.name, whole.name) == ("tiled", "whole")
    assert (tiled.scratch, tiled.layout, tiled.replaces) == (None, None, None)
    c = call()
    tiled.run(c, 0, 5, 0)
    np.testing.assert_allclose(result(c), expected(c), rtol=1e-5, atol=1e-5)


def test_command_line_names_the_header() -> None:
    """``--include`` prints a folder with the header, ``--cflags`` the flag for it, else usage."""

    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "radiance_abi", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    folder = ask("--include").stdout.strip()
    assert (Path(folder) / "radiance_abi.h").is_file()
    assert ask("--cflags").stdout == f"-I{folder}\n"
    assert ask().returncode == 2
