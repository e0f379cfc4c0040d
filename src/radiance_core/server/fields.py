"""Every request field by name: its range, whether it is served, and what an unknown one is."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from radiance_core.server.errors import ApiError, invalid, quote, unsupported

INT31 = 2**31 - 1
MAX_UNKNOWN = 32  # all of them are named in the answer, and each is compared with every known one


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a number may have; ``above`` leaves ``low`` itself out."""

    low: float
    high: float
    above: bool = False

    def holds(self, value: float) -> bool:
        """Say whether ``value`` is inside."""
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        return f"{'above' if self.above else 'from'} {self.low} to {self.high}"


RANGES: dict[str, Range] = {
    "max_tokens": Range(0, INT31),
    "max_completion_tokens": Range(0, INT31),
    "temperature": Range(0, 2),
    "top_p": Range(0, 1, above=True),
    "top_k": Range(-1, INT31),  # -1 and 0 both mean off
    "min_p": Range(0, 1),
    "typical_p": Range(0, 1, above=True),
    "repetition_penalty": Range(0, 100, above=True),
    "frequency_penalty": Range(-2, 2),
    "presence_penalty": Range(-2, 2),
    "penalty_last_n": Range(-1, INT31),
    "xtc_probability": Range(0, 1),
    "xtc_threshold": Range(0, 1),
    "dry_multiplier": Range(0, 100),
    "dry_base": Range(1, 100),
    "dry_allowed_length": Range(1, INT31),
    "dry_penalty_last_n": Range(-1, INT31),
    "seed": Range(-(2**63), 2**63 - 1),
    "min_tokens": Range(0, INT31),
    "priority": Range(-INT31, INT31),
    "n": Range(1, 128),
}

LOGPROBS = Range(0, 20)  # on every route; documents of /v1/completions stop at 5
LOGIT_BIAS = Range(-100, 100)

ALIASES = {"repeat_penalty": "repetition_penalty", "repeat_last_n": "penalty_last_n"}

# Names from other servers that mean a field served here; a guess is better said than made.
SYNONYMS = {
    "max_new_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_length": "max_tokens",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "stop_sequences": "stop",
    "random_seed": "seed",
    "temp": "temperature",
    "think": "enable_thinking",
}

INERT = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
})  # fmt: skip

CONSTRAINTS = frozenset({
    "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar", "json_schema", "grammar",
})  # fmt: skip
SAMPLING = frozenset(RANGES) | CONSTRAINTS | {
    "model", "stop", "stop_token_ids", "ignore_eos", "stream", "stream_options", "logit_bias",
    "dry_sequence_breakers", "cache_salt", "cache_prompt",
}  # fmt: skip
CHAT = SAMPLING | {
    "messages", "add_generation_prompt", "continue_final_message", "chat_template_kwargs",
    "reasoning_effort", "enable_thinking", "preserve_thinking", "include_reasoning", "tools",
    "tool_choice", "parallel_tool_calls", "logprobs", "top_logprobs",
}  # fmt: skip
COMPLETION = SAMPLING | {"prompt", "echo", "logprobs"}
TOKENIZE = (CHAT - SAMPLING - {"logprobs", "top_logprobs", "include_reasoning"}) | {
    "model", "prompt", "add_special_tokens", "return_token_strs",
}  # fmt: skip
DETOKENIZE = frozenset({"model", "tokens"})


@dataclass(frozen=True, slots=True)
class Unserved:
    """A known field that is not served, and the values of it that ask for nothing."""

    why: str
    neutral: tuple[Any, ...] = ()


