"""What a request that says nothing gets: given settings, a file, the model's own, built-in."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from radiance_abi.errors import ConfigurationError, RadianceError
from radiance_core.config import Config
from radiance_core.engine.sampling import SamplingParams
from radiance_core.log_events import get_logger
from radiance_core.model_files import Checkpoint
from radiance_core.model_files.json_text import MAX_JSON_BYTES, parse_object
from radiance_core.nearest import did_you_mean
from radiance_core.settings import BY_NAME

log = get_logger(__name__)

NONE = "none"
OWN_FILE = "generation_config.json"
BUILT_IN = "built-in"

FIELD_OF = {
    "temp": "temperature",
    "top-p": "top_p",
    "top-k": "top_k",
    "min-p": "min_p",
    "typical-p": "typical_p",
    "repetition-penalty": "repetition_penalty",
    "frequency-penalty": "frequency_penalty",
    "presence-penalty": "presence_penalty",
    "repeat-last-n": "penalty_last_n",
    "xtc-probability": "xtc_probability",
    "xtc-threshold": "xtc_threshold",
    "dry-multiplier": "dry_multiplier",
    "dry-base": "dry_base",
    "dry-allowed-length": "dry_allowed_length",
    "dry-penalty-last-n": "dry_last_n",
    "dry-sequence-breakers": "dry_breakers",
    "default-max-tokens": "max_tokens",
}
"""Field of the sampling by setting."""
_SETTING_OF = {field: setting for setting, field in FIELD_OF.items()}
_FILE_KEYS = {
    **{field: field for field in FIELD_OF.values() if field not in ("dry_breakers", "dry_last_n")},
    "dry_penalty_last_n": "dry_last_n",
    "dry_sequence_breakers": "dry_breakers",
    "max_new_tokens": "max_tokens",
}
# What stands beside them in a model's generation_config.json, and is read elsewhere or by nobody.
_OTHER_KEYS = frozenset({
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "max_length",
    "transformers_version", "_from_model_config", "use_cache", "cache_implementation", "do_sample",
})  # fmt: skip
_GGUF = "general.sampling."
_GGUF_KEYS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "penalty_last_n": "penalty_last_n",
    "penalty_repeat": "repetition_penalty",
}


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """Effective defaults, and where each field's value came from."""

    params: SamplingParams
    sources: Mapping[str, str]


def sampling_defaults(config: Config, checkpoint: Checkpoint) -> SamplingDefaults:
    """Return the defaults: settings that were given, the file, the model's own, built-in.

    Raises:
        ConfigurationError: ``--generation-config`` names no such file, or one with an unknown key
            or a wrong value; a setting that is no breakers or no number of tokens.
    """
    own = {} if config.values["generation-config"] == NONE else _own(checkpoint)
    chosen = own | given_defaults(config)
    sources = {field.name: BUILT_IN for field in fields(SamplingParams)}
    sources |= {field: source for field, (_, source) in chosen.items()}
    params = SamplingParams(**{field: value for field, (value, _) in chosen.items()})
    return SamplingDefaults(params, {name: sources[name] for name in FIELD_OF.values()})


def given_defaults(config: Config) -> dict[str, tuple[Any, str]]:
    """Return what settings say, by field with its source; needs no model.

    Raises:
        ConfigurationError: see ``sampling_defaults``.
    """
    asked = config.values["generation-config"]
    chosen: dict[str, tuple[Any, str]] = {}
    if isinstance(asked, str) and asked != NONE:
        chosen |= _from_file(Path(asked).expanduser())
    for setting, field in FIELD_OF.items():
        if config.sources[setting] != "default":
            source = config.sources[setting]
            chosen[field] = _given(setting, config.values[setting], source), source
    return chosen


def _given(setting: str, value: object, source: str) -> object:
    """Return what a setting stands for."""
    if setting == "dry-sequence-breakers":
        try:
            return _checked("dry_breakers", json.loads(str(value)))
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"{source}: {setting}: expected a JSON list of at most 16 texts of 1 to 40 bytes, "
                f"got {value!r:.80}"
            ) from error
    if setting == "default-max-tokens":
        if value == "auto":
            return None
        text = str(value)
        if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) < 2**31):
            raise ConfigurationError(
                f"{source}: {setting}: expected a number of tokens or auto, got {value!r:.40}"
            )
        return int(text)
    return value


