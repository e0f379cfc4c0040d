"""The contract between the core and its plugins; a plugin imports nothing else of radiance."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from radiance_abi.architectures import (
        Architecture,
        Context,
        Graph,
        Limits,
        Raw,
        Source,
        concat,
        copy,
    )
    from radiance_abi.encoding import Encoding, Plane, affine, plain
    from radiance_abi.errors import (
        AbiError,
        ConfigurationError,
        EncodingError,
        KernelError,
        RadianceError,
    )
    from radiance_abi.hooks import hookimpl
    from radiance_abi.kernels import (
        ABI_VERSION,
        Axis,
        Call,
        Constraint,
        Geometry,
        Kernel,
        KernelLibrary,
        Layout,
        div,
        eq,
        ge,
        isin,
        le,
    )
    from radiance_abi.ops import OpSchema, parse_schema
    from radiance_abi.quantizers import Option, Quantizer, WeightInfo
    from radiance_abi.tensor import Tensor

__all__ = [
    "ABI_VERSION",
    "AbiError",
    "Architecture",
    "Axis",
    "Call",
    "ConfigurationError",
    "Constraint",
    "Context",
    "Encoding",
    "EncodingError",
    "Geometry",
    "Graph",
    "Kernel",
    "KernelError",
    "KernelLibrary",
    "Layout",
    "Limits",
    "OpSchema",
    "Option",
    "Plane",
    "Quantizer",
    "RadianceError",
    "Raw",
    "Source",
    "Tensor",
    "WeightInfo",
    "affine",
    "concat",
    "copy",
    "div",
    "eq",
    "ge",
    "hookimpl",
    "isin",
    "le",
    "parse_schema",
    "plain",
]

_HOMES = {
    "architectures": "Architecture Context Graph Limits Raw Source concat copy",
    "encoding": "Encoding Plane affine plain",
    "errors": "AbiError ConfigurationError EncodingError KernelError RadianceError",
    "hooks": "hookimpl",
    "kernels": "ABI_VERSION Axis Call Constraint Geometry Kernel KernelLibrary Layout"
    " div eq ge isin le",
    "ops": "OpSchema parse_schema",
    "quantizers": "Option Quantizer WeightInfo",
    "tensor": "Tensor",
}
"""Where each name is at home: a process that needs the errors alone has no use for numpy."""


def __getattr__(name: str) -> object:
    """Import a name where it is at home, the first time that it is asked for."""
    home = next((home for home, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value
