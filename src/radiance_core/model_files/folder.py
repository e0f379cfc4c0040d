"""The folder of a safetensors checkpoint: which files it may name, and what is beside them."""

import re
from pathlib import Path
from typing import Any

from radiance_core.model_files.errors import ModelFileError
from radiance_core.model_files.json_text import MAX_JSON_BYTES, parse_object
from radiance_core.model_files.mapping import MappedFile

MAX_SIDE_BYTES = 1 << 28
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,254}")
MOST_NAMED = 12


def check_name(name: str, folder: Path, source: str) -> str:
    """Return a file name that stays inside its folder.

    Raises:
        ModelFileError: the name has a separator, starts with a dot, or is no plain file name.
    """
    if not _PLAIN_NAME.fullmatch(name):
        raise ModelFileError(
            folder, f"expected plain file names in {source}, got {name!r:.200}; it is not opened"
        )
    return name


def read_side_file(folder: Path, name: str, limit: int = MAX_SIDE_BYTES) -> bytes | None:
    """Return the bytes of a file of the folder, or None when there is none.

    Raises:
        ModelFileError: a name that leaves the folder, no regular file, or one over the limit.
    """
    path = folder / check_name(name, folder, "a request for a side file")
    if not has_file(folder, name):
        return None
    if path.stat().st_size == 0:
        return b""
    file = MappedFile(path)
    if file.size > limit:
        raise ModelFileError(path, f"expected at most {limit} bytes, got {file.size}")
    return bytes(file.raw)


def has_file(folder: Path, name: str) -> bool:
    """Say whether the folder has something of that name.

    Raises:
        ModelFileError: the folder may not be looked into.
    """
    try:
        return (folder / name).exists()
    except OSError as err:
        raise ModelFileError(folder / name, f"expected to look for it, got: {err}") from err


def read_config(folder: Path, *, required: bool) -> dict[str, Any]:
    """Return the parsed config.json, or {} when it is not required and not there."""
    raw = read_side_file(folder, "config.json", MAX_JSON_BYTES)
    if raw is None:
        if required:
            raise ModelFileError(
                folder,
                f"expected a config.json beside the weights, got none; {_instead(folder)}",
            )
        return {}
    return parse_object(raw, folder / "config.json", "config.json")


def _instead(folder: Path) -> str:
    """Say what to name in place of a folder that is no checkpoint."""
    try:
        found = sorted(path.name for path in folder.glob("*.gguf"))
    except OSError:
        found = []
    if not found:
        return "complete the download, or name the .gguf file itself"
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"name one of its GGUF files: {', '.join(found[:MOST_NAMED])}{more}"


def read_index(folder: Path) -> dict[str, str]:
    """Return tensor name -> file name as the index states it.

    Raises:
        ModelFileError: no weight_map of strings, or a name that leaves the folder.
    """
    path = folder / INDEX
    index = parse_object(read_side_file(folder, INDEX, MAX_JSON_BYTES) or b"", path, "the index")
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(
            path, f"expected weight_map as file names by tensor, got {type(weight_map).__name__}"
        )
    for name, file in weight_map.items():
        if not isinstance(file, str):
            raise ModelFileError(path, f"expected a file name, got {file!r:.100}", name)
        check_name(file, path, "weight_map")
    return weight_map
