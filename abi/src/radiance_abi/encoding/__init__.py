"""What stored weights are: schemes, planes, transforms, their spelling and their decoding."""

from radiance_abi.encoding.bits import pack, unpack
from radiance_abi.encoding.construction import affine, plain
from radiance_abi.encoding.decoding import check_planes, decode
from radiance_abi.encoding.model import Encoding, Plane, rows_and_cols

__all__ = [
    "Encoding",
    "Plane",
    "affine",
    "check_planes",
    "decode",
    "pack",
    "plain",
    "rows_and_cols",
    "unpack",
]
