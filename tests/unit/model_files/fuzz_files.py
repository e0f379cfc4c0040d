"""Random damage to small model files; run ``python -m tests.unit.model_files.fuzz_files SECONDS``.

Every case is a valid file with a few mutations. Whatever they are, opening it and reading all its
tensors must end well or in a ModelFileError, within a few megabytes.
"""

import json
import random
import struct
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from radiance_abi.encoding import check_planes, decode
from radiance_core.model_files import ModelFileError, open_checkpoint

from .block_packer import BLOCK_TYPES, random_blocks
from .gguf_writer import Gguf
from .quark_config import quark_config
from .safetensors_writer import entry, raw_file

PEAK_BYTES = 8 << 20
WORDS = [0, 1, 2, 31, 32, 33, 255, 256, 65535, 65536]
WORDS += [edge + delta for edge in (2**31, 2**32, 2**63) for delta in (-32, -1, 0, 1, 32)]
WORDS += [2**64 - 1, 2**64 - 32, 2**62, 2**40]
VALUES: list[Any] = [None, True, -1, 0, 1.5, 2**31, 2**63, 2**64, 10**400, "", "I8", "F64", [], {}]
VALUES += [[0, 0], [2**63], [[]], "../x", {"dtype": "I8"}]


def gguf_file(rng: random.Random) -> Gguf:
    """Return a valid file with every value type and a few block types."""
    file = Gguf().key("general.architecture", "str", "llama").key("general.alignment", "u32", 32)
    file.key("tokenizer.ggml.tokens", "[str]", ["a", "bc", "déf"])
    file.key("tokenizer.ggml.scores", "[f32]", [0.0, 1.0, 2.0])
    file.key("x.flag", "bool", True).key("x.long", "i64", -5).key("x.list", "[u16]", [1, 2])
    for name in rng.sample(sorted(BLOCK_TYPES), 3):
        id_, kind = BLOCK_TYPES[name]
        blocks = random_blocks(name, 2, np.random.default_rng(rng.getrandbits(32)))
        file.tensor(f"{name}.weight", (kind.block, 2), id_, blocks.tobytes())
    return file.tensor("plain", (4, 3), 0, bytes(48))


def damaged_gguf(rng: random.Random) -> bytes:
    """Return a file damaged in its structure, its bytes, or both."""
    file = gguf_file(rng)
    for _ in range(rng.choice([0, 0, 1, 2])):
        entry_ = rng.choice(file.tensors)
        match rng.randrange(6):
            case 0:
                entry_.dims = [rng.choice([*WORDS, *entry_.dims]) for _ in entry_.dims]
            case 1:
                entry_.offset = rng.choice(WORDS)
            case 2:
                entry_.kind = rng.randrange(45)
            case 3:
                entry_.num_dims = rng.choice(WORDS[:14])
            case 4:
                entry_.name = rng.choice(file.tensors).name
            case _:
                file.keys.insert(rng.randrange(len(file.keys)), rng.choice(file.keys))
    return damaged_bytes(rng, file.build())


