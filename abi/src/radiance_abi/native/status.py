"""Status codes of the C contract and the error that a negative one becomes."""

import re
from collections.abc import Mapping
from functools import lru_cache

from radiance_abi.errors import KernelError
from radiance_abi.native.header import include_folder


@lru_cache(maxsize=1)
def _names() -> dict[int, str]:
    """Read the negative constants of the header."""
    header = (include_folder() / "radiance_abi.h").read_text(encoding="utf-8")
    return {int(code): word for word, code in re.findall(r"\bRAD_([A-Z]+) = (-\d+)", header)}


def status_name(status: int) -> str:
    """Return the header's name for a negative status, such as ``SHAPE`` for -1."""
    return _names().get(status, "not a code of the contract")


def spell_geometry(params: Mapping[str, object]) -> str:
    """Spell params for a message: ``M=4 N=64 dtype=bf16``."""
    return " ".join(f"{key}={value}" for key, value in params.items() if value is not None)


def check(status: int, op: str, kernel: str, hook: str, params: Mapping[str, object]) -> None:
    """Raise when a hook's status is negative.

    Raises:
        KernelError: names op, kernel, hook, status and geometry.
    """
    if status < 0:
        raise failure(status, op, kernel, hook, params)


def failure(
    status: int, op: str, kernel: str, hook: str, params: Mapping[str, object]
) -> KernelError:
    """Return the error for a status; see ``check``."""
    return KernelError(
        f"{op}: expected kernel {kernel} to do {hook}, got status {status} "
        f"({status_name(status)}) at {spell_geometry(params)}; report it to the author of the "
        f"kernel",
        status,
    )
