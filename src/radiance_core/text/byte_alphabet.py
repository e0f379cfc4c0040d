"""The printable alphabet that byte-level BPE vocabularies spell bytes in.

A byte that prints in Latin-1 stands for itself; the other 68 bytes take the code points from
U+0100 on, in byte order. Source: the GPT-2 paper's reversible byte mapping, used by every
byte-level vocabulary since.
"""

from collections.abc import Mapping
from types import MappingProxyType


def _alphabet() -> dict[str, int]:
    """Map each of the 256 characters of the alphabet to its byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return {chr(byte if byte in printable else next(spare)): byte for byte in range(256)}


BYTE_OF_CHAR: Mapping[str, int] = MappingProxyType(_alphabet())


def spelled_bytes(text: str) -> bytes:
    """Return the bytes that a byte-level token spells.

    A token with a character outside the alphabet was never made of bytes, so its own UTF-8 is
    what it stands for (the same rule as the public byte-level decoder).
    """
    try:
        return bytes([BYTE_OF_CHAR[char] for char in text])
    except KeyError:
        return text.encode("utf-8", "replace")
