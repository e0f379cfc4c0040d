"""Tensors across libraries: one buffer, the right type, and a life that ends."""

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

from radiance_abi import Tensor
from radiance_abi import tensor as module

torch = pytest.importorskip("torch")

TYPES = {
    "f32": (np.float32, torch.float32),
    "f16": (np.float16, torch.float16),
    "bf16": (ml_dtypes.bfloat16, torch.bfloat16),
    "i8": (np.int8, torch.int8),
    "u8": (np.uint8, torch.uint8),
    "i32": (np.int32, torch.int32),
    "f64": (np.float64, torch.float64),
}


def made(name: str, shape: tuple[int, ...] = (3, 4)) -> np.ndarray:
    rng = np.random.default_rng()
    return rng.integers(0, 100, shape).astype(TYPES[name][0])


@pytest.mark.parametrize("name", TYPES)
def test_torch_sees_the_same_memory(name: str) -> None:
    """Values, type and extents agree, and a write on either side shows on the other."""
    array = made(name)
    t = torch.from_dlpack(Tensor(array, name))
    assert t.dtype == TYPES[name][1]
    assert tuple(t.shape) == (3, 4)
    assert t.double().tolist() == array.astype(np.float64).tolist()
    t[1, 2] = 7
    assert float(array[1, 2]) == 7
    array[2, 3] = 9
    assert float(t[2, 3]) == 9
    assert t.data_ptr() == array.ctypes.data


@pytest.mark.parametrize("name", [n for n in TYPES if n != "bf16"])
def test_numpy_sees_the_same_memory(name: str) -> None:
    """Numpy imports the types that it has itself, without a copy and writable."""
    array = made(name)
    other = np.from_dlpack(Tensor(array, name))
    other[0, 0] = 5
    assert float(array[0, 0]) == 5


def test_numpy_gets_wide_types_by_name() -> None:
    """bf16 and fp8 are arrays of ml_dtypes; bits held as bytes are viewed, not converted."""
    bits = np.array([[0x3F80, 0x4000]], np.uint16)
    t = Tensor(bits, "bf16")
    assert t.numpy().dtype == ml_dtypes.bfloat16
    assert t.numpy().astype(float).tolist() == [[1.0, 2.0]]
    assert torch.from_dlpack(t).tolist() == [[1.0, 2.0]]
    assert t.shape == (1, 2)


@pytest.mark.parametrize("name", ["f32", "bf16"])
def test_views_keep_their_strides(name: str) -> None:
    """Columns of a wider buffer arrive as a strided tensor over it."""
    array = made(name, (5, 8))
    view = array[1:4, 2:6]
    t = torch.from_dlpack(Tensor(view, name))
    assert t.stride() == (8, 1)
    assert t.double().tolist() == view.astype(np.float64).tolist()
    t[0, 0] = 3
    assert float(array[1, 2]) == 3


def test_read_only_memory_stays_so() -> None:
    """A consumer that can be told is told, one that cannot is refused."""
    array = made("bf16")
    array.flags.writeable = False
    t = Tensor(array, "bf16")
    with pytest.raises(BufferError, match=r"tensor: expected a consumer of DLPack 1\.0 or later"):
        t.__dlpack__()
    capsule = t.__dlpack__(max_version=(1, 0))
    (kept,) = [k for k in module._kept.values() if k[1] is array]
    assert kept[0].flags == 1  # type: ignore[attr-defined]
    del capsule
    assert t.__dlpack__(copy=True) is not None
    gc.collect()


def test_a_copy_is_apart() -> None:
    """copy=True gives memory of its own."""
    array = made("bf16")
    array[0, 0] = 1
    t = torch.from_dlpack(Tensor(array, "bf16"), copy=True)
    t[0, 0] = 42
    assert float(array[0, 0]) == 1
    assert t.data_ptr() != array.ctypes.data


def test_only_the_host_is_served() -> None:
    """A request for another device is refused; the own device is the host."""
    t = Tensor(made("bf16"), "bf16")
    assert t.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match=r"expected the host \(1, 0\) as device, got \(2, 0\)"):
        t.__dlpack__(dl_device=(2, 0))


class Owned(np.ndarray):
    """An array that can be watched."""


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_memory_lives_as_long_as_its_last_reader(version: tuple[int, int] | None) -> None:
    """The consumer keeps the memory alive and lets go of it; so does a capsule nobody consumed."""
    array = made("bf16").view(Owned)
    alive = weakref.ref(array)
    capsule = Tensor(array, "bf16").__dlpack__(max_version=version)
    t = torch.utils.dlpack.from_dlpack(capsule)
    expected = array.astype(float).tolist()
    del array, capsule
    gc.collect()
    assert alive() is not None
    assert t.double().tolist() == expected
    del t
    gc.collect()
    assert alive() is None

    array = made("bf16").view(Owned)
    alive = weakref.ref(array)
    capsule = Tensor(array, "bf16").__dlpack__(max_version=version)
    del array
    gc.collect()
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None
