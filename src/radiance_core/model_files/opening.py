"""Which reader a path needs."""

import stat
from pathlib import Path

from radiance_core.model_files.checkpoint import Checkpoint
from radiance_core.model_files.errors import ModelFileError
from radiance_core.model_files.gguf import GgufCheckpoint
from radiance_core.model_files.mapping import MappedFile


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Open a GGUF file (or the first of a split one), a safetensors file, or a checkpoint folder.

    Only heads are read here; weights are mapped and come in as they are read.

    Raises:
        ModelFileError: nothing there, another format, or a malformed file.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as err:
        raise ModelFileError(path, f"expected a model file or folder, got: {err}") from err
    if path.suffix == ".gguf" and not stat.S_ISDIR(mode):
        return GgufCheckpoint(path)
    if path.suffix == ".safetensors" or stat.S_ISDIR(mode):
        from radiance_core.model_files.safetensors import SafetensorsCheckpoint

        return SafetensorsCheckpoint(path)
    # Blobs of download caches have no suffix; the magic tells.
    if stat.S_ISREG(mode) and MappedFile(path).raw[:4] == b"GGUF":
        return GgufCheckpoint(path)
    raise ModelFileError(
        path, f"expected a .gguf or .safetensors file or a folder, got {path.suffix or 'no suffix'}"
    )
