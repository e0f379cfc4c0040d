"""Hub ids: which files of a repository are the model, and that the cache goes before the hub."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from radiance_abi.errors import ConfigurationError
from radiance_core.hub import choose, fetch, is_whole, parts_of

TENSORS = ["config.json", "model-00001-of-00002.safetensors", "tokenizer.json"]
GGUF = ["README.md", "m.Q4_0.gguf", "m.Q4_K_M.gguf", "mmproj-m.gguf"]
SPLIT = [
    "big-Q8_0-00001-of-00003.gguf",
    "big-Q8_0-00002-of-00003.gguf",
    "big-Q8_0-00003-of-00003.gguf",
]


def test_what_of_a_repository_is_the_model() -> None:
    """Safetensors go first; a GGUF file is alone, or named by a part of its name in any case."""
    assert choose(TENSORS, "", "o/n") is None
    assert choose([*TENSORS, *GGUF], "", "o/n") is None
    assert choose([*TENSORS, *GGUF], "q4_k_m", "o/n") == "m.Q4_K_M.gguf"
    assert choose(["m.gguf", "mmproj-m.gguf"], "", "o/n") == "m.gguf"
    assert choose(["a.gguf", "aa.gguf"], "a.gguf", "o/n") == "a.gguf"
    assert choose(SPLIT, "", "o/n") == SPLIT[0]


@pytest.mark.parametrize(
    ("files", "wanted", "text"),
    [
        (
            GGUF,
            "",
            "expected safetensors or one GGUF file, got m.Q4_0.gguf, m.Q4_K_M.gguf; name one",
        ),
        (
            GGUF,
            "q9",
            "expected one GGUF file named like 'q9', got m.Q4_0.gguf, m.Q4_K_M.gguf; name",
        ),
        (["README.md"], "", "got neither safetensors nor GGUF files; name one as owner/name:PART"),
    ],
)
def test_more_than_one_or_none_is_refused(files: list[str], wanted: str, text: str) -> None:
    """The files that there are stand in the error, and how to name one."""
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        choose(files, wanted, "o/n")


def test_parts_of_a_split_file_come_together() -> None:
    """The pattern takes every part, and of a whole file only itself."""
    assert parts_of(SPLIT[0]) == "big-Q8_0-*-of-00003.gguf"
    assert parts_of("m.gguf") == "m.gguf"


def test_a_download_that_was_cut_off_is_not_whole(tmp_path: Path) -> None:
    """Missing shards, parts or configuration send one back to the hub."""
    assert is_whole(["m.gguf"], "m.gguf", tmp_path)
    assert is_whole(SPLIT, SPLIT[0], tmp_path)
    assert not is_whole(SPLIT[:2], SPLIT[0], tmp_path)
    assert is_whole(["config.json", "model.safetensors"], None, tmp_path)
    assert not is_whole(["model.safetensors"], None, tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "1.safetensors"}}')
    held = ["config.json", "model.safetensors.index.json"]
    assert not is_whole(held, None, tmp_path)
    assert is_whole([*held, "1.safetensors"], None, tmp_path)


def test_the_cache_goes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached model is used without asking the hub; what is missing is asked for and no more."""
    asked: list[Any] = []

    def snapshot(repository: str, **given: Any) -> str:
        asked.append(given)
        if given.get("local_files_only") and not list(tmp_path.iterdir()):
            raise LocalEntryNotFoundError("nothing here")
        (tmp_path / "m.Q4_0.gguf").touch()
        return str(tmp_path)

    listed: list[str] = []

    def info(repository: str, *, timeout: float) -> SimpleNamespace:
        assert 0 < timeout < 5
        listed.append(repository)
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in GGUF])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(huggingface_hub, "model_info", info)
    assert fetch("o/n:q4_0") == tmp_path / "m.Q4_0.gguf"
    assert asked == [{"local_files_only": True}, {"allow_patterns": ["m.Q4_0.gguf"]}]
    assert fetch("o/n:q4_0") == tmp_path / "m.Q4_0.gguf"
    assert listed == ["o/n"]
    with pytest.raises(ConfigurationError, match="named like 'q8'"):
        fetch("o/n:q8")
