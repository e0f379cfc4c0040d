"""Read C tables of a size that the library states."""

from typing import Any

from radiance_abi.errors import AbiError
from radiance_abi.native.header import ffi

MOST_BYTES = 4096
"""No struct of the contract is larger; a larger size is a mistake, not a newer contract."""


def copied(struct: str, source: Any, struct_bytes: int, last_needed: str, subject: str) -> Any:
    """Return this core's own copy of a struct, zero where the library's struct ends earlier.

    Args:
        struct: name of the C type.
        source: pointer to the library's struct.
        struct_bytes: size that the library states.
        last_needed: the field up to which a struct must reach.
        subject: where it stands, for the message.

    Raises:
        AbiError: the stated size cannot be true.
    """
    least = ffi().offsetof(struct, last_needed) + ffi().sizeof(
        dict(ffi().typeof(struct).fields)[last_needed].type
    )
    if not least <= struct_bytes <= MOST_BYTES:
        raise AbiError(
            f"{subject}: expected struct_bytes of {struct} between {least} and {MOST_BYTES}, "
            f"got {struct_bytes}; set it to sizeof({struct})"
        )
    made = ffi().new(f"{struct} *")
    ffi().memmove(made, source, min(struct_bytes, ffi().sizeof(struct)))
    return made


def string(value: Any, subject: str) -> str:
    """Return a C string of at most 65536 bytes.

    Raises:
        AbiError: it is NULL or not UTF-8.
    """
    if value == ffi().NULL:
        raise AbiError(f"{subject}: expected text, got NULL; set the field")
    raw: bytes = ffi().string(value, 1 << 16)
    try:
        return raw.decode()
    except UnicodeDecodeError as err:
        raise AbiError(
            f"{subject}: expected UTF-8, got {raw[:32]!r}; save the source as UTF-8"
        ) from err