def damaged_safetensors(rng: random.Random) -> bytes:
    """Return a file damaged in its JSON, its bytes, or both."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    header["w"] = entry("F32", [3, 4], 0, 48)
    header["x"] = entry("F8_E4M3", [130, 2], 48, 308)
    header["x_scale_inv"] = entry("F32", [2, 1], 308, 316)
    header["y"] = entry("BF16", [], 316, 318)
    header["z"] = entry("U8", [2, 3, 32], 318, 510)
    header["z_scale"] = entry("U8", [2, 3, 2], 510, 522)
    for _ in range(rng.choice([0, 1, 2])):
        name = rng.choice(list(header))
        value = rng.choice([*VALUES, *header.values()])
        if isinstance(header[name], dict) and rng.random() < 0.7:
            field = rng.choice(["dtype", "shape", "data_offsets"])
            header[name] = {**header[name], field: value}
        else:
            header[name] = value
    text = json.dumps(header).encode()
    if rng.random() < 0.3:
        return raw_file(damaged_bytes(rng, text), bytes(522))
    return damaged_bytes(rng, raw_file(text, bytes(522)))


def damaged_config(rng: random.Random) -> bytes | None:
    """Return a config.json that names Quark, whole or damaged, or None for none."""
    if rng.random() < 0.3:
        return None
    config = quark_config()
    for _ in range(rng.choice([0, 0, 1, 2])):
        at: Any = config
        while True:
            key = rng.choice(list(at))
            if not isinstance(at[key], dict) or not at[key] or rng.random() < 0.3:
                at[key] = deepcopy(rng.choice(VALUES))
                break
            at = at[key]
    text = json.dumps(config).encode()
    return damaged_bytes(rng, text) if rng.random() < 0.2 else text


def damaged_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with zero to three flips, words, cuts, copies or insertions."""
    raw = bytearray(data)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        at = rng.randrange(max(1, len(raw)))
        match rng.randrange(6):
            case 0:
                raw[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                raw[at : at + 8] = struct.pack("<Q", rng.choice(WORDS))
            case 2:
                raw[at : at + 4] = struct.pack("<I", rng.choice(WORDS) & 0xFFFFFFFF)
            case 3:
                del raw[at : at + rng.choice([1, 8, 64, 4096])]
            case 4:
                raw[at:at] = raw[at : at + rng.choice([1, 8, 64])]
            case _:
                raw[at:at] = rng.randbytes(rng.choice([1, 4, 8]))
    return bytes(raw)


def run_case(seed: int, folder: Path) -> str:
    """Run one case; returns ``opened`` or ``refused``, raises on anything else.

    One case in eight is also held to its memory, which costs several times its time.
    """
    rng = random.Random(seed)
    is_gguf = rng.random() < 0.6
    data = damaged_gguf(rng) if is_gguf else damaged_safetensors(rng)
    path = folder / ("m.gguf" if is_gguf else "m.safetensors")
    path.write_bytes(data)
    config = None if is_gguf else damaged_config(rng)
    (folder / "config.json").unlink(missing_ok=True)
    if config is not None:
        (folder / "config.json").write_bytes(config)
    if seed % 8:
        return outcome(path)
    tracemalloc.start()
    try:
        result = outcome(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > PEAK_BYTES:
        raise MemoryError(f"{peak} bytes for a file of {len(data)}")
    return result


def outcome(path: Path) -> str:
    """Open and read a file; the one error allowed must name it in printable text."""
    try:
        return read_all(path)
    except ModelFileError as err:
        text = str(err).encode().decode()
        if str(path) not in text and str(path.with_name("config.json")) not in text:
            raise ValueError(f"the error does not name the file: {err}") from err
        return "refused"


def read_all(path: Path) -> str:
    """Open a file and read and decode everything in it."""
    checkpoint = open_checkpoint(path)
    for name, info in checkpoint.tensors.items():
        planes = checkpoint.read(name)
        check_planes(info.encoding, planes, info.shape)
        with np.errstate(all="ignore"):
            decode(info.encoding, planes, info.shape)
        checkpoint.release(name)
    checkpoint.close()
    return "opened"


def run(seeds: Any, seconds: float, at_least: int = 0) -> Counter[str]:
    """Run cases until the seeds or the seconds are used up; returns how they ended.

    A slow machine takes longer over so many as ``at_least``.
    """
    results: Counter[str] = Counter()
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            try:
                results[run_case(seed, Path(folder))] += 1
            except Exception as err:
                raise AssertionError(f"seed {seed}: {type(err).__name__}: {err}") from err
            if time.monotonic() > end and results.total() >= at_least:
                break
    return results


if __name__ == "__main__":
    draws = iter(lambda: random.SystemRandom().getrandbits(48), None)
    print(run(draws, float(sys.argv[1]) if len(sys.argv) > 1 else 60))
