"""Which level a CPU gets, what one below AVX2 is told, and what the shared object is made of."""

import ctypes
import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

import radiance_libavx

# Bits of cpuid leaf 1 ecx, leaf 7 ebx, ecx and edx, its subleaf 1 eax, and xcr0.
FMA, F16C = 1 << 12, 1 << 29
AVX2, BMI1, BMI2 = 1 << 5, 1 << 3, 1 << 8
F, DQ, BW, VL = 1 << 16, 1 << 17, 1 << 30, 1 << 31
VNNI = 1 << 11
TILE_INT8, AVX_VNNI = 1 << 25, 1 << 4
YMM, ZMM = 0x6, 0xE6
HASWELL = (FMA | F16C, AVX2 | BMI1 | BMI2, 0, 0, 0, YMM)
ALDER_LAKE = (*HASWELL[:4], AVX_VNNI, YMM)
SKYLAKE_X = (FMA | F16C, AVX2 | BMI1 | BMI2 | F | DQ | BW | VL, 0, 0, 0, ZMM)
ICE_LAKE = (*SKYLAKE_X[:2], VNNI, *SKYLAKE_X[3:])
SAPPHIRE_RAPIDS = (*ICE_LAKE[:3], TILE_INT8, AVX_VNNI, ZMM)


@pytest.fixture(scope="module")
def path() -> Path:
    spec = importlib.util.find_spec("radiance_libavx")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "libavx.so"


def judge(path, words):
    text = ctypes.create_string_buffer(256)
    shared = ctypes.CDLL(str(path))
    status = shared.rad_libavx_judge((ctypes.c_uint32 * 6)(*words), text, ctypes.c_size_t(256))
    return status, text.value.decode()


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (HASWELL, "avx2"),
        (ALDER_LAKE, "avx2 vnni"),
        (SKYLAKE_X, "avx512"),
        (ICE_LAKE, "avx512 vnni"),
        ((*ICE_LAKE[:5], YMM), "avx2"),
        ((ICE_LAKE[0], ICE_LAKE[1] & ~BW, *ICE_LAKE[2:]), "avx2"),
        (SAPPHIRE_RAPIDS, "avx512 vnni dual"),
        ((*SAPPHIRE_RAPIDS[:5], YMM), "avx2 vnni"),
        ((*SKYLAKE_X[:3], *SAPPHIRE_RAPIDS[3:]), "avx512"),
    ],
)
def test_best_level_that_cpu_and_system_run(path, words, about):
    """A level needs its instructions and that the system saves its registers."""
    assert judge(path, words) == (0, about)


@pytest.mark.parametrize(
    ("words", "lacking"),
    [
        ((0, 0, 0, 0, AVX_VNNI, 0), "ymm-state avx2 fma f16c bmi1 bmi2"),
        ((*HASWELL[:5], 0x2), "ymm-state"),
        ((F16C, BMI1 | BMI2, *HASWELL[2:]), "avx2 fma"),
    ],
)
def test_below_avx2_is_declined_by_name(path, words, lacking):
    """The text says what was expected and what this CPU lacks."""
    status, text = judge(path, words)
    assert status == -18
    assert text == (
        "libavx: expected a CPU with AVX2, FMA, F16C, BMI1 and BMI2, this one lacks "
        f"{lacking}; use a library for this machine"
    )


def test_levels_have_the_same_rows(levels):
    """A plan made on one machine names kernels that another has too."""
    tables = [[(row.op, row.name, row.c.priority) for row in level.rows] for level in levels]
    assert all(table == tables[0] for table in tables)


def test_hook_yields_the_best_level(levels):
    """The entry point's library has the rows of the best level and says which it is."""
    (library,) = radiance_libavx.radiance_kernel_libraries()
    assert library.name == "libavx"
    assert library.declined is None
    assert library.about.replace(" ", "") == levels[0].name
    assert [(k.op, k.name) for k in library.kernels] == [(r.op, r.name) for r in levels[0].rows]


def test_no_code_is_shared_between_levels(path):
    """No weak symbol: what two levels compile must not be linked once for both."""
    command = ["nm", "--defined-only", "-C", path]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    if not any("rows_of_gemm" in line for line in lines):
        assert "CI" not in os.environ, "libavx.so: expected its symbols where everything is checked"
        pytest.skip("the shared object is stripped")
    assert not [line for line in lines if line[17:18] in "VWu"]
