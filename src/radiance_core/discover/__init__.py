"""Discover: find plugins by entry point, import each in its own try, and let none half-register."""

from radiance_core.discover.entry_points import (
    ARCHITECTURES,
    KERNELS,
    QUANTIZERS,
    Found,
    Offered,
    PluginError,
    Refused,
    architectures,
    core_version,
    installed,
    load,
    offered,
)
from radiance_core.discover.libraries import Libraries, kernel_libraries, serving

__all__ = [
    "ARCHITECTURES",
    "KERNELS",
    "QUANTIZERS",
    "Found",
    "Libraries",
    "Offered",
    "PluginError",
    "Refused",
    "architectures",
    "core_version",
    "installed",
    "kernel_libraries",
    "load",
    "offered",
    "serving",
]
