"""A strided view of memory with a radiance dtype, exchanged through DLPack without a copy."""

import ctypes
from typing import Any

import numpy as np

from radiance_abi.dtypes import DType, dtype


class Tensor:
    """A view of ``base`` with a dtype that numpy itself may lack.

    Args:
        base: numpy array whose memory is shared; its itemsize equals that of ``dtype`` (sub-byte
            types are held as uint8 bytes).
        dtype: radiance dtype, by name or object.
    """

    __slots__ = ("base", "dtype")

    def __init__(self, base: np.ndarray, dtype_: DType | str) -> None:
        self.base = base
        self.dtype = dtype(dtype_) if isinstance(dtype_, str) else dtype_

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, in elements of ``base``."""
        return self.base.shape

    def numpy(self) -> np.ndarray:
        """Return a numpy array over the same memory (bf16 and fp8 through ml_dtypes)."""
        native = self.dtype.numpy
        if native is None or self.base.dtype == native:
            return self.base
        return self.base.view(native)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule over the same memory."""
        native = self.dtype.numpy
        if native is not None and native.kind in "fiub" and self.base.dtype == native:
            return self.base.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)
        if dl_device not in (None, (1, 0)):
            raise BufferError(f"tensor: expected the host (1, 0) as device, got {dl_device}")
        if copy:
            return Tensor(self.base.copy(), self.dtype).__dlpack__(max_version=max_version)
        versioned = max_version is not None and max_version[0] >= 1
        if not versioned and not self.base.flags.writeable:
            raise BufferError(
                "tensor: expected a consumer of DLPack 1.0 or later for memory that is read-only, "
                "got an older one; pass it a copy"
            )
        return _capsule(self, versioned=versioned)


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Legacy(ctypes.Structure):
    _fields_ = (("t", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("t", _DLTensor),
    )


_kept: dict[int, tuple[object, ...]] = {}


def _let_go(address: int) -> None:
    """Let go of what an exported tensor kept alive."""
    _kept.pop(address, None)


_release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_let_go)

_READ_ONLY = 1
# Prototypes of our own: those on ctypes.pythonapi are everyone's.
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_of_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _dropped(capsule: int) -> None:
    """Let go of a tensor whose capsule nobody consumed; a consumer renames the capsule."""
    for name in (b"dltensor", b"dltensor_versioned"):
        if _is_capsule(capsule, name):
            _let_go(_pointer_of_capsule(capsule, name))


_drop = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_dropped)


def _capsule(tensor: Tensor, *, versioned: bool) -> Any:
    base = tensor.base
    rank = base.ndim
    shape = (ctypes.c_int64 * max(rank, 1))(*base.shape)
    strides = (ctypes.c_int64 * max(rank, 1))(*(s // base.itemsize for s in base.strides))
    code, bits, lanes = tensor.dtype.dlpack
    managed: Any = _Versioned() if versioned else _Legacy()
    if versioned:
        managed.major, managed.minor = 1, 0
        managed.flags = 0 if base.flags.writeable else _READ_ONLY
    t = managed.t
    t.data, t.device_type, t.device_id, t.ndim = base.ctypes.data, 1, 0, rank
    t.code, t.bits, t.lanes = code, bits, lanes
    t.shape, t.strides, t.byte_offset = shape, strides, 0
    managed.deleter = ctypes.cast(_release, ctypes.c_void_p)
    address = ctypes.addressof(managed)
    name = b"dltensor_versioned" if versioned else b"dltensor"
    _kept[address] = (managed, base, shape, strides, name)
    return _new_capsule(address, name, ctypes.cast(_drop, ctypes.c_void_p))