_SAMPLER = "this sampler is not served"
_TEXT_ONLY = "this server answers in text"
UNSERVED: dict[str, Unserved] = {
    "tools": Unserved("only conversations have tools", ([],)),
    "tool_choice": Unserved("only conversations have tools", ("none", "auto")),
    "parallel_tool_calls": Unserved("only conversations have tools", (True, False)),
    "functions": Unserved("it is superseded by tools; send the functions as tools", ([],)),
    "function_call": Unserved("it is superseded by tool_choice; use that", ("none", "auto")),
    "logprobs": Unserved("tokens of this route are not told one by one", (False,)),
    "top_logprobs": Unserved("it goes with logprobs true on /v1/chat/completions", (0,)),
    "prompt_logprobs": Unserved("ask /v1/completions with echo true and logprobs"),
    "messages": Unserved("a conversation goes to /v1/chat/completions", ([],)),
    "prompt": Unserved("a text to continue goes to /v1/completions", ("", [])),
    "options": Unserved(
        "its settings are fields of the request itself here, such as temperature, top_p, seed and "
        "max_tokens",
        ({},),
    ),
    "format": Unserved("it is response_format here", ("",)),
    "n_probs": Unserved("it is called logprobs here", (0,)),
    "bad_words": Unserved("forbid single tokens with a logit_bias of -100", ([],)),
    "guided_decoding_backend": Unserved("there is one engine for constraints"),
    "guided_whitespace_pattern": Unserved("blanks between parts of JSON are always allowed"),
    "best_of": Unserved("only one answer is made for each choice", (1,)),
    "suffix": Unserved("text can only be continued, not filled in", ("",)),
    "modalities": Unserved(_TEXT_ONLY, (["text"],)),
    "audio": Unserved(_TEXT_ONLY),
    "prediction": Unserved("predicted outputs are not served"),
    "verbosity": Unserved("no model here knows a verbosity", ("medium",)),
    "web_search_options": Unserved("the server reaches no network"),
    "mirostat": Unserved(_SAMPLER, (0,)),
    "mirostat_tau": Unserved(_SAMPLER),
    "mirostat_eta": Unserved(_SAMPLER),
    "top_n_sigma": Unserved(_SAMPLER),
    "dynatemp_range": Unserved(_SAMPLER, (0,)),
    "dynatemp_exponent": Unserved(_SAMPLER),
    "tfs_z": Unserved(_SAMPLER, (1,)),
    "lora": Unserved("adapters are not served"),
    "use_beam_search": Unserved("beam search is not served", (False,)),
    "length_penalty": Unserved("beam search is not served", (1,)),
    "documents": Unserved("documents for the template are not served", ([],)),
    "chat_template": Unserved("templates come with the model, not with a request"),
    "include_reasoning": Unserved("only conversations have reasoning"),
    "separate_reasoning": Unserved(
        "reasoning is split from the answer unless the server runs with --reasoning-format none",
        (True,),
    ),
    "thinking_budget": Unserved("thinking is bounded only by max_tokens"),
    "skip_special_tokens": Unserved("special tokens are never part of the text", (True,)),
    "return_token_ids": Unserved("token ids are not returned yet", (False,)),
}


def sort_out(
    body: Mapping[str, Any],
    served: frozenset[str],
    *,
    strict: bool,
    inert: frozenset[str] = INERT,
    unserved: Mapping[str, Unserved] = UNSERVED,
) -> tuple[dict[str, Any], list[str]]:
    """Split a body into the fields to honour and the names of those ignored.

    An explicit null is an absent field. Aliases are written with their own name. A route may have
    its own fields that change nothing (``inert``) and its own refusals (``unserved``).

    Raises: ``ApiError`` 400 for a field that is known and not served, for a near miss of a known
    one, for two spellings of one field that differ, and with ``strict`` for every unknown one.
    """
    known: dict[str, Any] = {}
    unknown = []
    for name, value in body.items():
        canonical = ALIASES.get(name, name)
        if value is None or (name in inert and canonical not in served):
            continue
        if canonical in served:
            if canonical in known and known[canonical] != value:
                raise invalid(
                    f"{name}: expected one value for {canonical}, got two that differ.", name
                )
            known[canonical] = value
        elif name in unserved:
            if not any(_same(value, item) for item in unserved[name].neutral):
                raise unsupported(name, unserved[name].why)
        else:
            unknown.append(name)
    aliases = {alias for alias, name in ALIASES.items() if name in served}
    return known, ignored(unknown, served | inert | unserved.keys() | aliases, "", strict)


def ignored(names: Collection[str], known: Collection[str], prefix: str, strict: bool) -> list[str]:
    """Return the paths of unknown fields that may be ignored; raise for one that may not."""
    paths: list[str] = []
    check_number(names)
    for name in names:
        path = f"{prefix}{name}"
        if suggestion := near_miss(name, known):
            raise _unknown(path, f"; did you mean {suggestion!r}?")
        if strict:
            raise _unknown(path, ", and this server takes only known ones (--strict-requests).")
        paths.append(path)
    return paths


def check_number(names: Collection[str]) -> None:
    """Refuse more unknown fields than would be named, before each costs a comparison."""
    if len(names) > MAX_UNKNOWN:
        raise invalid(
            f"body: expected at most {MAX_UNKNOWN} unknown fields, got {len(names)}; send only "
            "fields that mean something here.",
            code="unknown_parameter",
        )


def near_miss(name: str, known: Collection[str]) -> str | None:
    """Return the known field that ``name`` is a slip of, if any."""
    if SYNONYMS.get(name) in known:
        return SYNONYMS[name]
    if len(name) > 64:
        return None
    folded = name.casefold().replace("-", "_")
    found = difflib.get_close_matches(folded, sorted(known), n=1, cutoff=0.85)
    return found[0] if found else None


def check_range(name: str, value: float | None, path: str | None = None) -> None:
    """Raise a 400 when a number is outside its field's range; ``path`` is what it is called."""
    if value is not None and not RANGES[name].holds(value):
        path = path or name
        raise invalid(f"{path}: expected a number {RANGES[name]}, got {value}.", path)


def _unknown(path: str, rest: str) -> ApiError:
    return invalid(f"{quote(path)}: is not a known field{rest}", path, "unknown_parameter")


def _same(value: object, neutral: object) -> bool:
    """Compare as JSON does: true is not 1."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
