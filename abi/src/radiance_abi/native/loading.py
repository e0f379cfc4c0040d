"""Open a shared object, check that it keeps the contract, make a KernelLibrary of its tables."""

import importlib.resources
import re
import threading
from pathlib import Path
from typing import Any

from radiance_abi.errors import AbiError
from radiance_abi.kernels import ABI_VERSION, KernelLibrary
from radiance_abi.native.elf import check_shared_object
from radiance_abi.native.header import ffi
from radiance_abi.native.rows import kernels
from radiance_abi.native.status import status_name
from radiance_abi.native.tables import copied, string
from radiance_abi.ops import OpSchema, parse_schema

_UNSUPPORTED = -18
_REFERENCE = 1
_TEXT_BYTES = 1024
_MOST_ROWS = 1 << 16

_lock = threading.Lock()
_opened: dict[Path, tuple[Any, KernelLibrary]] = {}


def library(package: str, filename: str) -> KernelLibrary:
    """Load the shared object ``filename`` that lies in the folder of ``package``.

    Raises:
        AbiError: the file is absent, no library for this machine, or breaks the contract.
    """
    return load(Path(str(importlib.resources.files(package).joinpath(filename))))


def load(path: Path) -> KernelLibrary:
    """Load a shared object once for the life of the process.

    A library whose ``open`` declines this machine has no kernels; ``declined`` says why.

    Raises:
        AbiError: the file is absent, no library for this machine, or breaks the contract.
    """
    path = path.resolve()
    with _lock:
        if path not in _opened:
            check_shared_object(path)
            handle = _dlopen(path)
            _opened[path] = (handle, _read(path, handle))
        return _opened[path][1]


def _dlopen(path: Path) -> Any:
    try:
        return ffi().dlopen(str(path), ffi().RTLD_NOW | ffi().RTLD_LOCAL)
    except OSError as err:
        raise AbiError(
            f"{path}: expected a loadable shared object, the loader says: {err}; "
            f"build it again on this system or install what it needs"
        ) from err


def _symbol(path: Path, handle: Any, name: str) -> Any:
    try:
        return getattr(handle, name)
    except ffi().error as err:
        raise AbiError(
            f"{path}: expected the exported function {name}, got a library without it; "
            f"put RAD_LIBRARY from radiance_abi.h into one of its files"
        ) from err


def _read(path: Path, handle: Any) -> KernelLibrary:
    built_for = int(_symbol(path, handle, "rad_abi_version")())
    if built_for != ABI_VERSION:
        raise AbiError(
            f"{path}: expected contract version {ABI_VERSION}, got a library built for "
            f"{built_for}; install a build of this plugin for version {ABI_VERSION}, or a "
            f"radiance that speaks {built_for}"
        )
    found = _symbol(path, handle, "rad_library")()
    if found == ffi().NULL:
        raise AbiError(
            f"{path}: expected rad_library to return its tables, got NULL; return a static "
            f"RadLibrary"
        )
    tables = copied("RadLibrary", found, int(found.struct_bytes), "num_kernels", str(path))
    name = string(tables.name, f"{path}: name of the library")
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise AbiError(
            f"{path}: expected a library name of lower-case letters, digits and '_', got {name!r}; "
            f"correct RadLibrary.name"
        )
    version = string(tables.version, f"{path}: version of {name}") if tables.version else "0"
    target = string(tables.target, f"{path}: target of {name}") if tables.target else "host"
    status, text = _open(tables)
    if status == _UNSUPPORTED:
        return KernelLibrary(name, version, target, declined=text or "no reason given")
    if status != 0:
        raise AbiError(
            f"{path}: expected open of {name} to return RAD_OK or RAD_UNSUPPORTED, got {status} "
            f"({status_name(status)}): {text or 'no text'}; see the plugin's documentation"
        )
    lines, schemas = _schemas(path, tables)
    return KernelLibrary(
        name,
        version,
        target,
        kernels=kernels(tables, schemas, f"{path}: library {name}"),
        schemas=lines,
        reference=bool(tables.flags & _REFERENCE),
        about=text,
        abi_version=built_for,
    )


def _open(tables: Any) -> tuple[int, str]:
    if not tables.open:
        return 0, ""
    text = ffi().new("char[]", _TEXT_BYTES)
    status = int(tables.open(text, _TEXT_BYTES))
    return status, ffi().string(text, _TEXT_BYTES - 1).decode(errors="replace").strip()


def _schemas(path: Path, tables: Any) -> tuple[tuple[str, ...], dict[str, OpSchema]]:
    count = int(tables.num_schemas)
    if not 0 <= count <= _MOST_ROWS or (count and not tables.schemas):
        raise AbiError(
            f"{path}: expected num_schemas lines in schemas, got {count} at {tables.schemas}; "
            f"set both or neither"
        )
    lines = tuple(string(tables.schemas[i], f"{path}: schema {i}") for i in range(count))
    schemas: dict[str, OpSchema] = {}
    for i, line in enumerate(lines):
        try:
            schema = parse_schema(line)
        except AbiError as err:
            raise AbiError(
                f"{path}: schema {i}: {err}; correct the line in RadLibrary.schemas"
            ) from err
        if schemas.setdefault(schema.op, schema) is not schema:
            raise AbiError(f"{path}: schema {i}: op {schema.op} is declared twice; remove one line")
    return lines, schemas
