"""Kernel libraries written in C: load a shared object and turn its tables into kernel rows.

A plugin's whole entry point is usually::

    def kernels() -> KernelLibrary:
        return native.library(__package__, "libmine.so")
"""

from radiance_abi.native.header import cflags, declarations, ffi, include_folder, parsed
from radiance_abi.native.hooks import RelayoutCall
from radiance_abi.native.loading import library, load
from radiance_abi.native.rows import failed, relayout_call, schema_of
from radiance_abi.native.status import check, status_name

__all__ = [
    "RelayoutCall",
    "cflags",
    "check",
    "declarations",
    "failed",
    "ffi",
    "include_folder",
    "library",
    "load",
    "parsed",
    "relayout_call",
    "schema_of",
    "status_name",
]
