"""The library as a plugin: cheap to list, complete, honest about what it is."""

import importlib.util
import itertools
import subprocess
import sys

import numpy as np
import pytest

from radiance_abi import ABI_VERSION, Encoding, EncodingError, Kernel, KernelError, plain
from radiance_abi.encoding import decode
from radiance_abi.kv_cache import CACHE_DTYPES, cache_dtype
from radiance_abi.testing import (
    ENCODINGS,
    caller,
    cases,
    check,
    compare,
    plain_weight,
    random_weight,
    run,
)
from radiance_abi.testing.case import numpy_dtype
from radiance_abi.vocabulary import STANDARD
from radiance_libref import weights
from radiance_libref.library import library

call = caller(library())
weight = plain_weight


def test_listing_imports_no_torch() -> None:
    """The hook yields its rows without torch being imported."""
    code = (
        "import sys, radiance_libref as r; "
        "rows = next(iter(r.radiance_kernel_libraries())).kernels; "
        "sys.exit('torch' in sys.modules or not rows)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_is_a_reference_for_every_op() -> None:
    """Each standard op has a row, of its own name; the library calls itself a reference."""
    lib = library()
    assert {k.op for k in lib.kernels} == set(STANDARD)
    assert len({k.name for k in lib.kernels}) == len(lib.kernels)
    assert (lib.reference, lib.target, lib.declined) == (True, "host", None)
    assert lib.abi_version == ABI_VERSION


def test_without_torch_it_declines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without torch is told so by name instead of failing at a call."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "torch is not installed" in str(library().declined)


def test_the_conformance_kit_passes() -> None:
    """Every row agrees with the kit's own formulas and keeps the rules of all kernels."""
    report = check(library(), count=4)
    assert report.passed, "\n".join(report.lines())


@pytest.mark.parametrize("kernel", library().kernels, ids=lambda k: k.name)
def test_the_kit_sees_one_wrong_element(kernel: Kernel) -> None:
    """For every op and result, changing a single element is a fault: no formula is blind."""
    rng = np.random.default_rng()
    for case in itertools.islice(cases(kernel, STANDARD[kernel.op], rng), 4):
        results = run(kernel, case)
        assert compare(case, results) == ""
        for name, result in results.items():
            at = tuple(int(rng.integers(extent)) for extent in result.shape)
            changed = result.copy()
            if np.isfinite(result[at].astype(np.float64)):
                changed[at] += np.asarray(3 if result.dtype.kind == "i" else 0.5, result.dtype)
            else:
                changed[at] = 0
            top = float(np.abs(np.nan_to_num(result.astype(np.float64), posinf=0, neginf=0)).max())
            if result.dtype.kind != "i":
                # Next to the largest number of a result half a unit may be rounding.
                changed[at] += np.asarray(top, result.dtype)
            assert compare(case, {**results, name: changed}) != "", f"{case}: {name}{list(at)}"


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_weights_are_kept_as_decoded(encoding: Encoding) -> None:
    """Relayout by row ranges stores exactly what decode gives, for every encoding."""
    rng = np.random.default_rng()
    shape = (int(rng.integers(1, 300)), 256)
    made = random_weight(encoding, shape, rng)
    layout = weights.layout(encoding, shape, {}, 1)
    assert layout is not None
    stored = np.full(shape, np.nan, np.float32)
    for first in range(0, shape[0], layout.row_block):
        last = min(shape[0], first + layout.row_block)
        planes = {
            p.role: made.planes[p.role][first // (p.block[0] or 1) : -(-last // (p.block[0] or 1))]
            if not p.is_table
            else made.planes[p.role]
            for p in encoding
        }
        weights.relayout(encoding, layout, planes, stored, first, last, {}, 1)
    assert np.array_equal(stored, decode(encoding, made.planes, shape))


def test_another_scheme_is_not_read() -> None:
    """A scheme that only its quantiser can decode is answered with None."""
    foreign = Encoding.parse("trellis:codes=u8[1x1]")
    assert weights.layout(foreign, (4, 8), {}, 1) is None


@pytest.mark.parametrize(
    "name", ["f32", "bf16", "f16", "fp8_e4m3", "fp8_e5m2", "i8", "u8", "i4", "u5"]
)
def test_plain_planes_come_back(name: str) -> None:
    """A plain weight that f32 holds is given back bit for bit."""
    encoding = plain(name)
    rng = np.random.default_rng()
    kind, shape = encoding.codes.storage(6, 40)
    if encoding.codes.element.integer:
        raw = rng.integers(0, 256, (6, kind.itemsize * shape[1])).astype(np.uint8).view(kind)
    else:
        raw = (rng.normal(size=shape) * 10).astype(np.float32).astype(kind)
    layout = weights.layout(encoding, (6, 40), {}, 1)
    assert layout is not None
    stored = np.zeros((6, 40), np.float32)
    weights.relayout(encoding, layout, {"codes": raw}, stored, 0, 6, {}, 1)
    back = weights.unrelayout(encoding, layout, stored, 2, 5, {}, 1)["codes"]
    assert back.dtype == raw.dtype
    assert back.tobytes() == raw[2:5].tobytes()


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("i8*f16[1x32]", "expected a plain encoding that f32 holds exactly, got i8"),
        ("i32", "expected a plain encoding that f32 holds exactly, got i32"),
        ("fp6_e2m3", "expected integers or whole-byte floats to give back"),
    ],
)
def test_other_planes_do_not_come_back(encoding: str, text: str) -> None:
    """Decoded values do not determine the planes, and the error says where to take them from."""
    parsed = Encoding.parse(encoding)
    layout = weights.layout(parsed, (2, 32), {}, 1)
    assert layout is not None
    with pytest.raises(EncodingError, match=text.replace("*", r"\*")) as error:
        weights.unrelayout(parsed, layout, np.zeros((2, 32), np.float32), 0, 2, {}, 1)
    assert "take the planes from the model file" in str(error.value)


