"""Parse C declarations once, where they are written, and not at every start.

cffi's parser takes a tenth of a second for the contract's header. What it finds is written down
as a module, ``parsed_header.py``, which is imported in a millisecond and refused when the header
has changed since.
"""

import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from radiance_abi.native.header import EXPORTS, declarations, digest, include_folder

CONTRACT = "radiance_abi.native.parsed_header"
_NAME = "parsed_header.py"
_TOP = '''"""What cffi makes of {name}; written by: {command}."""

SHA256 = "{digest}"
'''


def write_parsed(header: Path | None = None) -> Path:
    """Parse a header and write the module; return where it lies.

    Args:
        header: a header that includes the contract's, whose module goes beside it; None for the
            contract's own.
    """
    path = Path(__file__).with_name(_NAME) if header is None else header.with_name(_NAME)
    path.write_text(module_text(header), encoding="utf-8")
    return path


def module_text(header: Path | None = None) -> str:
    """Return the text of the module; see ``write_parsed``."""
    contract = (include_folder() / "radiance_abi.h").read_text(encoding="utf-8")
    declared = declarations(contract) + EXPORTS
    made = _parsed(declared, CONTRACT)
    name = "radiance_abi.h"
    if header is not None:
        declared, name = declarations(header.read_text(encoding="utf-8")), header.name
        made = _parsed(declared, header.stem, made)
    command = f"python -m radiance_abi parse{'' if header is None else f' {name}'}"
    top = _TOP.format(name=name, command=command, digest=digest(declared))
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / _NAME
        with redirect_stdout(StringIO()):  # it says what it writes
            made.emit_python_code(str(written))
        return top + written.read_text(encoding="utf-8").replace("# auto-generated file\n", "")


def _parsed(declared: str, module: str, base: Any = None) -> Any:
    import cffi

    made = cffi.FFI()
    if base is not None:
        made.include(base)
    made.cdef(declared)
    made.set_source(module, None)
    return made
