"""The C header as seen from Python: where it lies, and its declarations for cffi.

The declarations are cut out of ``radiance_abi.h`` itself. What cffi's parser makes of them is kept
in ``parsed_header.py``, with their digest, so that a copy that went stale is refused.
"""

import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from radiance_abi.errors import AbiError

EXPORTS = "int32_t rad_abi_version(void); const RadLibrary *rad_library(void);"


def include_folder() -> Path:
    """Return the folder that holds ``radiance_abi.h``."""
    return Path(__file__).resolve().parents[1] / "include"


def cflags() -> str:
    """Return the compiler flags with which a C or C++ file finds the header."""
    return f"-I{include_folder()}"


def declarations(header: str) -> str:
    """Return the part of the header's text that cffi parses: types, enums and functions."""
    text = re.sub(r"/\*.*?\*/", " ", header, flags=re.DOTALL)
    text = text.replace("\\\n", " ")
    # The C++ side of a conditional goes, its #else stays; other directives are guards or macros.
    text = re.sub(r"#ifdef __cplusplus\n(.*?)#endif", _c_side, text, flags=re.DOTALL)
    text = re.sub(r"(?m)^\s*#.*$", "", text)
    return re.sub(r"static inline [^{]+\{[^{}]*\}", "", text)


def _c_side(match: re.Match[str]) -> str:
    return match.group(1).partition("#else\n")[2]


def digest(declared: str) -> str:
    """Return the digest of declarations, which the module made of them carries."""
    return hashlib.sha256(declared.encode()).hexdigest()


def parsed(declared: str, module: Any, command: str) -> Any:
    """Return the cffi instance of a module that ``native.parsing`` wrote.

    Args:
        declared: the declarations as they are now.
        module: the module.
        command: what writes it anew.

    Raises:
        AbiError: it was written from other declarations.
    """
    if digest(declared) != module.SHA256:
        raise AbiError(
            f"{module.__file__}: expected what cffi makes of the header as it is now, got what it "
            f"made of another; write it anew: {command}"
        )
    return module.ffi


@lru_cache(maxsize=1)
def ffi() -> Any:
    """Return the cffi instance that knows the contract's structs.

    Raises:
        AbiError: the header was changed and not parsed anew.
    """
    from radiance_abi.native import parsed_header

    header = (include_folder() / "radiance_abi.h").read_text(encoding="utf-8")
    return parsed(declarations(header) + EXPORTS, parsed_header, "python -m radiance_abi parse")
