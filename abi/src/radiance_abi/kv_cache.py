"""How the numbers of a conversation cache are stored: the words that ``kv_dtype`` may have.

A plain word is a float dtype, and a slot of one head is its key and then its value. The other words
name packed forms: the slots of one page and head share one run of bytes,

    | codes of the keys | codes of the values | scales of the keys | scales of the values |

What a stored number stands for depends on its own token alone, so a page means the same to every
sequence that shares it, wherever their prompts were cut (ADR 0009). Codes lie slot by slot, or in
the words of four bytes that instructions for products of integers take (``Half.words``).

Settings name these words, so reading settings must not import numpy: dtypes are imported late.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from radiance_abi.errors import AbiError

GROUP: Final = 32
"""Consecutive numbers of a head that share a scale where codes are integers."""


def rotation(head_dim: int) -> int:
    """Return how many consecutive numbers of a head are rotated together: 32, or what divides it.

    Raises:
        AbiError: not even 8 do.
    """
    for count in (32, 16, 8):
        if head_dim % count == 0:
            return count
    raise AbiError(
        f"packed cache: expected a head_dim that is a multiple of 8, got {head_dim}; use f16 for "
        "this model"
    )


@dataclass(frozen=True, slots=True)
class Half:
    """How keys, or values, are packed.

    ``bits``: of one code. ``grouped``: integers with an f16 scale for each GROUP; otherwise E4M3
    codes with one power of two for the head. ``rotated``: it is a Walsh-Hadamard transform of
    groups of ``rotation(head_dim)`` numbers that is stored. ``words``: None where a slot's codes
    lie together; otherwise a word of four bytes holds consecutive numbers of one slot, and words of
    all slots lie side by side ("dims"), or one number of consecutive slots, and words of all
    numbers lie side by side ("slots"), which takes a block_size that is a multiple of 8::

        dims   [head_dim / 4][block_size][4]    byte b of a word is number 4i + b
        slots  [block_size / 4][head_dim][4]    byte b of a word is slot 4i + b; or of 4 bits,
               [block_size / 8][head_dim][4]    slot 8i + b and, in the high bits, slot 8i + 4 + b
    """

    bits: int
    grouped: bool
    rotated: bool
    words: Literal["dims", "slots"] | None = None

    @property
    def signed(self) -> bool:
        """Say whether integers are two's complement, and not from 0 on."""
        return self.words == "slots" and self.bits == 8

    def code_bytes(self, head_dim: int) -> int:
        """Return the bytes of one slot's codes."""
        return head_dim * self.bits // 8

    def scale_bytes(self, head_dim: int) -> int:
        """Return the bytes of one slot's scales."""
        return 2 * (head_dim // GROUP) if self.grouped else 1


@dataclass(frozen=True, slots=True)
class CacheDtype:
    """One word of ``kv_dtype``; ``halves`` are those of keys and values, None for a plain dtype."""

    name: str
    halves: tuple[Half, Half] | None = None

    @property
    def packed(self) -> bool:
        """Say whether a slot is bytes of codes and scales instead of plain numbers."""
        return self.halves is not None

    @property
    def element(self) -> str:
        """Return the dtype of a pool's elements."""
        return "u8" if self.packed else self.name

    def row(self, head_dim: int) -> int:
        """Return the elements that one slot of one head takes.

        Raises:
            AbiError: scales of the packed form do not divide the head.
        """
        return self.key_row(head_dim) + self.value_row(head_dim)

    def key_row(self, head_dim: int) -> int:
        """Return the elements of a slot's key."""
        return self._half(0, head_dim)

    def value_row(self, head_dim: int) -> int:
        """Return the elements of a slot's value."""
        return self._half(1, head_dim)

    def row_bytes(self, head_dim: int) -> tuple[int, int]:
        """Return the bytes of a slot's key and of its value."""
        from radiance_abi.dtypes import dtype

        item = dtype(self.element).bits // 8
        return self.key_row(head_dim) * item, self.value_row(head_dim) * item

    def _half(self, which: int, head_dim: int) -> int:
        if self.halves is None:
            return head_dim
        half = self.halves[which]
        if half.grouped and head_dim % GROUP:
            raise AbiError(
                f"kv_dtype {self.name}: expected a head_dim that is a multiple of {GROUP}, got "
                f"{head_dim}; use fp8 or a wider type for this model"
            )
        rotation(head_dim)
        return half.code_bytes(head_dim) + half.scale_bytes(head_dim)


_E4M3_KEY = Half(8, grouped=False, rotated=True)
_E4M3_VALUE = Half(8, grouped=False, rotated=False)
_I6_KEY, _I4_VALUE = Half(6, grouped=True, rotated=True), Half(4, grouped=True, rotated=True)
_WORD_KEY = Half(8, grouped=True, rotated=True, words="dims")
_WORD_VALUE = Half(8, grouped=True, rotated=False, words="slots")
_WORD_V4 = Half(4, grouped=True, rotated=True, words="slots")

CACHE_DTYPES: Final[Mapping[str, CacheDtype]] = MappingProxyType(
    {
        d.name: d
        for d in (
            CacheDtype("f32"),
            CacheDtype("bf16"),
            CacheDtype("f16"),
            CacheDtype("int8", (_WORD_KEY, _WORD_VALUE)),
            CacheDtype("fp8", (_E4M3_KEY, _E4M3_VALUE)),
            CacheDtype("k8_v4", (_WORD_KEY, _WORD_V4)),
            CacheDtype("fp8_v4", (_E4M3_KEY, _I4_VALUE)),
            CacheDtype("k6_v4", (_I6_KEY, _I4_VALUE)),
        )
    }
)
"""Every word by name, the widest first."""


def cache_dtype(name: str) -> CacheDtype:
    """Return the cache dtype of a name; one that the table lacks is a plain dtype.

    Raises:
        EncodingError: no dtype has that name.
    """
    from radiance_abi.dtypes import dtype

    return CACHE_DTYPES.get(name) or CacheDtype(dtype(name).name)