@pytest.mark.parametrize("kv_dtype", CACHE_DTYPES)
def test_storing_nothing_changes_nothing(kv_dtype: str) -> None:
    """Where no token of a step has a slot the cache stays as it is, in every form."""
    params = {"head_dim": 32, "n_head_kv": 1, "block_size": 16, "kv_dtype": kv_dtype}
    form = cache_dtype(kv_dtype)
    kind = np.dtype(np.uint8) if form.packed else numpy_dtype(kv_dtype)
    cache = np.full((2, 1, 16, form.row(32)), 7, kind)
    none = np.full(3, -1, np.int32)
    got = call("kv_store", {**params, "dtype": "f32"}, k=_rows(3, 32), v=_rows(3, 32),
               slot_mapping=none, kv_cache=cache)["kv_cache"]  # fmt: skip
    assert got.tobytes() == cache.tobytes()


def _rows(*shape: int) -> np.ndarray:
    return np.random.default_rng().normal(size=shape).astype(np.float32)


_HEAD = {"head_dim": 8, "n_head": 2, "n_head_kv": 1, "theta": 1e4, "dtype": "f32"}


def _attend(**changed: np.ndarray) -> None:
    operands = {
        "q": _rows(2, 16),
        "kv_cache": _rows(3, 1, 16, 16),
        "block_table": np.zeros((1, 1), np.int32),
        "seqused": np.array([2], np.int32),
        "cu_seqlens": np.array([0, 2], np.int32),
        **changed,
    }
    params = {"q_len": 2, "block_size": 16, "causal": 1, "window": 0, "kv_dtype": "f32", **_HEAD}
    call("attn_paged", params, **operands)


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (
            lambda: call(
                "gemm_nt_bias",
                {"N": 3, "K": 4, "dtype": "f32", "act": "tanh"},
                a=_rows(2, 4),
                b=weight(_rows(3, 4)),
                bias=weight(_rows(3)),
            ),
            "act: expected one of silu, gelu, gelu_tanh, none, got 'tanh'",
        ),
        (
            lambda: call("mul", {"n": 4, "dtype": "f32"}, a=_rows(3, 4), b=_rows(2, 4)),
            "mul: expected b of 1 or 3 rows, got 2",
        ),
        (
            lambda: call(
                "gather_rows",
                {"n": 4, "dtype": "f32", "M": 1},
                x=_rows(3, 4),
                idx=np.array([3], np.int32),
            ),
            "gather_rows: expected indices below 3, got 3",
        ),
        (
            lambda: call(
                "embed_lookup",
                {"n_embd": 4, "n_vocab": 3, "dtype": "f32"},
                tokens=np.array([5], np.int32),
                wte=weight(_rows(3, 4)),
            ),
            "embed_lookup: expected indices below 3, got 5",
        ),
        (
            lambda: call(
                "rope",
                {**_HEAD, "mode": "mrope"},
                qkv=_rows(1, 24),
                positions=np.zeros(1, np.int32),
            ),
            "mode: expected neox or gptj, got 'mrope'",
        ),
        (
            lambda: call(
                "rope",
                _HEAD,
                qkv=_rows(1, 24),
                positions=np.zeros(1, np.int32),
                freqs=np.ones(3, np.float32),
            ),
            "freqs: expected 4 of them for 8 rotated elements, got 3",
        ),
        (
            lambda: call(
                "kv_store",
                {
                    "head_dim": 8,
                    "n_head_kv": 1,
                    "block_size": 16,
                    "kv_dtype": "f32",
                    "dtype": "f32",
                },
                k=_rows(1, 8),
                v=_rows(1, 8),
                slot_mapping=np.array([48], np.int32),
                kv_cache=_rows(3, 1, 16, 16),
            ),
            "kv_store: expected slots below 48, got 48",
        ),
        (
            lambda: _attend(seqused=np.array([17], np.int32)),
            "expected a block table of at least 2 pages for 17 tokens, got 1",
        ),
        (
            lambda: call("add", {"n": 4, "dtype": "f32"}, a=_rows(1, 4)),
            "operand 1: expected a tensor, got none",
        ),
        (
            lambda: call("sample_temp", {"n_vocab": 4}, logits=_rows(1, 4)),
            "sampling: expected every operand, got an absent one",
        ),
    ],
)
def test_operands_that_make_no_sense_are_named(run: object, text: str) -> None:
    """A wrong operand is a KernelError with both sides, never a crash or a guess."""
    assert callable(run)
    with pytest.raises(KernelError) as error:
        run()
    assert text in str(error.value)
    assert error.value.status < 0
