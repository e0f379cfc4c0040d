"""The vocabulary keys of a GGUF file, checked once, as one frozen value.

Nothing here is trusted: a file may hold any type and any length under any key.

One file, because each key is a reader of a few lines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from radiance_core.model_files.joined_strings import JoinedStrings
from radiance_core.text.errors import TokenizerError

_MAX_TOKENS = 1 << 21
_MAX_TOKEN_BYTES = 4096
_PREFIX = "tokenizer.ggml."
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


class TokenType(IntEnum):
    """What a token is, in the numbering of ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class GgufVocab:
    """A checked GGUF vocabulary.

    Args:
        model: ``gpt2`` (byte-level BPE) or ``llama`` (SentencePiece BPE by score).
        pre: the pre-tokenizer's name.
        tokens: text of every id, as the file spells it.
        types: a ``TokenType`` value of every id, a byte each.
        scores: merge priority of every id, greater first; empty for ``gpt2``.
        merges: pairs in priority order, parts not yet looked up; empty for ``llama``.
        bos_id, eos_id, unk_id, pad_id: special ids, ``None`` where the file has none.
        end_ids: every id that the file's own keys declare to end a turn.
        add_bos, add_eos, add_space_prefix: ``None`` where the file does not say.
        chat_template: the default template's source.
    """

    model: str
    pre: str
    tokens: Sequence[str]
    types: bytes
    scores: Sequence[float]
    merges: Sequence[tuple[str, str]]
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    pad_id: int | None
    end_ids: frozenset[int]
    add_bos: bool | None
    add_eos: bool | None
    add_space_prefix: bool | None
    chat_template: str | None


def read_vocab(metadata: Mapping[str, object]) -> GgufVocab:
    """Check the ``tokenizer.*`` keys of ``metadata`` and return them as one value.

    Raises:
        TokenizerError: a key is missing, of the wrong type or length, out of range, or names a
            vocabulary model that is not read; the text names the key and both values.
    """
    model = _text(metadata, "model")
    if model not in {"gpt2", "llama"}:
        raise TokenizerError(
            f"{_PREFIX}model: expected gpt2 or llama, got {model!r}; this kind of vocabulary is "
            "not read from GGUF: serve the safetensors checkpoint with its tokenizer.json."
        )
    tokens = _tokens(metadata)
    types = _types(metadata, len(tokens))
    return GgufVocab(
        model=model,
        pre=_text(metadata, "pre", default="default"),
        tokens=tokens,
        types=types,
        scores=_scores(metadata, len(tokens)) if model == "llama" else (),
        merges=_merges(metadata) if model == "gpt2" else (),
        bos_id=_token_id(metadata, "bos_token_id", len(tokens)),
        eos_id=_token_id(metadata, "eos_token_id", len(tokens)),
        unk_id=_token_id(metadata, "unknown_token_id", len(tokens)),
        pad_id=_token_id(metadata, "padding_token_id", len(tokens)),
        end_ids=_end_ids(metadata, len(tokens)),
        add_bos=_flag(metadata, "add_bos_token"),
        add_eos=_flag(metadata, "add_eos_token"),
        add_space_prefix=_flag(metadata, "add_space_prefix"),
        chat_template=chat_template(metadata),
    )


def chat_template(metadata: Mapping[str, object]) -> str | None:
    """Return the chat template of a GGUF file: the only one, or the one named ``default``."""
    source = metadata.get("tokenizer.chat_template")
    if source is None:
        source = metadata.get("tokenizer.chat_template.default")
    if source is None or isinstance(source, str):
        return source
    raise _wrong("tokenizer.chat_template", "a string", _kind(source))


def _wrong(key: str, expected: str, got: object) -> TokenizerError:
    return TokenizerError(f"{key}: expected {expected}, got {got}; the file is damaged.")


def _kind(value: object) -> str:
    return type(value).__name__


def _text(metadata: Mapping[str, object], name: str, default: str | None = None) -> str:
    value = metadata.get(_PREFIX + name, default)
    if isinstance(value, str):
        return value
    got = "no such key" if value is None else _kind(value)
    raise _wrong(_PREFIX + name, "a string", got)


def _flag(metadata: Mapping[str, object], name: str) -> bool | None:
    value = metadata.get(_PREFIX + name)
    if value is None or isinstance(value, bool):
        return value
    raise _wrong(_PREFIX + name, "true or false", _kind(value))


