"""Sampling defaults: settings over a file over the model's own over built-in ones."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from radiance_abi.errors import ConfigurationError
from radiance_core.cli.sampling_defaults import FIELD_OF, SamplingDefaults, sampling_defaults
from radiance_core.config import load_config
from radiance_core.engine.sampling import SamplingParams
from radiance_core.settings import SAMPLING_SETTINGS

OWN = "the model's generation_config.json"


@dataclass
class Checkpoint:
    """A model's folder, or the metadata of its GGUF file."""

    path: Path
    format: str = "safetensors"
    metadata: dict[str, Any] = field(default_factory=dict)

    def side_file(self, name: str) -> bytes | None:
        found = self.path / name
        return found.read_bytes() if found.exists() else None


def model(folder: Path, own: object = None, **gguf: Any) -> Any:
    if own is not None:
        (folder / "generation_config.json").write_text(json.dumps(own))
    metadata = {f"general.sampling.{key}": value for key, value in gguf.items()}
    return Checkpoint(folder, "gguf" if gguf else "safetensors", metadata)


def defaults(
    checkpoint: Any, file: Path | str | None = None, env: dict[str, str] | None = None, **flags: Any
) -> SamplingDefaults:
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    if file is not None:
        given["generation-config"] = str(file)
    return sampling_defaults(load_config(given, None, env or {}), checkpoint)


def test_the_built_in_ones_are_the_requests_own(tmp_path: Path) -> None:
    """With nothing said anywhere the table of settings and the engine agree on every field."""
    found = defaults(model(tmp_path))
    assert found.params == SamplingParams()
    assert set(found.sources) == set(FIELD_OF.values())
    assert set(found.sources.values()) == {"built-in"}
    for setting in SAMPLING_SETTINGS:
        if setting.name in FIELD_OF and setting.default not in (None, "auto"):
            assert setting.default == getattr(SamplingParams(), FIELD_OF[setting.name])


def test_the_strongest_that_says_something_wins(tmp_path: Path) -> None:
    """Each field by itself: one source may say what another leaves out."""
    checkpoint = model(
        tmp_path,
        {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "max_new_tokens": 77, "eos_token_id": 3},
    )
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"top_p": 0.5, "top_k": 5, "repetition_penalty": 1.2}))
    found = defaults(checkpoint, file, {"RADIANCE_MIN_P": "0.125"}, top_k=0)
    p, told = found.params, found.sources
    assert (p.temperature, told["temperature"]) == (0.6, OWN)
    assert (p.max_tokens, told["max_tokens"]) == (77, OWN)
    assert (p.top_p, told["top_p"]) == (0.5, f"--generation-config {file}")
    assert p.repetition_penalty == 1.2
    assert (p.top_k, told["top_k"]) == (0, "command line"), "given, even if it is the default"
    assert (p.min_p, told["min_p"]) == (0.125, "environment RADIANCE_MIN_P")
    assert (p.typical_p, told["typical_p"]) == (1.0, "built-in")


def test_none_takes_no_file_at_all(tmp_path: Path) -> None:
    """Neither the model's own, nor another."""
    found = defaults(model(tmp_path, {"temperature": 0.1}), "none", top_p=0.5)
    assert (found.params.temperature, found.params.top_p) == (1.0, 0.5)


@pytest.mark.parametrize("field_name", ["temperature", "temp"])
def test_a_model_that_is_not_sampled_is_greedy(tmp_path: Path, field_name: str) -> None:
    """do_sample false is temperature 0, over the file's own temperature but under a flag."""
    checkpoint = model(tmp_path, {"do_sample": False, "temperature": 0.9})
    assert defaults(checkpoint).params.temperature == 0
    if field_name == "temp":
        assert defaults(checkpoint, temp=0.4).params.temperature == 0.4


