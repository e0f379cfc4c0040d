"""A tokenizer from `tokenizer.json` and the side files that say what its special tokens mean."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from tokenizers import Tokenizer as Backend

from radiance_core.text.errors import TokenizerError
from radiance_core.text.tokenizer import SpecialTokens, Spelling, Tokenizer, parse_object
from radiance_core.text.turn_ends import named_turn_ends

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def build(
    data: bytes, config: Mapping[str, object], generation_config: Mapping[str, object]
) -> Tokenizer:
    """Build a tokenizer from the files' contents (see ``Tokenizer.from_tokenizer_json``)."""
    document = parse_object(data, "tokenizer.json")
    try:
        backend = Backend.from_buffer(data)
    except Exception as err:  # the extension raises bare Exception
        raise TokenizerError(
            f"tokenizer.json: expected a file that `tokenizers` reads, got: {err}; "
            "the file is damaged or newer than the installed `tokenizers`."
        ) from err
    backend.no_padding()
    backend.no_truncation()
    tokens = _tokens(backend)
    added = backend.get_added_tokens_decoder()
    hidden = frozenset(id_ for id_, token in added.items() if token.special)
    spelling = _spelling(document, tokens, frozenset(added), hidden)
    special = _special_tokens(backend, tokens, hidden, config, generation_config)
    return Tokenizer(backend, tokens, spelling, special, default_template(config))


def default_template(config: Mapping[str, object]) -> str | None:
    """Return the chat template that ``tokenizer_config.json`` holds, alone or by name.

    Raises:
        TokenizerError: the entry is neither a string nor a list of named templates.
    """
    entry = config.get("chat_template")
    if entry is None or isinstance(entry, str):
        return entry
    if isinstance(entry, list):
        entry = {
            item["name"]: item["template"]
            for item in entry
            if isinstance(item, dict) and item.keys() >= {"name", "template"}
        }
    if isinstance(entry, dict):
        source = entry.get("default", next(iter(entry.values()), None))
        if isinstance(source, str):
            return source
    raise TokenizerError(
        "tokenizer_config.json: chat_template: expected a string or a list of named templates, "
        f"got {type(entry).__name__}; the file is damaged."
    )


def _tokens(backend: Backend) -> list[str | None]:
    """Return the text of every id up to the largest; gaps are ``None``."""
    vocab = backend.get_vocab(with_added_tokens=True)
    tokens: list[str | None] = [None] * (max(vocab.values(), default=-1) + 1)
    for text, id_ in vocab.items():
        tokens[id_] = text
    return tokens


def _nodes(node: object) -> Iterator[Mapping[str, object]]:
    """Walk a decoder or pre-tokenizer description: itself and what its sequences hold."""
    if not isinstance(node, dict):
        return
    yield node
    for key in ("decoders", "pretokenizers"):
        inner = node.get(key)
        if isinstance(inner, list):
            for child in inner:
                yield from _nodes(child)


def _spelling(
    document: Mapping[str, object],
    tokens: Sequence[str | None],
    added: frozenset[int],
    hidden: frozenset[int],
) -> Spelling:
    """Read from the decoder how tokens stand for bytes."""
    steps = list(_nodes(document.get("decoder")))
    kinds = [str(step.get("type")) for step in steps]
    if "ByteLevel" in kinds:
        return Spelling("byte_level", literal_ids=added)
    replaces_mark = any(
        step.get("type") == "Metaspace"
        or (step.get("type") == "Replace" and step.get("content") == " ")
        for step in steps
    )
    if not replaces_mark:
        raise TokenizerError(
            "tokenizer.json: decoder: expected ByteLevel, Metaspace or Replace, got "
            f"{', '.join(kinds) or 'none'}; tokens of this kind of vocabulary do not spell bytes, "
            "so it cannot be streamed."
        )
    byte_ids = _byte_ids(tokens) if "ByteFallback" in kinds else {}
    return Spelling(
        "space_mark",
        byte_ids=byte_ids,
        # Added tokens that are not special spell blanks with the mark too (Gemma's runs of blanks).
        literal_ids=hidden - byte_ids.keys(),
        drop_first_space=any(map(_drops_first_space, steps)),
        each_bad_byte=True,
    )


def _drops_first_space(step: Mapping[str, object]) -> bool:
    if step.get("type") == "Strip":
        start = step.get("start")
        return step.get("content") == " " and isinstance(start, int) and start > 0
    if step.get("type") == "Metaspace":
        scheme = step.get("prepend_scheme", "always")
        return scheme != "never" and step.get("add_prefix_space") is not False
    return False


def _byte_ids(tokens: Sequence[str | None]) -> dict[int, int]:
    spelt = ((id_, _BYTE_TOKEN.fullmatch(text)) for id_, text in enumerate(tokens) if text)
    return {id_: int(match[1], 16) for id_, match in spelt if match}


def _special_tokens(
    backend: Backend,
    tokens: Sequence[str | None],
    hidden: frozenset[int],
    config: Mapping[str, object],
    generation_config: Mapping[str, object],
) -> SpecialTokens:
    roles = {
        role: _role_id(backend, config, role)
        for role in ("bos_token", "eos_token", "unk_token", "pad_token")
    }
    ends = named_turn_ends((id_, tokens[id_] or "") for id_ in hidden)
    ends |= _declared_ends(generation_config, len(tokens))
    if roles["eos_token"] is not None:
        ends |= {roles["eos_token"]}
    prefix, suffix = _wrapping(backend)
    bos, eos = roles["bos_token"], roles["eos_token"]
    if isinstance(config.get("add_bos_token"), bool) and bos is not None:
        prefix = tuple(id_ for id_ in prefix if id_ != bos)
        prefix = (bos, *prefix) if config["add_bos_token"] else prefix
    if isinstance(config.get("add_eos_token"), bool) and eos is not None:
        suffix = tuple(id_ for id_ in suffix if id_ != eos)
        suffix = (*suffix, eos) if config["add_eos_token"] else suffix
    return SpecialTokens(
        bos_id=bos,
        eos_id=eos,
        unk_id=roles["unk_token"],
        pad_id=roles["pad_token"],
        eos_ids=ends,
        special_ids=hidden | ends,
        prefix=prefix,
        suffix=suffix,
    )


def _role_id(backend: Backend, config: Mapping[str, object], role: str) -> int | None:
    """Return the id of the token with a role; the entry is its text or an object with it."""
    entry = config.get(role)
    if isinstance(entry, dict):
        entry = entry.get("content")
    if entry is None:
        return None
    if not isinstance(entry, str):
        raise TokenizerError(
            f"tokenizer_config.json: {role}: expected a token's text, got "
            f"{json.dumps(entry)[:80]}; the file is damaged."
        )
    found: int | None = backend.token_to_id(entry)
    return found


def _declared_ends(generation_config: Mapping[str, object], num_tokens: int) -> frozenset[int]:
    entry = generation_config.get("eos_token_id")
    ids = entry if isinstance(entry, list) else [] if entry is None else [entry]
    for id_ in ids:
        if type(id_) is not int or not 0 <= id_ < num_tokens:
            raise TokenizerError(
                f"generation_config.json: eos_token_id: expected token ids below {num_tokens}, got "
                f"{json.dumps(id_)[:80]}; the file is of another model or damaged."
            )
    return frozenset(ids)


def _wrapping(backend: Backend) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that the file's own post-processor puts before and after a text."""
    bare: list[int] = backend.encode("a", add_special_tokens=False).ids
    full: list[int] = backend.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    return (), ()
