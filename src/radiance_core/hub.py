"""A model by its hub id: what of a repository is the model, from the cache first, then the hub.

``owner/name`` takes the safetensors of a repository, or its one GGUF file; ``owner/name:Q4_K_M``
takes the GGUF file whose name holds that. What is cached whole is used as it is and never replaced.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from radiance_abi.errors import ConfigurationError

FOLDER_FILES = ("*.safetensors", "*.json", "*.jinja")
ANSWER_S = 4.0
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def choose(names: Iterable[str], wanted: str, where: str) -> str | None:
    """Return the GGUF file that a repository's model is, or None when it is its safetensors.

    Args:
        names: files of the repository.
        wanted: part of a GGUF file's name, or empty.
        where: the id, for error texts.

    Raises:
        ConfigurationError: there is no model, none of that name, or more than one.
    """
    files = list(names)
    if not wanted and any(n.endswith(".safetensors") for n in files):
        return None
    models = [n for n in files if n.endswith(".gguf") and "mmproj" not in n.lower()]
    models = [n for n in models if (m := _PART.search(n)) is None or m[1] == "00001"]
    found = [n for n in models if wanted.lower() in n.lower()]
    exact = [n for n in found if n == wanted]
    if len(exact or found) == 1:
        return (exact or found)[0]
    shown = ", ".join(sorted(found or models)[:12]) or "neither safetensors nor GGUF files"
    asked = f"one GGUF file named like {wanted!r}" if wanted else "safetensors or one GGUF file"
    raise ConfigurationError(
        f"--model {where}: expected {asked}, got {shown}; name one as owner/name:PART-OF-ITS-NAME"
    )


def parts_of(file: str) -> str:
    """Return a pattern for all parts of a split GGUF file, or the file itself."""
    return _PART.sub(r"-*-of-\2.gguf", file)


def is_whole(held: list[str], file: str | None, folder: Path) -> bool:
    """Return whether a cached model has all its parts; a download cut off leaves some out."""
    if file is not None:
        part = _PART.search(file)
        stem = file[: part.start()] if part else ""
        return part is None or sum(n.startswith(stem) for n in held) >= int(part[2])
    if "config.json" not in held:
        return False
    if "model.safetensors.index.json" not in held:
        return "model.safetensors" in held
    index = json.loads((folder / "model.safetensors.index.json").read_bytes())
    return set(index.get("weight_map", {}).values()) <= set(held)


def fetch(text: str) -> Path:
    """Return the local file or folder of a hub id, downloading what is not cached.

    Raises:
        ConfigurationError: the hub does not give it, or it does not say which file; with the cause.
    """
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    repository, _, wanted = text.partition(":")
    try:
        folder = Path(huggingface_hub.snapshot_download(repository, local_files_only=True))
        held = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()]
        file = choose(held, wanted, text)
        if is_whole(held, file, folder):
            return folder if file is None else folder / file
    except (LocalEntryNotFoundError, ConfigurationError, ValueError, AttributeError):
        pass  # Not cached, or not this file of it.
    try:
        # One request without retries: where there is no network, that is told at once.
        listed = huggingface_hub.model_info(repository, timeout=ANSWER_S).siblings or ()
        file = choose([each.rfilename for each in listed], wanted, text)
        patterns = list(FOLDER_FILES) if file is None else [parts_of(file)]
        folder = Path(huggingface_hub.snapshot_download(repository, allow_patterns=patterns))
    except ConfigurationError:
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigurationError(
            f"--model {text}: no such file or folder, and the hub did not give a model of that id: "
            f"{said:.300}; check the id and the network, or name a file"
        ) from error
    return folder if file is None else folder / file