def test_gguf_metadata(tmp_path: Path) -> None:
    """The names that GGUF files have for them."""
    found = defaults(
        model(tmp_path, temp=0.25, top_k=40, top_p=0.75, min_p=0.5, xtc_probability=0.5,
              xtc_threshold=0.25, penalty_last_n=-1, penalty_repeat=1.5, mirostat=0)
    )  # fmt: skip
    want = SamplingParams(
        temperature=0.25, top_k=40, top_p=0.75, min_p=0.5, xtc_probability=0.5,
        xtc_threshold=0.25, penalty_last_n=-1, repetition_penalty=1.5,
    )  # fmt: skip
    assert found.params == want
    assert found.sources["temperature"] == "the model's GGUF metadata"


def test_what_a_model_says_wrongly_is_passed_over_and_logged(tmp_path: Path) -> None:
    """A model must not stop a server by its defaults; what else it says still counts."""
    wrong = {"temperature": "hot", "top_p": 7, "top_k": 2.5, "min_p": True, "typical_p": [1],
             "repetition_penalty": 0, "max_new_tokens": -1, "novel_key": 3}  # fmt: skip
    with capture_logs() as events:
        found = defaults(model(tmp_path, {**wrong, "presence_penalty": 0.5}))
    assert found.params == SamplingParams(presence_penalty=0.5)
    named = [e["key"] for e in events if e["event"] == "sampling_default_passed_over"]
    assert sorted(named) == sorted(wrong.keys() - {"novel_key"})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"temprature": 1}', "unknown key 'temprature'; did you mean 'temperature'? Known"),
        ('{"temperature": 3}', "temperature: expected a number from 0 to 2, got 3"),
        ('{"temperature": NaN}', "temperature: expected a number from 0 to 2, got nan"),
        ('{"top_k": 1.5}', "top_k: expected a whole number from 0 to"),
        ('{"max_new_tokens": 0}', "max_new_tokens: expected a whole number from 1 to"),
        ('{"dry_sequence_breakers": ["", "a"]}', "expected a list of at most 16 texts of 1 to 40"),
        ("[]", "expected a JSON object of sampling defaults"),
        ("{", "expected a JSON object of sampling defaults"),
        ("", "expected a JSON object of sampling defaults"),
    ],
)
def test_a_file_that_was_asked_for_must_be_right(tmp_path: Path, content: str, said: str) -> None:
    """It stops the start and names the file, the key and the nearest one."""
    file = tmp_path / "mine.json"
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        defaults(model(tmp_path), file)
    assert str(caught.value).startswith(f"--generation-config {file}: ")
    assert said in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The path is named."""
    said = r"nothing\.json: expected a JSON file of samp.* cannot be read: no such file"
    with pytest.raises(ConfigurationError, match=said):
        defaults(model(tmp_path), tmp_path / "nothing.json")


def test_a_models_own_file_can_be_asked_for(tmp_path: Path) -> None:
    """What usually stands in one beside sampling is no unknown key; null says nothing."""
    file = tmp_path / "other.json"
    own = {"bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": 0, "do_sample": True,
           "transformers_version": "5", "temperature": 0.7, "top_k": -1, "top_p": None}  # fmt: skip
    file.write_text(json.dumps(own))
    assert defaults(model(tmp_path), file).params == SamplingParams(temperature=0.7)


def test_breakers_and_lengths_from_settings(tmp_path: Path) -> None:
    """Breakers are JSON; a length is a number or auto, also over a model that states one."""
    checkpoint = model(tmp_path, {"max_new_tokens": 5})
    found = defaults(checkpoint, dry_sequence_breakers='["\\n", "."]', default_max_tokens="auto")
    assert (found.params.dry_breakers, found.params.max_tokens) == (("\n", "."), None)
    assert defaults(checkpoint, default_max_tokens="512").params.max_tokens == 512
    for text in ("0", "-1", "many", "9" * 30, "1.5", "٣"):
        with pytest.raises(ConfigurationError, match="expected a number of tokens or auto, got"):
            defaults(checkpoint, default_max_tokens=text)
    for text in ("x", '"x"', '[""]', "[1]", "[" * 100_000, json.dumps(["a"] * 17)):
        with pytest.raises(ConfigurationError, match="expected a JSON list of at most 16 texts"):
            defaults(checkpoint, dry_sequence_breakers=text)
