"""Is a file a whole shared object for this machine? A cut-off one would end dlopen by a signal."""

import platform
import struct
from pathlib import Path

from radiance_abi.errors import AbiError

_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21, "s390x": 22}
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOAD = 1
_SHARED = 3


def check_shared_object(path: Path) -> None:
    """Check that ``path`` is a whole 64-bit little-endian ELF shared object for this processor.

    Raises:
        AbiError: it is absent, no shared object, cut off, or made for another processor.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            _check(path, size, file.read(65536))
    except OSError as err:
        raise AbiError(
            f"{path}: expected a shared object, got {err.strerror}; build the plugin's native "
            f"library or install its wheel again"
        ) from err


def _check(path: Path, size: int, start: bytes) -> None:
    if start[:4] != b"\x7fELF":
        raise AbiError(
            f"{path}: expected an ELF shared object, got a file that begins with {start[:4]!r}; "
            f"build it with -shared"
        )
    if len(start) < _HEADER.size:
        raise _cut_off(path, size, _HEADER.size)
    ident, kind, machine, _, _, phoff, shoff, _, _, phsize, phnum, shsize, shnum, _ = (
        _HEADER.unpack_from(start)
    )
    here = platform.machine()
    if ident[4:6] != b"\x02\x01" or machine != _MACHINES.get(here, machine):
        made_for = next((name for name, code in _MACHINES.items() if code == machine), str(machine))
        bits = {1: 32, 2: 64}.get(ident[4], 0)
        raise AbiError(
            f"{path}: expected a shared object for {here}, got one for {made_for} ({bits} bits); "
            f"install the plugin's wheel for this machine"
        )
    if kind != _SHARED:
        raise AbiError(
            f"{path}: expected an ELF shared object (type {_SHARED}), got type {kind}; "
            f"link it with -shared"
        )
    ends = [phoff + phsize * phnum, shoff + shsize * shnum]
    if phsize == _SEGMENT.size:
        for i in range(phnum):
            at = phoff + i * phsize
            if at + phsize <= len(start):
                segment = _SEGMENT.unpack_from(start, at)
                ends.append(segment[2] + segment[5] if segment[0] == _LOAD else 0)
    if max(ends) > size:
        raise _cut_off(path, size, max(ends))


def _cut_off(path: Path, size: int, needed: int) -> AbiError:
    return AbiError(
        f"{path}: expected at least {needed} bytes of shared object, got {size}; the file is cut "
        f"off, install the plugin again"
    )