def _token_id(metadata: Mapping[str, object], name: str, num_tokens: int) -> int | None:
    value = metadata.get(_PREFIX + name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(_PREFIX + name, "a token id", _kind(value))
    if not 0 <= value < num_tokens:
        raise _wrong(_PREFIX + name, f"a token id below {num_tokens}", value)
    return value


def _end_ids(metadata: Mapping[str, object], num_tokens: int) -> frozenset[int]:
    found = {_token_id(metadata, name, num_tokens) for name in _END_KEYS}
    return frozenset(id_ for id_ in found if id_ is not None)


def _array(metadata: Mapping[str, object], name: str) -> list[object]:
    value = metadata.get(_PREFIX + name)
    if isinstance(value, (list, tuple, JoinedStrings)):
        return list(value)
    got = "no such key" if value is None else _kind(value)
    raise _wrong(_PREFIX + name, "an array", got)


def _check_kinds(key: str, values: Sequence[object], allowed: set[type], expected: str) -> None:
    """Refuse an array with any element of another type (bool is not int here)."""
    found = set(map(type, values))
    if not found <= allowed:
        bad = next(index for index, value in enumerate(values) if type(value) not in allowed)
        raise _wrong(f"{key}[{bad}]", expected, _kind(values[bad]))


def _strings(metadata: Mapping[str, object], name: str) -> Sequence[str]:
    """Return an array of strings, each of valid Unicode and at most 4 KiB."""
    key = _PREFIX + name
    held = metadata.get(key)
    if isinstance(held, JoinedStrings) and held.longest_bytes <= _MAX_TOKEN_BYTES:
        return held  # strings of valid Unicode
    values = _array(metadata, name)
    _check_kinds(key, values, {str}, "a string")
    strings: list[str] = values  # type: ignore[assignment]  # the line above proved it
    longest = max(strings, key=len, default="")
    try:
        "".join(strings).encode()
        longest_bytes = len(longest.encode())
    except UnicodeEncodeError as err:
        raise _wrong(key, "UTF-8 text", f"code point U+{ord(err.object[err.start]):04X}") from err
    if longest_bytes > _MAX_TOKEN_BYTES:
        raise _wrong(key, f"strings of at most {_MAX_TOKEN_BYTES} bytes", f"{longest_bytes} bytes")
    return strings


def _tokens(metadata: Mapping[str, object]) -> list[str]:
    tokens = list(_strings(metadata, "tokens"))
    if not 0 < len(tokens) <= _MAX_TOKENS:
        raise _wrong(f"{_PREFIX}tokens", f"1 to {_MAX_TOKENS} strings", len(tokens))
    return tokens


def _types(metadata: Mapping[str, object], num_tokens: int) -> bytes:
    key = f"{_PREFIX}token_type"
    if key not in metadata:
        return bytes([TokenType.NORMAL]) * num_tokens
    values = _array(metadata, "token_type")
    _check_kinds(key, values, {int}, "an integer")
    types: list[int] = values  # type: ignore[assignment]  # the line above proved it
    if len(types) != num_tokens:
        raise _wrong(key, f"{num_tokens} entries, one a token", len(types))
    strange = set(types) - set(TokenType)
    if strange:
        raise _wrong(key, "values from 1 to 6", min(strange))
    return bytes(types)


def _scores(metadata: Mapping[str, object], num_tokens: int) -> list[float]:
    key = f"{_PREFIX}scores"
    values = _array(metadata, "scores")
    _check_kinds(key, values, {float}, "a float")
    scores: list[float] = values  # type: ignore[assignment]  # the line above proved it
    if len(scores) != num_tokens:
        raise _wrong(key, f"{num_tokens} entries, one a token", len(scores))
    if any(score != score for score in scores):  # noqa: PLR0124  # NaN is not itself
        raise _wrong(key, "numbers", "NaN")
    return scores


def _merges(metadata: Mapping[str, object]) -> list[tuple[str, str]]:
    """Split each merge at its blank. A part is never empty: a leading blank is the first part's."""
    merges = _strings(metadata, "merges")
    if isinstance(merges, JoinedStrings) and (simple := merges.pairs()) is not None:
        return simple
    pairs = [(merge[:cut], merge[cut + 1 :]) for merge in merges if (cut := merge.find(" ", 1)) > 0]
    if len(pairs) < len(merges):
        bad = next(index for index, merge in enumerate(merges) if merge.find(" ", 1) < 0)
        raise _not_two_parts(bad, merges[bad])
    return pairs


def refuse_merges(tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> None:
    """Find the merge for which no merge list may be, and say what is wrong with it.

    Looking up both parts and their join costs as much as building the tokenizer, which looks them
    up too, so this is for when that has failed.

    Raises:
        TokenizerError: names the first merge that is not of two tokens which join to a token.
    """
    known = set(tokens)
    for index, (left, right) in enumerate(merges):
        if not right:
            raise _not_two_parts(index, f"{left} ")
        if not (left in known and right in known and left + right in known):
            raise _wrong(
                f"{_PREFIX}merges[{index}]",
                "two tokens that join to a token",
                repr(f"{left} {right}"[:80]),
            )


def _not_two_parts(index: int, merge: str) -> TokenizerError:
    return _wrong(f"{_PREFIX}merges[{index}]", "two parts with a blank between", repr(merge[:80]))