def _own(checkpoint: Checkpoint) -> dict[str, tuple[Any, str]]:
    """Return what the model says of itself; what it says wrongly is logged and passed over."""
    found: dict[str, tuple[Any, str]] = {}
    values, source = _own_values(checkpoint)
    for key, field, value in values:
        try:
            found[field] = _checked(field, value), source
        except ValueError as error:
            log.warning("sampling_default_passed_over", source=source, key=key, reason=str(error))
    return found


def _own_values(checkpoint: Checkpoint) -> tuple[list[tuple[str, str, Any]], str]:
    """Return (key, field, value) of the keys that mean something here, and where they stand."""
    if checkpoint.format == "gguf":
        pairs = [(f"{_GGUF}{key}", field) for key, field in _GGUF_KEYS.items()]
        data: Mapping[str, Any] = checkpoint.metadata
        source = "the model's GGUF metadata"
    else:
        raw = checkpoint.side_file(OWN_FILE)
        path = checkpoint.path / OWN_FILE
        data = {} if raw is None else parse_object(raw, path, OWN_FILE)
        pairs, source = list(_FILE_KEYS.items()), f"the model's {OWN_FILE}"
    listed = [(key, field, data[key]) for key, field in pairs if data.get(key) is not None]
    return listed + _greedy(data), source


def _greedy(data: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """Return the temperature of a model that says that it is not to be sampled."""
    return [("do_sample", "temperature", 0.0)] if data.get("do_sample") is False else []


def _from_file(path: Path) -> dict[str, tuple[Any, str]]:
    """Read ``--generation-config``; every key must be one that is known."""
    source = f"--generation-config {path}"
    try:
        with path.open("rb") as file:
            data = parse_object(file.read(MAX_JSON_BYTES + 1), path, "a generation config")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ConfigurationError(
            f"{source}: expected a JSON file of sampling defaults, or none, got one that cannot be "
            f"read: {why}"
        ) from error
    except RadianceError as error:
        raise ConfigurationError(
            f"{source}: expected a JSON object of sampling defaults: {error}"
        ) from error
    found: dict[str, tuple[Any, str]] = {}
    for key, value in data.items():
        if key not in _FILE_KEYS and key not in _OTHER_KEYS:
            known = [*_FILE_KEYS, *sorted(_OTHER_KEYS)]
            raise ConfigurationError(
                f"{source}: unknown key {key!r:.60}{did_you_mean(key[:60], known) or '.'} "
                f"Known ones are {', '.join(_FILE_KEYS)}."
            )
        if key in _FILE_KEYS and value is not None:
            try:
                found[_FILE_KEYS[key]] = _checked(_FILE_KEYS[key], value), source
            except ValueError as error:
                raise ConfigurationError(f"{source}: {key}: {error}") from error
    for _, field, value in _greedy(data):
        found[field] = value, source
    return found


def _checked(field: str, value: object) -> Any:
    """Return a value of a field.

    Raises:
        ValueError: of another type, or outside the bounds of the setting.
    """
    if field == "dry_breakers":
        return _breakers(value)
    if field == "max_tokens":
        low, high, kind = 1.0, float(2**31 - 1), "int"
    else:
        setting = BY_NAME[_SETTING_OF[field]]
        assert setting.least is not None, "numbers have bounds"
        assert setting.most is not None, "numbers have bounds"
        low, high, kind = setting.least, setting.most, setting.kind
    if field == "top_k" and value == -1:
        value = 0  # both mean all
    right = isinstance(value, int) or (isinstance(value, float) and kind == "float")
    # Written so that a value that is not a number is outside.
    if isinstance(value, bool) or not right or not low <= value <= high:  # type: ignore[operator]
        what = "a whole number" if kind == "int" else "a number"
        raise ValueError(f"expected {what} from {low:g} to {high:g}, got {value!r:.40}")
    return float(value) if kind == "float" else value  # type: ignore[arg-type]


def _breakers(value: object) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [None]
    if len(texts) > 16 or not all(isinstance(t, str) and 0 < len(t.encode()) <= 40 for t in texts):
        raise ValueError(f"expected a list of at most 16 texts of 1 to 40 bytes, got {value!r:.80}")
    return tuple(texts)
