"""The tensor types of GGUF that are read, and the encodings they are.

The layout facts are those of the public ggml library; see ``gguf_blocks`` for the bytes.
"""

from dataclasses import dataclass

from radiance_abi.encoding import Encoding, affine, plain


@dataclass(frozen=True, slots=True)
class GgufType:
    """One tensor type.

    Args:
        id: GGUF's number of it.
        name: the name ggml gives it.
        block: elements of one block.
        block_bytes: stored bytes of one block.
        encoding: what a tensor of this type is.
    """

    id: int
    name: str
    block: int
    block_bytes: int
    encoding: Encoding

    def row_bytes(self, cols: int) -> int:
        """Return the stored bytes of a row whose columns the block divides."""
        return cols // self.block * self.block_bytes


FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 25: "IQ4_NL", 30: "IQ4_XS", 32: "BF16",
    38: "MXFP4",
}  # fmt: skip
"""What people call a file by its ``general.file_type``: the type of most of its tensors."""
_F16_32 = ("f16", 1, 32)
_F16_256 = ("f16", 1, 256)
_CODEBOOK = ("i8", 1, 16)


def _types() -> tuple[GgufType, ...]:
    plains = (
        (0, "F32", 4, "f32"),
        (1, "F16", 2, "f16"),
        (24, "I8", 1, "i8"),
        (25, "I16", 2, "i16"),
        (26, "I32", 4, "i32"),
        (27, "I64", 8, "i64"),
        (28, "F64", 8, "f64"),
        (30, "BF16", 2, "bf16"),
    )
    fine = [("u4", 1, 16), _F16_256]
    nested = [("u6", 1, 32), _F16_256]
    return (
        *(GgufType(id_, name, 1, size, plain(d)) for id_, name, size, d in plains),
        GgufType(2, "Q4_0", 32, 18, affine("i4", _F16_32)),
        GgufType(3, "Q4_1", 32, 20, affine("u4", _F16_32, min=_F16_32)),
        GgufType(6, "Q5_0", 32, 22, affine("i5", _F16_32)),
        GgufType(7, "Q5_1", 32, 24, affine("u5", _F16_32, min=_F16_32)),
        GgufType(8, "Q8_0", 32, 34, affine("i8", _F16_32)),
        GgufType(10, "Q2_K", 256, 84, affine("u2", fine, min=fine)),
        GgufType(11, "Q3_K", 256, 110, affine("i3", [("i6", 1, 16), _F16_256])),
        GgufType(12, "Q4_K", 256, 144, affine("u4", nested, min=nested)),
        GgufType(13, "Q5_K", 256, 176, affine("u5", nested, min=nested)),
        GgufType(14, "Q6_K", 256, 210, affine("i6", [("i8", 1, 16), _F16_256])),
        GgufType(20, "IQ4_NL", 32, 18, affine("u4", _F16_32, table=_CODEBOOK)),
        GgufType(23, "IQ4_XS", 256, 136, affine("u4", [("i6", 1, 32), _F16_256], table=_CODEBOOK)),
        GgufType(39, "MXFP4", 32, 17, affine("fp4_e2m1", ("e8m0", 1, 32))),
    )


TYPES = {kind.id: kind for kind in _types()}
"""The types that are read, by GGUF's number."""

OTHER_TYPES = {
    4: "Q4_2",
    5: "Q4_3",
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    40: "NVFP4",
    41: "Q1_0",
}
"""Types that exist and are not read; named so that a refusal can say which one it is."""


def supported_names() -> str:
    """Return the names of the types that are read, for messages."""
    return ", ".join(row.name for row in TYPES.values())
